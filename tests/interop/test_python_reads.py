"""Every way in which the Python client reads, as a reader and as the writer, on Apache BookKeeper's own bookies."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bkclient import AdvancedLedgerWriter, BookKeeper, Entry, EntryResult, LedgerReader, LedgerReads, LedgerWriter
from bkclient.errors import (
    BookKeeperError,
    IllegalOperation,
    NoSuchEntry,
    NoSuchLedgerOnBookie,
    ReadFailed,
    RequestTimeout,
)
from bkclient.repair.admin import core_of
from tests.interop.conftest import ClientFactory, Note
from tests.interop.java_peer import JavaError, JavaPeer, pattern
from tests.interop.real_bookie import RealCluster
from tests.interop.test_python_client import written

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

Handle = LedgerReader | LedgerWriter | AdvancedLedgerWriter


def reads(handle: Handle) -> LedgerReads | LedgerReader:
    return handle if isinstance(handle, LedgerReader) else handle.reader


COUNT = 20
LAST = COUNT - 1
HOLE = 7
NO_SUCH_ENTRY, NO_SUCH_LEDGER = -13, -7
STRIPED: dict[str, Any] = {"ensemble_size": 3, "write_quorum_size": 2, "ack_quorum_size": 2}
UNSTRIPED: dict[str, Any] = {"ensemble_size": 2, "write_quorum_size": 2, "ack_quorum_size": 2}

Shown = tuple[int, int, bytes, int]


def shown(entry: Entry) -> Shown:
    """What an entry is; and that it cannot have known of its own confirmation."""
    assert entry.last_add_confirmed < entry.entry_id
    return entry.ledger_id, entry.entry_id, entry.payload, entry.ledger_length


def whole(ledger_id: int, count: int = COUNT) -> list[Shown]:
    """The pattern entries of a ledger, each with the length of the ledger up to it."""
    payloads = [pattern(entry_id) for entry_id in range(count)]
    return [(ledger_id, i, payload, sum(map(len, payloads[: i + 1]))) for i, payload in enumerate(payloads)]


async def open_writer(client: BookKeeper, count: int = COUNT, **options: Any) -> LedgerWriter:
    """The writer of ``count`` pattern entries, all acknowledged; the last of them tells so of the others."""
    writer = await client.create_ledger(**(STRIPED | options))
    for entry_id in range(count - 1):
        writer.append_nowait(pattern(entry_id))
    await writer.flush()
    await writer.append(pattern(count - 1))
    return writer


async def open_advanced_writer(client: BookKeeper, count: int = COUNT, **options: Any) -> AdvancedLedgerWriter:
    """The same with given ids, in order: an entry's length tells of what was appended before it, whatever the ids."""
    writer = await client.create_advanced_ledger(**(STRIPED | options))
    for entry_id in range(count - 1):
        await writer.wait_for_room(entry_id)
        writer.append_nowait(entry_id, pattern(entry_id))
    await writer.flush()
    await writer.append(count - 1, pattern(count - 1))
    return writer


async def closed_reader(client: BookKeeper, **options: Any) -> LedgerReader:
    return await client.open_ledger(await written(client, COUNT, **(STRIPED | options)), recover=True)


async def open_reader(client: BookKeeper, **options: Any) -> LedgerReader:
    """The reader of a ledger still written to, whose last entry but one is known to be confirmed."""
    writer = await open_writer(client, COUNT + 1, **options)
    return await client.open_ledger(writer.ledger_id, recover=False)


HANDLES: dict[str, Callable[..., Any]] = {
    "reader": closed_reader,
    "reader-of-open": open_reader,
    "writer": open_writer,
    "advanced-writer": open_advanced_writer,
}
every_handle = pytest.mark.parametrize("make", HANDLES.values(), ids=HANDLES)


