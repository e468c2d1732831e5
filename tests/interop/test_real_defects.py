"""Defects of BookKeeper's bookies, shown on them, and one of its client; fences that bookies forget have tests of their own.

Every recipe is one of docs/reference/upstream-reports.md, or of an issue of BookKeeper's that the page of defects names. A bookie
that comes to do otherwise, in a version to come, fails its test: then the defect was mended.
"""

from __future__ import annotations

import asyncio
import re
import resource
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

import pytest

import bkclient
from bkclient import BookKeeper
from bkclient.ledger import DigestType
from bkclient.metadata.opening import open_store
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import LAST_ENTRY, AddRequest, LongPoll, ReadLacRequest, ReadRequest
from simbookie.storage.entry_logs.format import EntryLogHeader
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.changing_hands import DiskLayout, Place, inspected
from tests.interop.held import KEY, add, fence, lac_body, write_lac
from tests.interop.java_peer import JavaPeer
from tests.interop.raw import RawConnection, connected, status_of
from tests.interop.real_bookie import RealCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_SLOW_FLUSH: Final = {"flushInterval": "3600000"}
_PATIENCE_S: Final = 90.0
#: More than one interval between checkpoints.
_CHECKPOINTED_S: Final = 3.0
#: A logger of a log that was shut down already is not of the class that BookKeeper's loggers are made of.
_NO_LOGGER: Final = re.compile(r"ClassCastException.*SimpleLogger.*\n.*'addEntry'.*DirectEntryLogger")

NewBookie = Callable[..., Awaitable[Place]]


