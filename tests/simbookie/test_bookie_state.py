"""The state of a bookie: read-only for lack of space, by hand or for good, remembered or not, and registered as such."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bkclient.metadata.base import BookieSets
from bkclient.metadata.opening import open_store
from bkclient.wire.messages import Status
from simbookie.bookie import Bookie
from simbookie.config import BookieConfig, state_of_conf
from simbookie.processes import BookieProcess, BookieStartError
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.folders import Folder
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig
from simbookie.storage.status_file import STATUS_FILE, BookieStatus, read_status, write_status
from simbookie.zookeeper import EmbeddedZooKeeper
from tests.simbookie.admin.bench import operated

Virtually = Callable[[Callable[[], Any]], None]
READ_ONLY = "/api/v1/bookie/state/readonly"


def bookie_of(config: BookieConfig, capacity_bytes: int = 1 << 20) -> tuple[Bookie, list[bool]]:
    bookie = Bookie("b0", MemoryStorage(MemoryStorageConfig(capacity_bytes=capacity_bytes, ledger_bytes=0)), config)
    told: list[bool] = []
    bookie.watch_read_only(told.append)
    bookie.start()
    return bookie, told


async def answered(kit: Any, bookie: Bookie, entry_id: int, **fields: Any) -> Status:
    answers = kit.Answers()
    bookie.submit(kit.add(1, entry_id, **fields), answers)
    await kit.settle()
    status: Status = answers[0].status
    return status


def test_a_bookie_that_is_read_only_for_good_takes_recoveries_only(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bookie, told = bookie_of(BookieConfig(read_only_forced=True))
        assert (bookie.read_only, told) == (True, [True])
        assert await answered(kit, bookie, 0) is Status.READ_ONLY
        assert await answered(kit, bookie, 0, recovery=True, high_priority=True) is Status.OK
        bookie.set_read_only(False)
        assert bookie.read_only

    virtually(story)


def test_listeners_hear_of_a_switch_by_hand_though_the_mode_stays(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bookie, told = bookie_of(BookieConfig(), capacity_bytes=1000)
        assert await answered(kit, bookie, 0, payload=bytes(930)) is Status.OK
        assert (bookie.read_only, told) == (True, [True]), "for lack of space"
        bookie.set_read_only(True)
        assert (bookie.is_read_only_by_hand, told) == (True, [True, True])
        bookie.delete_ledger(1)
        assert bookie.read_only, "there is space, and it was by hand"
        bookie.set_read_only(False)
        assert (bookie.read_only, told) == (False, [True, True, False])

    virtually(story)


def test_the_keys_of_a_configuration_file_are_read() -> None:
    conf = {"forceReadOnlyBookie": "true", "persistBookieStatusEnabled": "TRUE", "readOnlyModeEnabled": "true"}
    assert state_of_conf(conf) == {
        "read_only_forced": True,
        "read_only_allowed": True,
        "read_only_remembered": True,
    }
    with pytest.raises(ValueError, match="forceReadOnlyBookie must be true or false, got 'yes'"):
        state_of_conf({"forceReadOnlyBookie": "yes"})
    with pytest.raises(ValueError, match="read_only_forced needs read_only_allowed"):
        BookieConfig(read_only_forced=True, read_only_allowed=False)


async def test_by_http_neither_for_good_nor_not_at_all_can_be_changed(tmp_path: Path) -> None:
    async with operated(tmp_path / "forced", BookieConfig(read_only_forced=True)) as it:
        answer = await it.asked("PUT", READ_ONLY, b'{"readOnly": false}')
        assert answer == (400, "Bookie is in forceReadOnly mode, cannot transit to writable mode")
        assert await it.told("GET", "/api/v1/bookie/sanity") == {"passed": False, "readOnly": True}
        assert await it.told("GET", "/api/v1/bookie/list_bookies?type=ro") == {"b0": None}
    async with operated(tmp_path / "never", BookieConfig(read_only_allowed=False)) as it:
        answer = await it.asked("PUT", READ_ONLY, b'{"readOnly": true}')
        assert answer == (400, "Bookie is disabled ReadOnly mode, cannot transit to readOnly mode")
        assert not it.server.bookie.read_only


# --------------------------------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"1,READ_ONLY,1700000000000,true\n", BookieStatus(True, True, 1_700_000_000_000)),
        (b"1,READ_WRITE,12,false\n", BookieStatus(False, False, 12)),
        (b"1,READ_ONLY,12", BookieStatus(True, True, 12)),
        (b"1,READ_ONLY, 12 , TRUE \nmore", BookieStatus(True, True, 12)),
        (b"", None),
        (b"2,READ_ONLY,12,true\n", None),
        (b"1,READ_ONLY,12,true,x\n", None),
        (b"1,ASLEEP,12,true\n", None),
        (b"1,READ_ONLY,-1,true\n", None),
        (b"1,READ_ONLY," + b"9" * 30 + b",true\n", None),
        (b"\xff\xfe", None),
    ],
)
def test_a_status_is_read_as_bookkeeper_does_and_written_so(text: bytes, status: BookieStatus | None) -> None:
    assert BookieStatus.decode(text) == status
    if status is not None:
        assert BookieStatus.decode(status.encode()) == status
    assert BookieStatus(True, True, 1_700_000_000_000).encode() == b"1,READ_ONLY,1700000000000,true\n"


def test_the_newest_status_counts_and_one_that_cannot_be_had_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(Random(1))
    folders = [Folder(disk, name) for name in ("a", "b", "c")]
    assert read_status(folders) is None
    write_status(folders, BookieStatus(True, True, 5))
    write_status(folders[1:2], BookieStatus(False, False, 7))
    folders[2].write_small(STATUS_FILE, b"nonsense")
    assert read_status(folders) == BookieStatus(False, False, 7)
    disk.faults.plant(DiskFault(DiskOperation.READ, DiskFaultKind.ERROR, path="b/*"))
    assert read_status(folders) == BookieStatus(True, True, 5)
    disk.faults.plant(DiskFault(DiskOperation.WRITE, DiskFaultKind.ERROR, path="a/*"))
    write_status(folders, BookieStatus(True, True, 9))
    assert read_status(folders[1:]) == BookieStatus(True, True, 9)
    assert len(caplog.records) == 2


@contextmanager
def process(folder: Path, **conf: object) -> Iterator[BookieProcess]:
    path = folder / "bk_server.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in conf.items()))
    options = ["--data", str(folder / "data"), "--admin-port", "0", "--conf", str(path)]
    bookie = BookieProcess("b0", "mem://alone", folder, bookie_id="b0", options=options)
    try:
        yield bookie
    finally:
        bookie.kill()


def is_read_only(bookie: BookieProcess, change: bool | None = None) -> Any:
    body = None if change is None else json.dumps({"readOnly": change}).encode()
    url = f"http://127.0.0.1:{bookie.admin_port}{READ_ONLY}"
    request = urllib.request.Request(url, body, method="GET" if change is None else "PUT")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["readOnly"]


@pytest.mark.parametrize("remembers", [True, False])
def test_a_process_remembers_what_was_switched_by_hand_if_it_is_to(remembers: bool, tmp_path: Path) -> None:
    with process(tmp_path, persistBookieStatusEnabled=remembers) as bookie:
        bookie.start()
        assert is_read_only(bookie, change=True)
        bookie.kill()
        status = tmp_path / "data/ledgers/current" / STATUS_FILE
        assert status.exists() is remembers
        bookie.start()
        assert is_read_only(bookie) is remembers
        assert not is_read_only(bookie, change=False)
        bookie.kill()
        bookie.start()
        assert not is_read_only(bookie)


def test_a_process_is_read_only_for_good_or_ends_rather_than_be_so(tmp_path: Path) -> None:
    with process(tmp_path, forceReadOnlyBookie=True) as bookie:
        bookie.start()
        assert is_read_only(bookie)
        bookie.terminate()
    full = {"diskUsageThreshold": 0.00001, "diskUsageWarnThreshold": 0.00001, "diskUsageLwmThreshold": 0.00001}
    with process(tmp_path, readOnlyModeEnabled=False, **full) as bookie:
        # it ends as soon as it has looked at its disk, which may be before it says that it serves
        try:
            bookie.start()
        except BookieStartError:
            pass
        else:
            while bookie.is_running:
                pass
        assert "would have to be read-only, and may not be (readOnlyModeEnabled)" in bookie.log_path.read_text()


# --------------------------------------------------------------------------------------------------------- registration


async def test_a_bookie_that_stood_still_past_its_session_is_registered_again(tmp_path: Path) -> None:
    async with EmbeddedZooKeeper() as zookeeper:
        uri = zookeeper.metadata_uri()
        options = ["--session-timeout-s", "1"]
        bookie = BookieProcess("b0", uri, tmp_path, bookie_id="b0", options=options)
        await asyncio.to_thread(bookie.start)
        store = await open_store(uri, rng=Random(2))

        async def until(sets: BookieSets) -> None:
            while await store.bookies() != sets:  # noqa: ASYNC110  what is watched elsewhere
                await asyncio.sleep(0.01)

        try:
            await until(BookieSets(("b0",)))
            bookie.pause()
            await until(BookieSets())
            bookie.resume()
            await until(BookieSets(("b0",)))
        finally:
            await store.aclose()
            await asyncio.to_thread(bookie.kill)