@pytest.mark.matrix("confirmed reads: one, a range, all at once, each by itself, the last")
@every_handle
@pytest.mark.parametrize("parallel", [False, True], ids=["one-by-one", "parallel"])
async def test_confirmed_reads(python: BookKeeper, make: Callable[..., Any], parallel: bool) -> None:
    handle: Handle = await make(python)
    everything = whole(handle.ledger_id)
    assert handle.last_add_confirmed == LAST

    assert [shown(await reads(handle).read(entry_id, parallel=parallel)) for entry_id in range(COUNT)] == everything
    assert [shown(entry) async for entry in reads(handle).read_range(3, 11, parallel=parallel)] == everything[3:12]
    entries = await reads(handle).read_entries(0, LAST, parallel=parallel)
    assert [shown(entry) for entry in entries] == everything
    assert (entries.first_entry_id, entries.last_entry_id, shown(entries.entry(9))) == (0, LAST, everything[9])
    results = [result async for result in reads(handle).read_results(0, LAST, parallel=parallel)]
    assert [(each.entry_id, each.error) for each in results] == [(entry_id, None) for entry_id in range(COUNT)]
    assert [shown(each.entry) for each in results if each.entry is not None] == everything
    assert shown(await reads(handle).read_last_entry()) == everything[LAST]


@pytest.mark.matrix("confirmed reads end at the last add confirmed")
@every_handle
async def test_confirmed_reads_go_no_further(python: BookKeeper, make: Callable[..., Any]) -> None:
    handle: Handle = await make(python)
    for entry_id in (COUNT, COUNT + 1):
        for refused in (
            reads(handle).read(entry_id),
            reads(handle).read_entries(0, entry_id),
            reads(handle).read_batch(entry_id),
        ):
            with pytest.raises(ReadFailed):
                await refused
        with pytest.raises(ReadFailed):
            reads(handle).read_range(0, entry_id)
        with pytest.raises(ReadFailed):
            reads(handle).read_results(0, entry_id)


@pytest.mark.matrix("an empty ledger has nothing to read, for either client")
async def test_an_empty_ledger(python: BookKeeper, java: JavaPeer) -> None:
    writer = await python.create_ledger()
    advanced = await python.create_advanced_ledger()
    reader = await python.open_ledger(writer.ledger_id, recover=False)
    handles: list[Handle] = [writer, advanced, reader, await python.open_ledger(await written(python, 0), recover=True)]
    for each in handles:
        handle: Handle = each
        assert (handle.last_add_confirmed, handle.length) == (-1, 0)
        assert await reads(handle).read_last_add_confirmed() == -1
        assert await reads(handle).try_read_last_add_confirmed() == -1
        with pytest.raises(NoSuchEntry):
            await reads(handle).read_last_entry()
        with pytest.raises(NoSuchLedgerOnBookie):  # as Java says below: its bookies have nothing at all of it
            await reads(handle).read(0, unconfirmed=True)
        with pytest.raises(ReadFailed):
            await reads(handle).read(0)
    await java("open", writer.ledger_id, recover=False)
    with pytest.raises(JavaError) as denied:
        await java.payloads(writer.ledger_id, first=0, last=0, how="unconfirmed")
    assert denied.value.code == NO_SUCH_LEDGER


@pytest.mark.matrix("batches, confirmed and unconfirmed, as reader and writer")
@every_handle
@pytest.mark.parametrize("sizes", [UNSTRIPED, STRIPED], ids=["unstriped", "striped"])
async def test_batches(python: BookKeeper, make: Callable[..., Any], sizes: dict[str, Any]) -> None:
    handle: Handle = await make(python, **sizes)
    everything = whole(handle.ledger_id)
    found: list[Shown] = []
    while len(found) < COUNT:
        batch = await reads(handle).read_batch(len(found), max_count=6)
        assert 1 <= len(batch) <= 6
        found += [shown(entry) for entry in batch]
    assert found == everything
    assert [shown(entry) for entry in await reads(handle).read_batch(4)] == everything[4:]
    one = await reads(handle).read_batch(6, max_bytes=1)
    assert [shown(entry) for entry in one] == everything[6:7], "at least one, whatever its size"
    some = await reads(handle).read_batch(0, max_bytes=300)
    assert 1 <= len(some) < COUNT
    assert [shown(entry) for entry in some] == everything[: len(some)]
    further = [shown(entry) for entry in await reads(handle).read_batch(15, max_count=100, unconfirmed=True)]
    beyond = whole(handle.ledger_id, COUNT + 1)[15:]
    assert further == (beyond if make is open_reader else everything[15:])
    with pytest.raises(NoSuchEntry):
        await reads(handle).read_batch(COUNT + 1, unconfirmed=True)