@pytest.fixture
async def new_bookie(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[NewBookie]:
    """Makes one real bookie of a layout, with further settings; it is not started yet, and nothing is in its folders."""
    places: list[Place] = []

    async def make(store: str, logs: str = "shared logs", settings: Mapping[str, str] | None = None) -> Place:
        place = Place.new(DiskLayout(store, logs), zookeeper, build, tmp_path_factory.mktemp("defect"), settings)
        places.append(place)
        await (await open_store(place.cluster.metadata_uri, rng=Random(1), initialise=True)).aclose()
        return place

    yield make
    for place in places:
        place.close()


async def restarted(place: Place, *, killed: bool = False, settings: Mapping[str, str] | None = None) -> None:
    """Stop the bookie in order, or kill it, and start it again, with other settings if there are any."""
    await asyncio.to_thread(place.kill if killed else place.end)
    if settings:
        place.configure(settings)
    await asyncio.to_thread(place.start_real)


async def explicit_lac(bookie: RawConnection, ledger_id: int) -> bytes:
    (answer,) = await bookie.ask(ReadLacRequest(ledger_id))
    return answer.readLacResponse.lacBody


def sized(ledger_id: int, entry_id: int, size: int) -> AddRequest:
    """The add of an entry whose payload has a size."""
    header = EntryCodec(ledger_id, DigestType.CRC32C, b"").encode_header(entry_id, -1, size, b"x" * size)
    return AddRequest(ledger_id, entry_id, KEY, header, b"x" * size)


async def ledger_of(place: Place) -> int:
    """A ledger with metadata, so that it is no garbage."""
    async with bkclient.connect(place.cluster.metadata_uri) as client:
        writer = await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
        return writer.ledger_id


async def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for something that has to come."""
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < _PATIENCE_S, f"waited in vain until {what}"
        await asyncio.sleep(0.1)


def logs_of(place: Place) -> list[Path]:
    found = [path for folder in place.ledgers for path in (folder / "current").glob("*.log") if path.stat().st_size]
    return sorted(found, key=lambda path: int(path.stem, 16))


# Explicit LACs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["Sorted", "Interleaved"])
async def test_an_explicit_lac_is_replaced_by_the_one_before_the_restart(new_bookie: NewBookie, store: str) -> None:
    """It is set in memory before the index file is opened, and opening the file reads the one of its header over it."""
    place = await new_bookie(store)
    await asyncio.to_thread(place.start_real)
    async with connected(place.port) as bookie:
        assert set(await bookie.statuses(add(1, 0), write_lac(1, 0), add(1, 1))) == {"EOK"}
        assert await explicit_lac(bookie, 1) == lac_body(1, 0)
    await restarted(place)
    await restarted(place)  # the first time may have left it to the replay to write the header
    async with connected(place.port) as bookie:
        assert await bookie.statuses(write_lac(1, 1)) == ["EOK"]
        assert await bookie.statuses(ReadRequest(1, 0)) == ["EOK"], "which opens the file"
        assert await explicit_lac(bookie, 1) == lac_body(1, 0), "the one that was acknowledged is 1"
        assert await bookie.statuses(write_lac(1, 1)) == ["EOK"], "now the file is open"
        assert await explicit_lac(bookie, 1) == lac_body(1, 1)


async def test_an_explicit_lac_in_a_journal_of_format_5_is_acknowledged_and_not_kept(
    new_bookie: NewBookie,
) -> None:
    place = await new_bookie(
        "Sorted", settings={"journalFormatVersionToWrite": "5", "fileInfoFormatVersionToWrite": "0"}
    )
    await asyncio.to_thread(place.start_real)
    async with connected(place.port) as bookie:
        assert await bookie.statuses(add(1, 0), write_lac(1, 0), add(1, 1)) == ["EOK"] * 3
        assert await explicit_lac(bookie, 1) == lac_body(1, 0)
    await restarted(place, killed=True)
    async with connected(place.port) as bookie:
        assert await bookie.statuses(ReadRequest(1, 1)) == ["EOK"]
        assert await explicit_lac(bookie, 1) == b""


@pytest.mark.parametrize(("store", "asked"), [("Sorted", 2), ("Db", 3)])
async def test_an_explicit_lac_counts_for_nothing_after_a_restart(
    new_bookie: NewBookie, store: str, asked: int
) -> None:
    """So the LAC that a bookie knows falls when it is started again, though it has the explicit one.

    With a database it counts again once somebody has asked for it, with index files not even then.
    """
    poll = ReadRequest(1, 3, long_poll=LongPoll(2, 3000))
    place = await new_bookie(store)
    await asyncio.to_thread(place.start_real)
    async with connected(place.port) as bookie:
        assert (
            await bookie.statuses(*(add(1, number) for number in range(4)), write_lac(1, 3), add(2, 0)) == ["EOK"] * 6
        )
        (before,) = await bookie.ask(poll)
        assert before.readResponse.maxLAC == 3
    await restarted(place)
    async with connected(place.port) as bookie:
        (after,) = await bookie.ask(poll)
        assert after.readResponse.maxLAC == 2
        assert await explicit_lac(bookie, 1) == lac_body(1, 3)
        (at_last,) = await bookie.ask(poll)
        assert at_last.readResponse.maxLAC == asked


# Long polls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["Sorted", "Db"])
async def test_a_long_poll_is_forgotten_at_an_update_that_tells_it_nothing(new_bookie: NewBookie, store: str) -> None:
    """It names a LAC that the bookie has not heard of. When it does, the poll is taken from the waiters, and not answered."""
    wait_ms = 3000
    place = await new_bookie(store)
    await asyncio.to_thread(place.start_real)
    async with connected(place.port) as bookie, connected(place.port) as writing:
        assert await writing.statuses(add(1, 0)) == ["EOK"]
        # The first poll names LAC 0, which comes with entry 1; the second LAC 1, which is known since entry 2.
        for previous_lac, entries, is_forgotten in ((0, (1, 2), True), (1, (3,), False)):
            poll = ReadRequest(1, LAST_ENTRY, long_poll=LongPoll(previous_lac, wait_ms, piggyback=True))
            began = time.monotonic()
            polling = asyncio.create_task(bookie.ask(poll))
            await asyncio.sleep(0.5)
            assert not polling.done()
            assert set(await writing.statuses(*(add(1, number) for number in entries))) == {"EOK"}
            (answer,) = await polling
            assert answer.readResponse.maxLAC == previous_lac + 1
            assert (time.monotonic() - began >= wait_ms / 1000 - 0.1) == is_forgotten


# Write caches ----------------------------------------------------------------------------------------------------------


async def test_an_entry_that_does_not_fit_takes_the_room_of_those_that_would(
    new_bookie: NewBookie,
) -> None:
    """Half of 2 MiB is one write cache. Without the big entry the small one fits; none of them waits for a flush."""
    place = await new_bookie("Db", settings={**_SLOW_FLUSH, "dbStorage_maxThrottleTimeMs": "0"})
    await asyncio.to_thread(place.start_real)
    async with connected(place.port) as bookie:
        filling = [sized(1, number, 100_000) for number in range(9)]
        assert set(await bookie.statuses(*filling)) == {"EOK"}
        assert await bookie.statuses(sized(1, 9, 1000)) == ["EOK"], "there is room for small ones"
        refused = await bookie.statuses(sized(1, 10, 400_000), *(sized(1, 11 + n, 1000) for n in range(3)))
    assert refused[0] == "ETOOMANYREQUESTS"
    assert "ETOOMANYREQUESTS" in refused[1:], refused


async def test_a_replay_that_waits_for_room_longer_than_an_add_may_ends_the_start(
    new_bookie: NewBookie,
) -> None:
    """A flush of one cache has to take longer than an add may wait; here an add may wait for no time at all."""
    place = await new_bookie("Db", settings={**_SLOW_FLUSH, "dbStorage_writeCacheMaxSizeMb": "16"})
    await asyncio.to_thread(place.start_real)
    async with connected(place.port) as bookie:
        assert set(await bookie.statuses(*(sized(1, number, 100_000) for number in range(60)))) == {"EOK"}
    await asyncio.to_thread(place.kill)
    place.configure({"dbStorage_writeCacheMaxSizeMb": "1", "dbStorage_maxThrottleTimeMs": "0"})
    real = place.cluster.bookies[0]
    await asyncio.to_thread(place.cluster.wait_unregistered, real.bookie_id)
    real.spawn()
    gives_up = re.compile(r"Exception while replaying journals, shutting down.*\n.*OperationRejectedException")
    await until(lambda: bool(gives_up.search(real.log_path.read_text(errors="replace"))), "it gives up")
    real.kill()


# Entry logs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logs", "before", "within"),
    [("direct logs", "ENOENTRY", "EOK"), ("shared logs", "EIO", "EIO")],
    ids=["direct", "default"],
)
async def test_a_direct_log_that_ends_early_denies_entries(
    new_bookie: NewBookie, logs: str, before: str, within: str
) -> None:
    """Where it ends before an entry, the entry is denied; where it ends within one, the rest of it is made up."""
    place = await new_bookie("Db", logs)
    await asyncio.to_thread(place.start_real)
    async with connected(place.port) as bookie:
        assert set(await bookie.statuses(*(sized(1, number, 5000) for number in range(20)))) == {"EOK"}
    await restarted(place)  # whatever the journal had is in a log now
    await asyncio.sleep(_CHECKPOINTED_S)
    await asyncio.to_thread(place.end)
    path = logs_of(place)[-1]
    last = max(inspected("log", str(path))["entries"], key=lambda row: row["entry"])
    assert last["entry"] == 19
    for size, expected in ((last["position"] + 100, within), (last["position"] - 4, before)):
        with path.open("r+b") as file:
            file.truncate(size)
        await asyncio.to_thread(place.start_real)
        async with connected(place.port) as bookie:
            (answer,) = await bookie.ask(ReadRequest(1, 19))
            assert status_of(answer) == expected
            assert answer.readResponse.body != sized(1, 19, 5000).body
        await asyncio.to_thread(place.kill)


async def test_a_direct_log_whose_map_a_kill_kept_from_being_written_is_removed(
    new_bookie: NewBookie,
) -> None:
    """The header of a log is submitted to the device before the ledgers map that it tells of. Here is what lies between."""
    place = await new_bookie("Db", "direct logs", {"gcWaitTime": "1000"})
    await asyncio.to_thread(place.start_real)
    ledger_id = await ledger_of(place)
    async with connected(place.port) as bookie:
        assert set(await bookie.statuses(*(add(ledger_id, number) for number in range(20)))) == {"EOK"}
    await asyncio.sleep(_CHECKPOINTED_S)
    await asyncio.to_thread(place.end)
    (path,) = logs_of(place)
    header = EntryLogHeader.decode(path.read_bytes()[:1024])
    assert set(inspected("log", str(path))["ledgers"]) == {str(ledger_id)}
    size = path.stat().st_size
    with path.open("r+b") as file:  # as a kill between the two writes leaves it
        file.seek(header.map_offset)
        file.write(bytes(size - header.map_offset))
    await asyncio.to_thread(place.start_real)
    await until(lambda: not path.exists(), "the log is removed")
    async with connected(place.port) as bookie:
        assert await bookie.statuses(ReadRequest(ledger_id, 3)) == ["EIO"], "acknowledged, durable, and gone"


async def test_an_orderly_stop_loses_what_is_not_in_a_direct_log_yet(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SIGTERM, and Log4j's own shutdown, which is on by default, side by side with the bookie's.

    The flush writes no entry log, because a logger that is asked for then is none that BookKeeper can use, and the mark moves
    behind the entries all the same. Which of the two comes first is a matter of chance, though it was never seen to be the
    bookie; so there are some attempts.
    """
    loses = not build.version.startswith("4.17.")
    found, thrown = [], ""
    for attempt in range(3):
        directory = tmp_path_factory.mktemp(f"orderly-{attempt}")
        layout = DiskLayout("Db", "direct logs")
        told = replace(build, log_ends_first=True, exceptions_file=str(directory / "exceptions-%p"))
        place = Place.new(layout, zookeeper, told, directory, _SLOW_FLUSH)
        try:
            await (await open_store(place.cluster.metadata_uri, rng=Random(1), initialise=True)).aclose()
            await asyncio.to_thread(place.start_real)
            async with connected(place.port) as bookie:
                assert set(await bookie.statuses(*(sized(1, number, 5000) for number in range(20)))) == {"EOK"}
            await restarted(place)
            async with connected(place.port) as bookie:
                found.append(set(await bookie.statuses(*(ReadRequest(1, number) for number in range(20)))))
        finally:
            place.close()
        thrown = "".join(file.read_text(errors="replace") for file in directory.glob("exceptions-*"))
        if not loses or found[-1] != {"EOK"}:
            break
    assert found[-1] == ({"ENOLEDGER"} if loses else {"EOK"}), found
    assert bool(_NO_LOGGER.search(thrown)) is loses


async def test_an_interrupted_compaction_of_log_16_never_ends(new_bookie: NewBookie) -> None:
    """Names of logs are hexadecimal. What a compaction into log 16 left is given the name of log 22, and looked for as 16."""
    place = await new_bookie("Sorted", settings={"gcWaitTime": "1000", "useTransactionalCompaction": "true"})
    await asyncio.to_thread(place.start_real)
    ledger_id = await ledger_of(place)
    async with connected(place.port) as bookie:
        assert set(await bookie.statuses(*(add(ledger_id, number) for number in range(40)))) == {"EOK"}
    await asyncio.to_thread(place.end)
    (source,) = logs_of(place)
    left = source.with_name(f"10.log.{source.stem}.compacted")
    left.write_bytes(source.read_bytes())  # every entry was live, and was moved
    log = place.cluster.bookies[0].log_path
    begun = log.stat().st_size
    await asyncio.to_thread(place.start_real)
    await until(
        lambda: log.read_text(errors="replace")[begun:].count("FileNotFoundException: No file for log 10\n") > 2,
        "it has been tried in several runs",
    )
    assert left.exists()
    assert source.with_name("16.log").exists(), "16 in decimal, which is the log 22"
    assert not source.with_name("10.log").exists()


@pytest.mark.timeout(300)
async def test_a_write_that_failed_half_way_shifts_the_entries_after_it(new_bookie: NewBookie) -> None:
    """A limit on the size of files makes one write end half-way and the next one fail, as a disk does that is full a while."""
    settings = {**_SLOW_FLUSH, "logSizeLimit": str(1 << 30), "journalPreAllocSizeMB": "1"}
    place = await new_bookie("Interleaved", settings=settings)
    await asyncio.to_thread(place.start_real)
    pid = place.cluster.bookies[0].pid
    assert pid is not None
    statuses: list[str] = []
    async with connected(place.port) as bookie:

        async def some_more(count: int) -> list[str]:
            first = len(statuses)
            statuses.extend(await bookie.statuses(*(sized(1, first + n, 5000) for n in range(count))))
            return statuses[first:]

        while not logs_of(place) or logs_of(place)[0].stat().st_size < 3_000_000:
            assert set(await some_more(100)) == {"EOK"}
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (logs_of(place)[0].stat().st_size + 20_000, limits[1]))
        while (await some_more(1)) == ["EOK"]:
            pass
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        assert "EOK" in await some_more(50)
    assert statuses.count("EIO") < 5
    await restarted(place)
    async with connected(place.port) as bookie:
        found = await bookie.statuses(*(ReadRequest(1, number) for number in range(len(statuses))))
    lost = [number for number, status in enumerate(statuses) if status == "EOK" and found[number] != "EOK"]
    assert len(lost) > 10, "acknowledged, and not there any more"
    assert {found[number] for number in lost} == {"EIO"}


