"""Several entries with one call: natively over protocol version 2, one by one everywhere else, and the same either way."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from bkclient._client.reading.reader import LedgerReader
from bkclient.config import ClientConfig, ConnectionSettings, LimitSettings, ReadingSettings
from bkclient.entry import Entries
from bkclient.errors import (
    ArgumentError,
    BookieNotAvailable,
    ClientClosed,
    Code,
    DigestMismatch,
    NoSuchEntry,
    ReadFailed,
    RequestTimeout,
)
from bkclient.observability import stats as names
from bkclient.protocol.batch_read import BATCH_ENTRY_OVERHEAD, BATCH_OVERHEAD
from bkclient.wire.messages import ReadRequest
from tests.bkclient._client.reading import ledgers
from tests.bkclient._client.reading.ledgers import tail_of, written
from tests.bkclient._client.reading.test_late_reads import Stats, now, order_of
from tests.bkclient.fakes import FakeCluster, fake_cluster, in_virtual_time
from tests.bkclient.inside import reads_of
from tests.settling import settled

V2, V3 = (
    ClientConfig(connections=ConnectionSettings(protocol_version=2)),
    ClientConfig(connections=ConnectionSettings(protocol_version=3)),
)
NO_BATCHES = ClientConfig(connections=ConnectionSettings(protocol_version=2), reading=ReadingSettings(batch=False))
EVERYWHERE = [V2, V3, NO_BATCHES]


#: Readers of closed ledgers whose entries have ten bytes.
reader_of = partial(ledgers.reader_of, form=b"%010d")


async def tail_reader_of(where: FakeCluster, entries: int) -> LedgerReader:
    """A reader of an open ledger, which confirms all but its last entry; its writer is forgotten."""
    reader = await tail_of(where, await written(where, entries, form=b"%010d"))
    where.sent.clear()
    return reader


def ids(entries: Entries) -> list[int]:
    assert [entry.payload for entry in entries] == [b"%010d" % entry.entry_id for entry in entries]
    return [entry.entry_id for entry in entries]


def kinds(where: FakeCluster) -> list[tuple[str, str]]:
    """What was sent to which bookie."""
    return [(type(request).__name__.removesuffix("Request"), bookie_id) for bookie_id, request in where.sent]


#: What a batch of this many entries of ten bytes takes, with a digest of four.
def size_of(entries: int) -> int:
    return BATCH_OVERHEAD + entries * (BATCH_ENTRY_OVERHEAD + 36 + 10)


# The same everywhere -----------------------------------------------------------------------------------------------


@pytest.mark.rule("R-25")
@pytest.mark.rule("R-26")
@pytest.mark.rule("R-27")
@pytest.mark.rule("R-28")
@pytest.mark.rule("H-22")
@pytest.mark.rule("H-24")
@pytest.mark.behaviour("T-42")
@pytest.mark.behaviour("T-43")
@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2)])
@pytest.mark.parametrize("config", EVERYWHERE)
@pytest.mark.parametrize(
    ("max_count", "max_bytes", "expected"),
    [
        (3, 0, [2, 3, 4]),
        (1, 0, [2]),
        (0, 0, list(range(2, 10))),
        (100, 0, list(range(2, 10))),
        (0, 1, [2]),
        (5, size_of(2), [2, 3]),
        (5, size_of(3) - 1, [2, 3]),
        (5, size_of(3), [2, 3, 4]),
        (2, size_of(9), [2, 3]),
        (2**31 - 1, 2**31 - 1, list(range(2, 10))),
    ],
)
async def test_a_batch_keeps_to_its_limits_wherever_it_is_read(
    config: ClientConfig, sizes: tuple[int, int, int], max_count: int, max_bytes: int, expected: list[int]
) -> None:
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where, 10, sizes)

        assert ids(await reader.read_batch(2, max_count, max_bytes)) == expected
        assert ids(await reader.read_batch(2, max_count, max_bytes, unconfirmed=True)) == expected
        is_native = config is V2 and sizes == (3, 3, 2)
        assert {kind for kind, _ in kinds(where)} == ({"BatchRead"} if is_native else {"Read"})


@pytest.mark.rule("R-29")
@pytest.mark.rule("H-24")
@pytest.mark.rule("R-20")
@pytest.mark.parametrize("config", EVERYWHERE)
@pytest.mark.parametrize("max_count", [0, 5, 6, 100])
async def test_a_confirmed_batch_ends_at_the_lac_and_an_unconfirmed_one_at_the_last_entry(
    config: ClientConfig, max_count: int
) -> None:
    async with fake_cluster(config=config) as where:
        reader = await tail_reader_of(where, 6)
        assert reader.last_add_confirmed == 4

        assert ids(await reader.read_batch(0, max_count)) == [0, 1, 2, 3, 4]
        unconfirmed = await reader.read_batch(0, max_count, unconfirmed=True)
        assert ids(unconfirmed) == list(range(min(6, max_count or 6)))
        assert (reader.last_add_confirmed, reader.length) == (4, 50)


@pytest.mark.behaviour("T-43")
@pytest.mark.parametrize("config", EVERYWHERE)
async def test_several_batches_cover_a_ledger(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where, 100)
        read: list[int] = []
        while len(read) < 100:
            read += ids(await reader.read_batch(len(read), 7))
        assert read == list(range(100))


@pytest.mark.rule("R-33")
@pytest.mark.behaviour("T-44")
@pytest.mark.behaviour("T-203")
@pytest.mark.parametrize("config", EVERYWHERE)
@pytest.mark.parametrize(
    ("start", "max_count", "max_bytes"),
    [(-1, 1, 0), (0, -1, 0), (0, 1, -1), ("0", 1, 0), (0, 1.5, 0), (0, 1, None), (0, True, 0), (0, 2**31, 0)],
)
async def test_wrong_arguments_are_refused_and_nothing_is_sent(
    config: ClientConfig, start: int, max_count: int, max_bytes: int
) -> None:
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where, 3)

        for call in (reader.read_batch, partial(reader.read_batch, unconfirmed=True)):
            with pytest.raises(ArgumentError, match=f"ledger {reader.ledger_id}"):
                await call(start, max_count, max_bytes)
        assert where.sent == []


@pytest.mark.rule("R-33")
@pytest.mark.behaviour("T-44")
@pytest.mark.parametrize("config", EVERYWHERE)
async def test_a_batch_that_begins_beyond_the_lac_is_a_failed_read(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where, 3)

        with pytest.raises(ReadFailed, match="entry 3"):
            await reader.read_batch(3, 1)
        assert where.sent == []


@pytest.mark.behaviour("T-200")
@pytest.mark.behaviour("T-203")
@pytest.mark.parametrize("config", EVERYWHERE)
async def test_a_missing_first_entry_is_an_error_and_a_missing_later_one_ends_the_batch(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where, 6)
        with pytest.raises(NoSuchEntry, match="entry 6"):
            await reader.read_batch(6, 0, unconfirmed=True)

        for bookie in where.transport.bookies.values():
            del bookie.entries[reader.ledger_id, 3]
        assert ids(await reader.read_batch(0)) == [0, 1, 2]
        with pytest.raises(NoSuchEntry, match="entry 3"):
            await reader.read_batch(3)


@pytest.mark.rule("R-30")
@pytest.mark.behaviour("T-202")
@pytest.mark.parametrize("config", EVERYWHERE)
async def test_a_corrupt_entry_costs_the_next_replica_or_ends_the_batch(config: ClientConfig) -> None:
    stats = Stats()
    async with fake_cluster(config=config, stats=stats) as where:
        reader = await reader_of(where, 6)
        first = order_of(reader, 0)[0]
        where.transport.bookies[first].entries[reader.ledger_id, 0] = b"rotten"
        assert ids(await reader.read_batch(0, 2)) == [0, 1]
        assert stats.events[names.DIGEST_MISMATCHES] == 1

        for bookie in where.transport.bookies.values():
            bookie.entries[reader.ledger_id, 4] = b"rotten"
        assert ids(await reader.read_batch(2)) == [2, 3]
        with pytest.raises(DigestMismatch, match="entry 4"):
            await reader.read_batch(4)


@pytest.mark.behaviour("T-203")
@pytest.mark.parametrize("config", EVERYWHERE)
async def test_a_closed_client_reads_no_batches(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where, 3)
        where.transport.hold("abc")
        reading = asyncio.ensure_future(reader.read_batch(0))
        await settled()

    with pytest.raises(ClientClosed):
        await reading
    for call in (reader.read_batch, partial(reader.read_batch, unconfirmed=True)):
        with pytest.raises(ClientClosed):
            await call(0)


async def test_a_client_that_closes_in_the_middle_of_a_batch_delivers_no_part_of_it() -> None:
    async with fake_cluster(config=V3) as where:
        reader = await reader_of(where, 3)
        where.transport.hold("abc")
        reading = asyncio.ensure_future(reader.read_batch(0))
        await settled()
        where.transport.answer_first(1)
        await settled()

    with pytest.raises(ClientClosed):
        await reading


# Natively ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-31")
@in_virtual_time
async def test_a_batch_goes_to_the_next_replica_when_one_fails_or_is_late() -> None:
    stats = Stats()
    config = ClientConfig(
        connections=ConnectionSettings(protocol_version=2), reading=ReadingSettings(speculative_first_s=1.0)
    )
    async with fake_cluster(config=config, stats=stats) as where:
        reader = await reader_of(where, 6)
        first, second, third = order_of(reader, 0)
        where.transport.hold(first)
        where.transport.bookies[second].code = Code.TIMEOUT
        began = now()
        assert ids(await reader.read_batch(0)) == list(range(6))

        assert kinds(where) == [("BatchRead", first), ("BatchRead", second), ("BatchRead", third)]
        assert now() - began == pytest.approx(3.0)
        assert stats.events[names.SPECULATIVE_READS] == 2
        assert reads_of(reader).health.is_slow(first)


@pytest.mark.rule("R-11")
@pytest.mark.rule("R-12")
@pytest.mark.parametrize("delay_s", [0.0, 1.0])
@in_virtual_time
async def test_a_batch_asks_nobody_twice_and_nobody_else_where_speculation_is_off(delay_s: float) -> None:
    config = ClientConfig(
        connections=ConnectionSettings(protocol_version=2), reading=ReadingSettings(speculative_first_s=delay_s)
    )
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where, 6)
        where.transport.hold("abc")
        asyncio.get_running_loop().call_later(30, where.transport.release, "abc")
        assert ids(await reader.read_batch(0)) == list(range(6))
        assert len(where.sent) == (3 if delay_s else 1)


@pytest.mark.rule("R-31")
@pytest.mark.rule("R-13")
async def test_a_batch_nobody_sends_fails_with_the_most_telling_error() -> None:
    stats = Stats()
    async with fake_cluster(config=V2, stats=stats) as where:
        reader = await reader_of(where, 6)
        for bookie_id, code in zip(order_of(reader, 0), (Code.NO_SUCH_ENTRY, Code.TIMEOUT, Code.READ), strict=True):
            where.transport.bookies[bookie_id].code = code

        with pytest.raises(RequestTimeout, match="entry 0"):
            await reader.read_batch(0)
        assert [kind for kind, _ in kinds(where)] == ["BatchRead"] * 3
        assert stats.operations[-1] == (names.READ, Code.TIMEOUT)


@pytest.mark.rule("R-32")
@pytest.mark.rule("H-23")
@in_virtual_time
async def test_bookies_without_batches_are_read_one_by_one_and_asked_again_after_minutes() -> None:
    async with fake_cluster(config=V2) as where:
        bookies = where.transport.bookies
        for bookie in bookies.values():
            bookie.knows_batches = False
        reader = await reader_of(where, 4)

        assert ids(await reader.read_batch(0)) == [0, 1, 2, 3]
        assert [kind for kind, _ in kinds(where)] == ["BatchRead"] * 3 + ["Read"] * 4
        where.sent.clear()
        assert ids(await reader.read_batch(0)) == [0, 1, 2, 3]
        assert {kind for kind, _ in kinds(where)} == {"Read"}

        for bookie in bookies.values():
            bookie.knows_batches = True
        await asyncio.sleep(601)
        where.sent.clear()
        assert ids(await reader.read_batch(0)) == [0, 1, 2, 3]
        assert [kind for kind, _ in kinds(where)] == ["BatchRead"]


@pytest.mark.rule("R-32")
@pytest.mark.rule("H-23")
@in_virtual_time
async def test_a_bookie_that_was_down_for_a_moment_costs_no_batches_of_the_others() -> None:
    async with fake_cluster(config=V2) as where:
        reader, other = await reader_of(where, 4), await reader_of(where, 4)
        first, second, _ = order_of(reader, 0)
        where.transport.bookies[first].code = Code.BOOKIE_NOT_AVAILABLE
        assert ids(await reader.read_batch(0)) == [0, 1, 2, 3]
        where.transport.bookies[first].code = None
        assert kinds(where) == [("BatchRead", first), ("BatchRead", second)]

        where.sent.clear()
        await other.read_batch(0)
        assert first not in {bookie_id for _, bookie_id in kinds(where)}
        assert {kind for kind, _ in kinds(where)} == {"BatchRead"}
        await asyncio.sleep(61)  # by then nothing is held against it, being slow included
        where.sent.clear()
        await reader.read_batch(0)
        assert kinds(where) == [("BatchRead", first)]


@pytest.mark.rule("R-14")
async def test_what_a_part_of_the_replicas_denies_is_asked_of_all_one_by_one() -> None:
    async with fake_cluster(config=V2) as where:
        bookies = where.transport.bookies
        reader = await reader_of(where, 1)
        first, second, third = order_of(reader, 0)
        bookies[first].knows_batches = False
        await reader.read_batch(0)
        for bookie_id in (second, third):
            del bookies[bookie_id].entries[reader.ledger_id, 0]
        where.sent.clear()

        assert ids(await reader.read_batch(0)) == [0]
        assert ("Read", first) in kinds(where)


async def test_with_every_bookie_away_a_batch_fails_as_a_single_read_does() -> None:
    async with fake_cluster(config=V2) as where:
        reader = await reader_of(where, 2)
        for bookie in where.transport.bookies.values():
            bookie.code = Code.BOOKIE_NOT_AVAILABLE

        with pytest.raises(BookieNotAvailable, match="entry 0"):
            await reader.read_batch(0)


@pytest.mark.rule("R-2")
@in_virtual_time
async def test_a_batch_takes_one_permit_for_each_request() -> None:
    async with fake_cluster(
        config=ClientConfig(connections=ConnectionSettings(protocol_version=2), limits=LimitSettings(throttle_per_s=2))
    ) as where:
        reader = await reader_of(where, 9)
        where.transport.bookies[order_of(reader, 0)[0]].code = Code.NO_SUCH_ENTRY
        began = now()
        await reader.read_batch(0)
        assert now() == began
        where.transport.bookies[order_of(reader, 0)[0]].code = None
        await reader.read_batch(1)
        assert now() - began == pytest.approx(0.5)


# One by one --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-27")
async def test_no_more_is_asked_for_beyond_an_unknown_end_than_was_found_before_it() -> None:
    async with fake_cluster(config=V3) as where:
        reader = await reader_of(where, 5)
        await reader.read_batch(0, unconfirmed=True)

        beyond = {request.entry_id for _, request in where.sent if isinstance(request, ReadRequest)} - set(range(5))
        assert beyond <= set(range(5, 10))


async def test_no_more_is_asked_for_than_is_likely_to_fit() -> None:
    async with fake_cluster(config=V3) as where:
        reader = await reader_of(where, 100)
        assert ids(await reader.read_batch(0, 0, size_of(10))) == list(range(10))

        assert len(where.sent) <= 11


# Results -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-12")
@pytest.mark.behaviour("T-32")
@pytest.mark.behaviour("T-208")
async def test_a_result_is_a_sequence_that_also_finds_entries_by_id() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 6)
        entries = await reader.read_batch(2, 3)

        assert [entry.entry_id for entry in entries] == [entry.entry_id for entry in entries] == [2, 3, 4]
        assert (len(entries), entries.first_entry_id, entries.last_entry_id) == (3, 2, 4)
        assert entries[0].entry_id == entries[-3].entry_id == 2
        assert entries[1:] == (entries[1], entries[2])
        assert entries.entry(4) is entries[2]
        assert repr(entries) == f"<Entries 2 to 4 of ledger {reader.ledger_id}>"
        for missing in (1, 5, -1):
            with pytest.raises(IndexError, match=f"entry {missing} "):
                entries.entry(missing)
        with pytest.raises(ValueError, match="at least one"):
            Entries([])