async def with_a_hole(client: BookKeeper, **sizes: Any) -> AdvancedLedgerWriter:
    """The writer of a ledger that lacks one entry, which therefore is confirmed up to that one only."""
    writer = await client.create_advanced_ledger(**sizes)
    for entry_id in range(COUNT):
        if entry_id != HOLE:
            writer.append_nowait(entry_id, pattern(entry_id))
    async with asyncio.timeout(20):
        for entry_id in range(HOLE + 1, COUNT):
            while not await _is_stored(writer, entry_id):  # noqa: ASYNC110 - nobody acknowledges it
                await asyncio.sleep(0.02)
    await writer.flush()  # what is below
    return writer


async def _is_stored(handle: Handle, entry_id: int) -> bool:
    try:
        return (await reads(handle).read(entry_id, unconfirmed=True)).payload == pattern(entry_id)
    except (NoSuchEntry, NoSuchLedgerOnBookie):
        return False


async def until_it_fails(entries: AsyncIterator[Entry] | LedgerReader) -> tuple[list[bytes], BookKeeperError]:
    """The payloads that came before the error."""
    before: list[bytes] = []
    try:
        async for entry in entries:
            before.append(entry.payload)  # noqa: PERF401 - a comprehension would lose what came before the error
    except BookKeeperError as error:
        return before, error
    raise AssertionError("nothing failed")


async def results_of(handle: Handle, last: int) -> list[tuple[int, Shown | None, type[BookKeeperError] | None]]:
    found: list[EntryResult] = [result async for result in reads(handle).read_results(0, last)]
    return [
        (
            each.entry_id,
            None if each.entry is None else shown(each.entry),
            None if each.error is None else type(each.error),
        )
        for each in found
    ]


@pytest.mark.matrix("unconfirmed reads, up to and around an entry that was never written")
@pytest.mark.parametrize("sizes", [UNSTRIPED, STRIPED], ids=["unstriped", "striped"])
@pytest.mark.parametrize("parallel", [False, True], ids=["one-by-one", "parallel"])
async def test_unconfirmed_reads_around_a_hole(python: BookKeeper, sizes: dict[str, Any], parallel: bool) -> None:
    writer = await with_a_hole(python, **sizes)
    reader = await python.open_ledger(writer.ledger_id, recover=False)
    everything = [each for each in whole(writer.ledger_id) if each[1] != HOLE]
    handles: list[Handle] = [writer, reader]
    for each in handles:
        handle: Handle = each
        assert -1 <= handle.last_add_confirmed < HOLE
        ids = [entry_id for entry_id in range(COUNT) if entry_id != HOLE]
        found = [await reads(handle).read(entry_id, parallel=parallel, unconfirmed=True) for entry_id in ids]
        assert [(entry.entry_id, entry.payload) for entry in found] == [each[1:3] for each in everything]
        with pytest.raises(NoSuchEntry) as denied:
            await reads(handle).read(HOLE, parallel=parallel, unconfirmed=True)
        assert denied.value.entry_id == HOLE
        before, error = await until_it_fails(reads(handle).read_range(0, LAST, parallel=parallel, unconfirmed=True))
        assert before == [pattern(entry_id) for entry_id in range(HOLE)]
        assert (type(error), error.entry_id) == (NoSuchEntry, HOLE)
        with pytest.raises(NoSuchEntry):
            await reads(handle).read_entries(0, LAST, parallel=parallel, unconfirmed=True)
        beyond = await reads(handle).read_entries(HOLE + 1, LAST, parallel=parallel, unconfirmed=True)
        assert [entry.payload for entry in beyond] == [pattern(entry_id) for entry_id in range(HOLE + 1, COUNT)]
        batch = await reads(handle).read_batch(2, max_count=COUNT, unconfirmed=True)
        assert [entry.payload for entry in batch] == [pattern(entry_id) for entry_id in range(2, HOLE)]