# Starts and garbage ----------------------------------------------------------------------------------------------------


async def test_the_first_collection_of_garbage_comes_after_two_intervals(new_bookie: NewBookie) -> None:
    interval_s = 6.0
    place = await new_bookie("Sorted", settings={"gcWaitTime": str(int(interval_s * 1000))})
    await asyncio.to_thread(place.start_real)
    begun = time.monotonic()
    async with connected(place.port) as bookie:
        assert await bookie.statuses(add(404, 0)) == ["EOK"], "a ledger without metadata is garbage"
        while (await bookie.statuses(ReadRequest(404, 0))) == ["EOK"]:
            assert time.monotonic() - begun < _PATIENCE_S
            await asyncio.sleep(0.2)
    assert time.monotonic() - begun > 1.5 * interval_s


async def test_a_bookie_that_lost_its_disk_takes_a_late_add_to_a_closed_ledger(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its data-integrity check copies the entries of the ledger and does not fence it."""
    settings = {
        **DiskLayout("Db", "shared logs").settings,
        "dataIntegrityChecking": "true",
        "dataIntegrityStampMissingCookies": "true",
    }
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("emptied"), settings) as cluster:
        await asyncio.to_thread(cluster.start, 2)
        async with bkclient.connect(cluster.metadata_uri) as client:
            async with await client.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2) as writer:
                for number in range(5):
                    await writer.append(b"%d" % number)
            ledger_id = writer.ledger_id
            emptied = cluster.bookies[0]
            async with connected(emptied.port) as bookie:
                assert await bookie.statuses(fence(ledger_id)) == ["EOK"]
                assert await bookie.statuses(add(ledger_id, 5)) == ["EFENCED"]
            emptied.kill()
            for folder in ("journal", "ledgers"):
                shutil.rmtree(emptied.configuration.parent / folder)
            await asyncio.to_thread(cluster.restart, emptied)
            async with connected(emptied.port) as bookie:
                begun = time.monotonic()
                while set(await bookie.statuses(*(ReadRequest(ledger_id, n) for n in range(5)))) != {"EOK"}:
                    assert time.monotonic() - begun < _PATIENCE_S, "the entries were not copied"
                    await asyncio.sleep(0.2)
                assert await bookie.statuses(add(ledger_id, 5)) == ["EOK"]


async def ledger_whose_last_entry_one_bookie_has(python: BookKeeper) -> int:
    """Entries 0 and 1 of 40 bytes on both bookies, acknowledged; entry 2, which tells LAC 1, on the second one alone."""
    writer = await python.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)
    for _ in range(2):
        await writer.append(bytes(40))
    codec = EntryCodec(writer.ledger_id, DigestType.CRC32C, b"")
    last = AddRequest(writer.ledger_id, 2, codec.master_key, codec.encode_header(2, 1, 120, bytes(40)), bytes(40))
    second = writer.metadata.last_fragment.ensemble[1]
    async with connected(int(second.rsplit(":", 1)[1])) as bookie:
        assert await bookie.statuses(last) == ["EOK"]
    return writer.ledger_id


async def test_a_recovery_by_java_closes_with_the_length_of_an_entry_that_it_cuts_off(
    python: BookKeeper, java: JavaPeer
) -> None:
    ends = set[tuple[int, int]]()
    while (1, 120) not in ends:  # as long as the bookie that lacks entry 2 has been the first to answer
        opened = await java("open", await ledger_whose_last_entry_one_bookie_has(python))
        ends.add((opened["lac"], opened["length"]))
    assert ends <= {(1, 120), (1, 80)}, "entries 0 and 1 have 80 bytes"

    for _ in range(5):
        reader = await python.open_ledger(await ledger_whose_last_entry_one_bookie_has(python), recover=True)
        assert reader.length == 40 * (reader.last_add_confirmed + 1), "ours reads the length from the entry at the end"
