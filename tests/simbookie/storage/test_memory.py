"""The storage in memory: what is readable, what survives, how space is counted."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode, CrashReport, LedgerInfo, LedgerStorage, NoSpace, StorageError
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog

Virtually = Callable[[Callable[[], Any]], None]
SLOW = JournalConfig(group_wait_max_s=0.001, sync_latency_s=0.010)


def body(ledger_id: int, entry_id: int, lac: int = -1, payload: bytes = b"") -> bytes:
    return struct.pack(">qqqq", ledger_id, entry_id, lac, 0) + payload


def opened(
    disk: RecordLog | None, journal: JournalConfig | None = None, spaces: list[bool] | None = None, **settings: Any
) -> MemoryStorage:
    settings = {"ledger_bytes": 0, **settings}
    storage = MemoryStorage(MemoryStorageConfig(journal=journal or JournalConfig(), **settings), disk)
    started: list[bool] = []
    storage.open(lambda: started.append(True), (spaces if spaces is not None else []).append)
    assert started == [True]
    return storage


def ignore(_token: object, _error: object) -> None:
    pass


def read(storage: LedgerStorage, ledger_id: int, entry_id: int) -> bytes | None:
    found: list[bytes | None] = []

    def on_read(token: object, body: bytes | None, error: StorageError | None) -> None:
        assert error is None
        found.append(body)

    storage.read_entry(ledger_id, entry_id, on_read, None)
    return found[0]


@pytest.mark.rule("BK-23")
@pytest.mark.parametrize("mode", list(CrashMode))
def test_everything_synced_survives_a_crash(virtually: Virtually, mode: CrashMode) -> None:
    async def story() -> None:
        disk = RecordLog()
        storage = opened(disk, SLOW)
        storage.set_master_key(1, b"key")
        storage.add_entry(1, 0, body(1, 0, lac=-1), None, None)
        storage.add_entry(1, 1, body(1, 1, lac=0), None, None)
        storage.set_explicit_lac(1, 7, b"packet", lambda *_: None, None)
        storage.fence(1, lambda *_: None, None)
        storage.set_limbo(2, in_limbo=True)
        await asyncio.sleep(1)
        assert storage.crash(mode) == CrashReport()
        again = opened(disk)
        assert again.ledger_ids() == [1, 2]
        assert again.ledger(1) == LedgerInfo(b"key", fenced=True, in_limbo=False, lac=7)
        assert again.ledger(2) == LedgerInfo(None, fenced=False, in_limbo=True, lac=-1)
        assert again.explicit_lac(1) == b"packet"
        assert [read(again, 1, 0), read(again, 1, -1)] == [body(1, 0, -1), body(1, 1, 0)]

    virtually(story)


@pytest.mark.rule("BK-23")
@pytest.mark.parametrize(("mode", "survives"), [(CrashMode.PROCESS, True), (CrashMode.POWER_LOSS, False)])
def test_what_was_written_but_not_synced_survives_a_process_crash_only(
    virtually: Virtually, mode: CrashMode, survives: bool
) -> None:
    async def story() -> None:
        disk = RecordLog()
        storage = opened(disk, SLOW)
        storage.set_master_key(1, b"key")
        storage.add_entry(1, 0, body(1, 0), None, None)
        await asyncio.sleep(0.005)
        storage.crash(mode)
        again = opened(disk)
        assert (again.ledger(1) is not None) is survives
        again.crash(CrashMode.POWER_LOSS)
        assert (opened(disk).ledger(1) is not None) is survives, "what was replayed counts as durable"

    virtually(story)


def test_without_a_disk_a_crash_loses_everything_and_says_so(virtually: Virtually) -> None:
    async def story() -> None:
        storage = opened(None)
        storage.set_master_key(1, b"key")
        storage.add_entry(1, 0, body(1, 0), None, None)
        storage.fence(1, lambda *_: None, None)
        await asyncio.sleep(1)
        assert storage.crash(CrashMode.PROCESS) == CrashReport(entries_lost=((1, 0),), fences_lost=(1,))

    virtually(story)


@pytest.mark.parametrize(("journal", "durable"), [(JournalConfig(), True), (JournalConfig(sync_enabled=False), False)])
def test_the_storage_says_whether_its_acknowledgements_are_durable(journal: JournalConfig, durable: bool) -> None:
    assert MemoryStorage(MemoryStorageConfig(journal=journal)).acks_are_durable is durable


@pytest.mark.rule("BK-23")
@pytest.mark.parametrize("clean", [True, False])
def test_without_journalled_entries_only_an_orderly_shutdown_saves_them(virtually: Virtually, clean: bool) -> None:
    async def story() -> None:
        disk = RecordLog()
        journal = JournalConfig(group_wait_max_s=0.001, sync_latency_s=0.010, entries_enabled=False)
        storage = opened(disk, journal)
        assert not storage.acks_are_durable
        acked: list[float] = []
        storage.set_master_key(1, b"key")
        storage.fence(1, lambda *_: None, None)
        storage.add_entry(1, 0, body(1, 0), lambda *_: acked.append(asyncio.get_running_loop().time()), None)
        await asyncio.sleep(1)
        assert acked == [0.0]
        if clean:
            closed = asyncio.Event()
            storage.shutdown(closed.set)
            await closed.wait()
        else:
            assert storage.crash(CrashMode.PROCESS).entries_lost == ((1, 0),)
        again = opened(disk)
        info = again.ledger(1)
        assert info is not None
        assert info.fenced
        assert read(again, 1, 0) == (body(1, 0) if clean else None)

    virtually(story)


# ------------------------------------------------------------------------------------------------------------------ space


def test_a_duplicate_replaces_the_copy_and_its_bytes(virtually: Virtually) -> None:
    async def story() -> None:
        storage = opened(None, capacity_bytes=1000)
        storage.set_master_key(1, b"")
        storage.add_entry(1, 0, body(1, 0, payload=b"x" * 100), None, None)
        storage.add_entry(1, 0, body(1, 0, payload=b"x" * 10), None, None)
        assert storage.capacity().free == 1000 - 42

    virtually(story)


@pytest.mark.rule("BK-8")
def test_crossing_the_threshold_is_reported_once_and_again_when_there_is_space(virtually: Virtually) -> None:
    async def story() -> None:
        spaces: list[bool] = []
        storage = opened(None, spaces=spaces, capacity_bytes=1000, full_above=0.5, writable_below=0.2)
        for ledger_id in (1, 2):
            storage.set_master_key(ledger_id, b"")
        storage.add_entry(1, 0, bytes(300), None, None)
        storage.add_entry(2, 0, bytes(200), None, None)
        assert spaces == [], "exactly at the threshold is not above it"
        storage.add_entry(2, 1, bytes(1), None, None)
        storage.add_entry(2, 2, bytes(1), None, None)
        assert spaces == [True]
        storage.delete_ledger(1)
        assert spaces == [True], "202 bytes are still above the lower threshold"
        storage.delete_ledger(2)
        assert spaces == [True, False]
        assert storage.capacity().free == storage.capacity().total == 1000

    virtually(story)


@pytest.mark.rule("BK-8")
def test_an_entry_that_does_not_fit_is_refused_and_leaves_no_trace(virtually: Virtually) -> None:
    async def story() -> None:
        disk = RecordLog()
        storage = opened(disk, capacity_bytes=100)
        storage.set_master_key(1, b"")
        storage.add_entry(1, 0, bytes(100), None, None)
        with pytest.raises(NoSpace):
            storage.add_entry(1, 1, bytes(1), None, None)
        assert storage.entry_ids(1) == [0]
        await asyncio.sleep(1)
        storage.crash(CrashMode.PROCESS)
        spaces: list[bool] = []
        again = opened(disk, spaces=spaces, capacity_bytes=100)
        assert again.entry_ids(1) == [0]
        assert spaces == [True], "a full disk is full after a restart as well"

    virtually(story)


@pytest.mark.rule("BK-33")
def test_keys_lacs_and_ledgers_take_space_like_entries(virtually: Virtually) -> None:
    async def story() -> None:
        spaces: list[bool] = []
        storage = opened(None, spaces=spaces, capacity_bytes=1000, ledger_bytes=100)
        storage.set_master_key(1, bytes(20))
        storage.set_limbo(2, in_limbo=True)
        assert storage.capacity().free == 1000 - 120 - 100
        storage.set_explicit_lac(1, 5, bytes(50), ignore, None)
        storage.set_explicit_lac(1, 6, bytes(30), ignore, None)
        storage.set_master_key(2, bytes(10))
        assert storage.capacity().free == 1000 - 150 - 110
        with pytest.raises(NoSpace):
            storage.set_master_key(3, bytes(641))
        with pytest.raises(NoSpace):
            storage.set_explicit_lac(1, 7, bytes(771), ignore, None)
        assert (storage.ledger(3), storage.explicit_lac(1)) == (None, bytes(30))
        storage.set_master_key(3, bytes(640))
        assert (storage.capacity().free, spaces) == (0, [True])
        for ledger_id in (1, 2, 3):
            storage.delete_ledger(ledger_id)
        assert (storage.capacity().free, spaces) == (1000, [True, False])

    virtually(story)


@pytest.mark.rule("BK-33")
@pytest.mark.parametrize("seed", range(20))
def test_space_in_use_is_the_sum_of_what_is_kept_also_after_a_restart(virtually: Virtually, seed: int) -> None:
    rng, disk = Random(seed), RecordLog()

    def kept(storage: MemoryStorage) -> int:
        infos = {ledger_id: storage.ledger(ledger_id) for ledger_id in storage.ledger_ids()}
        return sum(
            100 + len((info.master_key if info else None) or b"") + len(storage.explicit_lac(ledger_id) or b"")
            + sum(len(read(storage, ledger_id, entry_id) or b"") for entry_id in storage.entry_ids(ledger_id))
            for ledger_id, info in infos.items()
        )  # fmt: skip

    async def story() -> None:
        storage = opened(disk, capacity_bytes=10_000, ledger_bytes=100)
        for step in range(300):
            ledger_id = rng.randrange(6)
            info = storage.ledger(ledger_id)
            if info is None or info.master_key is None:
                if rng.random() < 0.3:
                    storage.set_limbo(ledger_id, in_limbo=rng.random() < 0.5)
                else:
                    with suppress(NoSpace):
                        storage.set_master_key(ledger_id, bytes(rng.randrange(100)))
            elif rng.random() < 0.1:
                storage.delete_ledger(ledger_id)
            elif rng.random() < 0.3:
                with suppress(NoSpace):
                    storage.set_explicit_lac(ledger_id, step, bytes(rng.randrange(16, 300)), ignore, None)
            else:
                with suppress(NoSpace):
                    storage.add_entry(ledger_id, rng.randrange(9), bytes(rng.randrange(24, 900)), None, None)
            assert storage.capacity().free == max(0, 10_000 - kept(storage)), "an operator may go beyond"
        await asyncio.sleep(1)
        storage.crash(CrashMode.PROCESS)
        again = opened(disk, capacity_bytes=10_000, ledger_bytes=100)
        assert again.capacity().free == max(0, 10_000 - kept(again))

    virtually(story)


def test_deleted_ledgers_stay_deleted_and_leave_the_log(virtually: Virtually) -> None:
    async def story() -> None:
        disk = RecordLog()
        storage = opened(disk)
        for ledger_id in (1, 2):
            storage.set_master_key(ledger_id, b"key")
            for entry_id in range(10):
                storage.add_entry(ledger_id, entry_id, body(ledger_id, entry_id), None, None)
        await asyncio.sleep(0)
        assert len(disk) == 22
        storage.delete_ledger(1)
        storage.delete_ledger(2)
        storage.set_master_key(2, b"another key")
        storage.add_entry(2, 3, body(2, 3), None, None)
        await asyncio.sleep(1)
        assert len(disk) < 10
        storage.crash(CrashMode.POWER_LOSS)
        again = opened(disk)
        assert again.ledger_ids() == [2]
        assert again.entry_ids(2) == [3]
        assert again.ledger(2) == LedgerInfo(b"another key", lac=-1)

    virtually(story)


def test_a_wiped_disk_replays_nothing(virtually: Virtually) -> None:
    async def story() -> None:
        disk = RecordLog()
        storage = opened(disk)
        storage.set_master_key(1, b"key")
        await asyncio.sleep(1)
        storage.crash(CrashMode.PROCESS)
        disk.wipe()
        assert opened(disk).ledger_ids() == []

    virtually(story)


@pytest.mark.parametrize(
    "settings", [{"capacity_bytes": -1}, {"full_above": 1.5}, {"full_above": 0.5, "writable_below": 0.6}]
)
def test_impossible_limits_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="storage"):
        MemoryStorageConfig(**settings)


# ------------------------------------------------------------------------------------------------------ any sequence

_step = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 3), st.integers(0, 4), st.binary(max_size=4)),
    st.tuples(st.just("fence"), st.integers(1, 3), st.just(0), st.just(b"")),
    st.tuples(st.just("lac"), st.integers(1, 3), st.integers(0, 4), st.binary(max_size=4)),
    st.tuples(st.just("delete"), st.integers(1, 3), st.just(0), st.just(b"")),
    st.tuples(st.just("sleep"), st.just(0), st.integers(0, 12), st.just(b"")),
)


def snapshot(storage: MemoryStorage) -> dict[int, Any]:
    return {
        ledger_id: (
            storage.ledger(ledger_id),
            storage.explicit_lac(ledger_id),
            {entry_id: read(storage, ledger_id, entry_id) for entry_id in storage.entry_ids(ledger_id)},
        )
        for ledger_id in storage.ledger_ids()
    }


@pytest.mark.rule("BK-23")
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(_step, max_size=25), mode=st.sampled_from(CrashMode))
def test_a_crash_leaves_exactly_a_prefix_of_what_was_done_that_includes_everything_confirmed(
    virtually: Virtually, steps: list[tuple[str, int, int, bytes]], mode: CrashMode
) -> None:
    async def apply(storage: MemoryStorage, step: tuple[str, int, int, bytes], on_durable: Callable[..., None]) -> None:
        action, ledger_id, number, payload = step
        if action == "sleep":
            await asyncio.sleep(number / 1000)
            return
        known = storage.ledger(ledger_id) is not None
        if action == "delete":
            if known:
                storage.delete_ledger(ledger_id)
            return
        if not known:
            storage.set_master_key(ledger_id, b"key")
        if action == "add":
            storage.add_entry(ledger_id, number, body(ledger_id, number, -1, payload), on_durable, None)
        elif action == "fence":
            storage.fence(ledger_id, on_durable, None)
        else:
            storage.set_explicit_lac(ledger_id, -1, payload, on_durable, None)

    async def story() -> None:
        disk, confirmed = RecordLog(), [0]
        storage = opened(disk, SLOW)
        states = [snapshot(storage)]
        for index, step in enumerate(steps, start=1):
            await apply(storage, step, lambda *_, index=index: confirmed.append(index))
            states.append(snapshot(storage))
        assert confirmed == sorted(confirmed)
        storage.crash(mode)
        survived = snapshot(opened(disk))
        # a step may be half done: the key is journalled before what needed it
        bare_keys = {
            ledger_id: info for ledger_id, info in survived.items() if info[1:] == (None, {}) and not info[0].fenced
        }
        without = {ledger_id: info for ledger_id, info in survived.items() if ledger_id not in bare_keys}
        assert any(state in (survived, without) for state in states[confirmed[-1] :])

    virtually(story)