@pytest.mark.matrix("unconfirmed reads by the writer itself")
async def test_a_writer_reads_what_is_beyond_its_end(python: BookKeeper) -> None:
    writer = await open_writer(python)
    everything = whole(writer.ledger_id)

    assert [shown(entry) async for entry in writer.reader.read_range(0, LAST, unconfirmed=True)] == everything
    assert [shown(entry) for entry in await writer.reader.read_entries(5, LAST, unconfirmed=True)] == everything[5:]
    assert shown(await writer.reader.read(LAST, unconfirmed=True)) == everything[LAST]
    with pytest.raises(NoSuchEntry):
        await writer.reader.read(COUNT, unconfirmed=True)
    with pytest.raises(NoSuchEntry):
        await writer.reader.read_entries(LAST, COUNT, unconfirmed=True)


@pytest.mark.matrix("a closed ledger that lacks an entry, read by both clients")
@pytest.mark.parametrize("sizes", [UNSTRIPED, STRIPED], ids=["unstriped", "striped"])
async def test_a_ledger_that_lost_an_entry(python: BookKeeper, java: JavaPeer, sizes: dict[str, Any]) -> None:
    writer = await with_a_hole(python, **sizes)
    ledger_id = writer.ledger_id
    store = core_of(python).metadata
    stored = await store.read_ledger(ledger_id)
    await store.write_ledger(stored.metadata.closed(LAST, whole(ledger_id)[LAST][3]), stored.version)
    reader = await python.open_ledger(ledger_id, recover=True)
    assert (reader.is_closed, reader.last_add_confirmed) == (True, LAST)

    found = await results_of(reader, LAST)

    assert [(each, error) for each, _, error in found] == [
        (entry_id, NoSuchEntry if entry_id == HOLE else None) for entry_id in range(COUNT)
    ]
    assert [entry and entry[2] for _, entry, _ in found] == [
        None if entry_id == HOLE else pattern(entry_id) for entry_id in range(COUNT)
    ]
    before, error = await until_it_fails(reader)
    assert before == [pattern(entry_id) for entry_id in range(HOLE)]
    assert (type(error), error.entry_id) == (NoSuchEntry, HOLE)
    with pytest.raises(NoSuchEntry):
        await reader.read_entries(0, LAST)
    with pytest.raises(NoSuchEntry):
        await reader.read_batch(HOLE)
    assert [entry.entry_id for entry in await reader.read_batch(0, max_count=COUNT)] == list(range(HOLE))
    assert (await reader.read_last_entry()).payload == pattern(LAST)
    await java("open", ledger_id)
    with pytest.raises(JavaError) as denied_by_java:
        await java.payloads(ledger_id)
    assert denied_by_java.value.code == NO_SUCH_ENTRY
    assert await java.payloads(ledger_id, first=HOLE + 1) == [pattern(i) for i in range(HOLE + 1, COUNT)]


@pytest.mark.matrix("reads while one bookie answers nothing: what became of each entry")
async def test_entries_of_a_silent_bookie_hide_no_others(
    new_client: ClientFactory, real: RealCluster, wire: int
) -> None:
    python: BookKeeper = await new_client(
        real.metadata_uri, connections={"protocol_version": wire}, timeouts={"read_s": 1.5}
    )
    writer = await open_writer(python, COUNT + 1, ensemble_size=2, write_quorum_size=1, ack_quorum_size=1)
    reader = await python.open_ledger(writer.ledger_id, recover=False)
    everything = whole(writer.ledger_id)
    bookie = real.bookie(writer.metadata.last_fragment.ensemble[1])
    bookie.signal(signal.SIGSTOP)
    try:
        both = await asyncio.gather(results_of(writer, LAST), results_of(reader, LAST))
    finally:
        bookie.signal(signal.SIGCONT)
        await asyncio.to_thread(real.wait_registered, bookie.bookie_id)
    for found in both:
        assert found == [
            (entry_id, everything[entry_id], None) if entry_id % 2 == 0 else (entry_id, None, RequestTimeout)
            for entry_id in range(COUNT)
        ]
    async with asyncio.timeout(20):
        while any(error for *_, error in await results_of(writer, LAST)):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.1)
    assert await writer.append(pattern(COUNT + 1)) == COUNT + 1


@pytest.mark.matrix("the last add confirmed: asked, tried, waited for; as reader and writer")
async def test_the_last_add_confirmed_in_every_way(python: BookKeeper, wire: int) -> None:
    writer = await open_writer(python)
    reader = await python.open_ledger(writer.ledger_id, recover=False)
    assert await writer.reader.read_last_add_confirmed() == await writer.reader.try_read_last_add_confirmed() == LAST
    assert await reader.read_last_add_confirmed() == await reader.try_read_last_add_confirmed() == LAST - 1

    await writer.append(pattern(COUNT))  # tells that the one before is confirmed, to two of three bookies
    assert await reader.try_read_last_add_confirmed() == reader.last_add_confirmed == LAST
    await writer.append(pattern(COUNT + 1))
    assert await reader.read_last_add_confirmed() == reader.last_add_confirmed == COUNT

    found = await reader.read_last_add_confirmed_and_entry(COUNT, 0.0)
    assert (found.last_add_confirmed, found.entry and found.entry.payload) == (COUNT, pattern(COUNT))
    own = await writer.reader.read_last_add_confirmed_and_entry(COUNT + 1, 5.0)
    assert (own.last_add_confirmed, own.entry and own.entry.payload) == (COUNT + 1, pattern(COUNT + 1))
    waits: list[Handle] = [reader, writer]
    polls = [
        asyncio.create_task(reads(each).read_last_add_confirmed_and_entry(COUNT + 2, 10.0, parallel=True))
        for each in waits
    ]
    await asyncio.sleep(0.05)
    await writer.append(pattern(COUNT + 2))
    await writer.append(pattern(COUNT + 3))
    for poll in polls:
        news = await poll
        assert news.last_add_confirmed >= COUNT + 2
        assert news.entry is None or news.entry.payload == pattern(COUNT + 2)

    assert await writer.write_explicit_lac() == COUNT + 3
    expected = COUNT + 3 if wire == 3 else COUNT + 2  # version 2 asks for the last entry, which carries the one before
    assert await reader.read_last_add_confirmed() == expected
    await writer.close()
    await reader.wait_closed()
    assert await reader.try_read_last_add_confirmed() == await reader.read_last_add_confirmed() == COUNT + 3
    nothing = await reader.read_last_add_confirmed_and_entry(COUNT + 4, 10.0)
    assert (nothing.last_add_confirmed, nothing.entry) == (COUNT + 3, None)


@pytest.mark.matrix("the last add confirmed of an advanced writer")
async def test_the_last_add_confirmed_of_an_advanced_writer(python: BookKeeper) -> None:
    writer = await open_advanced_writer(python)
    reader = await python.open_ledger(writer.ledger_id, recover=False)
    assert await writer.reader.read_last_add_confirmed() == await writer.reader.try_read_last_add_confirmed() == LAST
    found = await writer.reader.read_last_add_confirmed_and_entry(LAST, 0.0)
    assert found.entry is not None
    assert shown(found.entry) == whole(writer.ledger_id)[LAST]

    waiting = asyncio.create_task(reader.read_last_add_confirmed_and_entry(LAST, 10.0, parallel=True))
    assert await writer.append(COUNT, pattern(COUNT)) == COUNT

    assert (await waiting).last_add_confirmed >= LAST
    assert await writer.write_explicit_lac() == COUNT


@pytest.mark.matrix("what a writer knows of itself, gaps and deferred sync included")
async def test_what_writers_tell_of_themselves(python: BookKeeper, java: JavaPeer, wire: int, note: Note) -> None:
    writer = await python.create_ledger()
    for entry_id in range(COUNT):
        writer.append_nowait(pattern(entry_id))
    total = whole(writer.ledger_id)[LAST][3]
    assert (writer.in_flight_entries, writer.last_add_pushed, writer.length) == (COUNT, LAST, total)
    assert (writer.in_flight_bytes, python.in_flight_entries, python.in_flight_bytes) == (total, COUNT, total)
    assert (writer.last_add_acknowledged, writer.last_add_confirmed) == (-1, -1)
    await writer.flush()
    assert (writer.in_flight_entries, writer.last_add_acknowledged, writer.last_add_confirmed) == (0, LAST, LAST)
    assert (writer.is_deferred_sync, writer.is_closed) == (False, False)
    stored = await core_of(python).metadata.read_ledger(writer.ledger_id)
    assert (writer.metadata, writer.metadata_version) == (stored.metadata, stored.version)
    await writer.close()
    stored = await core_of(python).metadata.read_ledger(writer.ledger_id)
    assert (writer.is_closed, writer.metadata, writer.metadata_version) == (True, stored.metadata, stored.version)
    assert (stored.metadata.last_entry_id, stored.metadata.length) == (LAST, total)

    gap = await with_a_hole(python, **STRIPED)
    assert (gap.in_flight_entries, gap.last_add_pushed, gap.last_add_acknowledged) == (COUNT - HOLE - 1, LAST, HOLE - 1)
    assert gap.in_flight_bytes == total - sum(len(pattern(entry_id)) for entry_id in range(HOLE + 1))
    assert await gap.append(HOLE, pattern(HOLE)) == HOLE
    await gap.flush()
    assert (gap.in_flight_entries, gap.last_add_confirmed, gap.length) == (0, LAST, total)
    assert (gap.in_flight_bytes, python.in_flight_bytes) == (0, 0)
    before = gap.metadata_version
    await gap.close()
    assert (gap.is_closed, gap.is_deferred_sync) == (True, False)
    assert gap.metadata_version > before
    assert gap.metadata.last_entry_id == LAST
    await java("open", gap.ledger_id)
    assert await java.payloads(gap.ledger_id) == [pattern(entry_id) for entry_id in range(COUNT)]

    if wire == 2:
        note("no deferred sync in version 2")
        for each in (await python.create_ledger(), await python.create_advanced_ledger()):
            with pytest.raises(IllegalOperation):
                await each.force()
        return
    lazy = await open_writer(python, deferred_sync=True)
    given = await open_advanced_writer(python, deferred_sync=True)
    for each in (lazy, given):
        handle: LedgerWriter | AdvancedLedgerWriter = each
        assert handle.is_deferred_sync
        assert (handle.last_add_acknowledged, handle.last_add_confirmed) == (LAST, -1)
        with pytest.raises(ReadFailed):
            await reads(handle).read(0)
        unforced = await reads(handle).read_entries(0, LAST, unconfirmed=True)
        assert [entry.payload for entry in unforced] == [pattern(entry_id) for entry_id in range(COUNT)]
        await handle.force()
        assert handle.last_add_confirmed == LAST
        assert [shown(entry) for entry in await reads(handle).read_entries(0, LAST)] == whole(handle.ledger_id)
        await handle.close()
        await java("open", handle.ledger_id)
        assert await java.payloads(handle.ledger_id) == [pattern(entry_id) for entry_id in range(COUNT)]


@pytest.mark.matrix("a writer reads its own ledger while it writes")
async def test_a_writer_reads_along(python: BookKeeper) -> None:
    writer = await python.create_ledger(**STRIPED)

    async def write() -> None:
        for entry_id in range(300):
            await writer.wait_for_room()
            writer.append_nowait(pattern(entry_id))
            if entry_id % 50 == 0:
                await writer.flush()
        await writer.flush()

    writing = asyncio.create_task(write())
    found: list[Shown] = []
    rounds = 0
    async with asyncio.timeout(30):
        while len(found) < 300:
            if writer.last_add_confirmed < len(found):
                await asyncio.sleep(0)
                continue
            found += [shown(entry) async for entry in writer.reader.read_range(len(found), writer.last_add_confirmed)]
            rounds += 1
    await writing
    assert rounds > 1
    assert found == whole(writer.ledger_id, 300)
    await writer.close()
    assert shown(await writer.reader.read_last_entry()) == found[-1], "also when it is closed"


@pytest.mark.matrix("a tail that is ended from outside")
async def test_a_tail_is_ended(python: BookKeeper) -> None:
    reader = await open_reader(python)
    async with reader.tail(5) as tail:
        assert [(await anext(tail)).payload for _ in range(5, COUNT)] == [pattern(i) for i in range(5, COUNT)]
        waiting = asyncio.create_task(anext(tail, None))
        await asyncio.sleep(0.05)
        assert not waiting.done()

        await tail.aclose()

        async with asyncio.timeout(5):
            assert await waiting is None
