"""Reading closed ledgers: single entries, ranges, replicas that fail, callers that go away."""

from __future__ import annotations

import asyncio
import gc

import pytest

from bkclient._client.reading.reader import LedgerReader
from bkclient.config import ClientConfig, ReadingSettings
from bkclient.errors import (
    ArgumentError,
    BookieNotAvailable,
    BookKeeperError,
    ClientClosed,
    Code,
    DigestMismatch,
    NoSuchEntry,
    ReadFailed,
    RequestTimeout,
    UnauthorizedAccess,
)
from bkclient.wire.messages import ReadRequest
from tests.bkclient.fakes import FakeCluster, fake_cluster, writer_of
from tests.settling import settled


async def reader_of(where: FakeCluster, *payloads: bytes, sizes: tuple[int, int, int] = (3, 3, 2)) -> LedgerReader:
    """A reader of a closed ledger with these entries; what was sent so far is forgotten."""
    async with await writer_of(where, sizes) as writer:
        for payload in payloads:
            await writer.append(payload)
    await settled()
    reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
    where.sent.clear()
    return reader


def corrupt(where: FakeCluster, bookie_id: str, entry_id: int) -> None:
    """Flip a bit in a bookie's copy."""
    entries = where.transport.bookies[bookie_id].entries
    for (ledger_id, stored), body in entries.items():
        if stored == entry_id:
            entries[ledger_id, stored] = body[:-1] + bytes([body[-1] ^ 1])


def asked(where: FakeCluster) -> list[tuple[str, int]]:
    return [(bookie_id, request.entry_id) for bookie_id, request in where.sent if isinstance(request, ReadRequest)]


def replicas(reader: LedgerReader, entry_id: int) -> tuple[str, ...]:
    metadata = reader.metadata
    ensemble = metadata.ensemble_at(entry_id)
    return tuple(ensemble[(entry_id + i) % len(ensemble)] for i in range(metadata.write_quorum_size))


# Entries -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-13")
@pytest.mark.rule("R-21")
async def test_an_entry_tells_ids_payload_the_ledgers_length_and_what_was_confirmed() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"zero", b"one")

        entry = await reader.read(1)

        assert (entry.ledger_id, entry.entry_id, entry.payload) == (reader.ledger_id, 1, b"one")
        assert (entry.ledger_length, entry.last_add_confirmed) == (7, 0)
        assert (reader.last_add_confirmed, reader.length, reader.is_closed) == (1, 7, True)


@pytest.mark.rule("R-7")
@pytest.mark.rule("RO-2")
async def test_the_first_replica_of_the_write_set_is_asked_and_no_other_one_if_it_answers() -> None:
    async with fake_cluster("abcd") as where:
        reader = await reader_of(where, b"0", b"1", sizes=(4, 2, 2))

        await reader.read(1)

        assert asked(where) == [(replicas(reader, 1)[0], 1)]


@pytest.mark.rule("R-3")
@pytest.mark.behaviour("T-206")
async def test_a_corrupt_replica_costs_the_next_question() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0")
        corrupt(where, replicas(reader, 0)[0], 0)

        assert (await reader.read(0)).payload == b"0"
        assert asked(where) == [(bookie_id, 0) for bookie_id in replicas(reader, 0)[:2]]


@pytest.mark.rule("R-3")
async def test_an_entry_of_another_ledger_or_another_id_is_no_answer() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0", b"1")
        entries = where.transport.bookies[replicas(reader, 0)[0]].entries
        entries[reader.ledger_id, 0] = entries[reader.ledger_id, 1]

        assert (await reader.read(0)).payload == b"0"
        assert len(asked(where)) == 2


@pytest.mark.rule("R-13")
@pytest.mark.behaviour("T-192")
@pytest.mark.behaviour("T-204")
@pytest.mark.behaviour("T-205")
@pytest.mark.parametrize(
    ("codes", "error", "culprit"),
    [
        ((Code.BOOKIE_NOT_AVAILABLE,) * 3, BookieNotAvailable, 2),
        ((Code.TIMEOUT,) * 3, RequestTimeout, 0),
        ((Code.BOOKIE_NOT_AVAILABLE, None, Code.BOOKIE_NOT_AVAILABLE), DigestMismatch, 1),
        ((Code.NO_SUCH_ENTRY, Code.UNAUTHORIZED, Code.NO_SUCH_ENTRY), UnauthorizedAccess, 1),
        ((Code.NO_SUCH_ENTRY, Code.NO_SUCH_ENTRY, Code.NO_SUCH_ENTRY), NoSuchEntry, 2),
        ((None, Code.TIMEOUT, Code.TIMEOUT), DigestMismatch, 0),
    ],
)
async def test_an_entry_nobody_returns_fails_with_the_most_telling_error_and_names_who_gave_it(
    codes: tuple[Code | None, ...], error: type[BookKeeperError], culprit: int
) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0")
        for bookie_id, code in zip(replicas(reader, 0), codes, strict=True):
            where.transport.bookies[bookie_id].code = code
            corrupt(where, bookie_id, 0)

        with pytest.raises(error) as caught:
            await reader.read(0)

        assert (caught.value.ledger_id, caught.value.entry_id) == (reader.ledger_id, 0)
        assert caught.value.bookie_id == replicas(reader, 0)[culprit]


@pytest.mark.rule("R-22")
@pytest.mark.behaviour("T-53")
async def test_the_last_entry_is_read_and_an_empty_ledger_has_none() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0", b"1")
        assert (await reader.read_last_entry()).payload == b"1"

        empty = await reader_of(where)
        with pytest.raises(NoSuchEntry, match="no confirmed entry"):
            await empty.read_last_entry()
        assert where.sent == []


@pytest.mark.behaviour("T-28")
async def test_a_closed_ledger_answers_for_its_end_without_asking_a_bookie() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0", b"1")

        assert await reader.read_last_add_confirmed() == 1
        assert where.sent == []


# Arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-11")
@pytest.mark.rule("R-19")
@pytest.mark.parametrize(
    ("first", "last", "error"),
    [
        (-1, 0, ArgumentError),
        (-5, -4, ArgumentError),
        (1, 0, ArgumentError),
        ("0", 1, ArgumentError),
        (0, None, ArgumentError),
        (0.0, 1, ArgumentError),
        (False, True, ArgumentError),
        (0, 3, ReadFailed),
        (3, 3, ReadFailed),
        (0, 2**63, ReadFailed),
    ],
)
async def test_a_range_that_is_none_or_reaches_beyond_the_end_is_refused_before_anything_is_sent(
    first: object, last: object, error: type[BookKeeperError]
) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0", b"1", b"2")

        with pytest.raises(error, match=f"ledger {reader.ledger_id}"):
            reader.read_range(first, last)  # type: ignore[arg-type]
        assert where.sent == []


@pytest.mark.rule("R-19")
@pytest.mark.parametrize(("entry_id", "error"), [(-1, ArgumentError), (1, ReadFailed), (None, ArgumentError)])
async def test_an_entry_id_that_is_none_or_beyond_the_end_is_refused(
    entry_id: object, error: type[BookKeeperError]
) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0")

        with pytest.raises(error):
            await reader.read(entry_id)  # type: ignore[arg-type]
        assert where.sent == []


# Ranges ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-1")
@pytest.mark.behaviour("T-189")
async def test_a_range_yields_its_entries_in_order_both_ends_included() -> None:
    async with fake_cluster("abcd") as where:
        reader = await reader_of(where, *(b"%d" % i for i in range(20)), sizes=(3, 2, 2))

        assert [entry.payload async for entry in reader.read_range(3, 7)] == [b"3", b"4", b"5", b"6", b"7"]
        assert [entry.entry_id async for entry in reader.read_range(5, 5)] == [5]
        assert [entry.entry_id async for entry in reader] == list(range(20))


async def test_iterating_over_an_empty_ledger_yields_nothing() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where)

        assert [entry async for entry in reader] == []
        assert where.sent == []


@pytest.mark.rule("R-1")
async def test_a_range_spans_the_ensembles_of_its_entries() -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.WRITE
        await writer.append(b"1")
        await settled()
        await writer.append(b"2")
        await writer.close()
        assert len(writer.metadata.fragments) == 2

        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        assert [entry.payload async for entry in reader] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("ahead", "requested"), [(1, [1, 2, 3]), (3, [3, 3, 5])])
async def test_as_many_entries_are_requested_ahead_as_configured_and_again_when_half_of_them_are_taken(
    ahead: int, requested: list[int]
) -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(read_ahead_entries=ahead))) as where:
        reader = await reader_of(where, *(b"x" for _ in range(10)))
        entries = reader.read_range(0, 9)
        where.transport.hold("abc")

        first = asyncio.ensure_future(anext(entries))
        await settled()
        assert len(where.sent) == requested[0]
        for entry_id, count in enumerate(requested[1:]):
            where.transport.release("abc")
            where.transport.hold("abc")
            assert (await first).entry_id == entry_id
            first = asyncio.ensure_future(anext(entries))
            await settled()
            assert len(where.sent) == count

        where.transport.release("abc")
        assert (await first).entry_id == 2
        assert [entry.entry_id async for entry in entries] == list(range(3, 10))


@pytest.mark.rule("R-1")
async def test_the_first_entry_of_a_range_that_cannot_be_read_ends_it_with_its_error() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, *(b"x" for _ in range(6)))
        for bookie_id in "abc":
            corrupt(where, bookie_id, 2)
            del where.transport.bookies[bookie_id].entries[reader.ledger_id, 4]
        entries = reader.read_range(0, 5)

        assert [(await anext(entries)).entry_id for _ in range(2)] == [0, 1]
        with pytest.raises(DigestMismatch, match="entry 2"):
            await anext(entries)
        with pytest.raises(StopAsyncIteration):
            await anext(entries)


async def error_of_iterating(reader: LedgerReader) -> Code | None:
    try:
        async for _ in reader:
            pass
    except BookKeeperError as error:
        return error.code
    return None


async def test_the_rest_of_a_range_that_failed_is_forgotten_without_complaint() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    async with fake_cluster() as where:
        reader = await reader_of(where, *(b"x" for _ in range(20)))
        for bookie in where.transport.bookies.values():
            bookie.code = Code.BOOKIE_NOT_AVAILABLE

        assert await error_of_iterating(reader) == Code.BOOKIE_NOT_AVAILABLE
        await settled()
        gc.collect()

    assert complaints == []


async def test_who_stops_iterating_asks_no_further_replica() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, *(b"x" for _ in range(5)))
        entries = reader.read_range(0, 4)
        await anext(entries)
        where.transport.hold("abc")
        where.sent.clear()

        await entries.aclose()  # type: ignore[attr-defined]
        where.transport.release("abc", Code.TIMEOUT)
        await settled()

        assert where.sent == []


# Callers that go away, clients that close --------------------------------------------------------------------------


async def test_a_read_that_is_cancelled_asks_no_further_replica_and_leaves_the_reader_usable() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0")
        where.transport.hold("abc")
        reading = asyncio.create_task(reader.read(0))
        await settled()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        where.transport.release("abc", Code.TIMEOUT)
        await settled()
        assert len(where.sent) == 1

        assert (await reader.read(0)).payload == b"0"


@pytest.mark.rule("R-5")
@pytest.mark.behaviour("T-51")
async def test_a_closed_client_reads_nothing() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0")
        where.transport.hold("abc")
        under_way = asyncio.create_task(reader.read(0))
        await settled()

    with pytest.raises(ClientClosed):
        await under_way
    with pytest.raises(ClientClosed):
        await reader.read(0)
    with pytest.raises(ClientClosed):
        await reader.read_last_add_confirmed()
    with pytest.raises(ClientClosed):
        await anext(reader.read_range(0, 0))


@pytest.mark.rule("API-18")
async def test_a_read_that_had_met_another_error_before_the_client_closed_fails_as_closed() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, b"0")
        where.transport.bookies[replicas(reader, 0)[0]].code = Code.TIMEOUT
        where.transport.hold(replicas(reader, 0)[1])
        under_way = asyncio.create_task(reader.read(0))
        await settled()

    with pytest.raises(ClientClosed):
        await under_way


@pytest.mark.rule("NR-9")
async def test_a_reader_that_opened_a_closed_ledger_does_not_watch_it_and_closing_it_changes_nothing() -> None:
    async with fake_cluster() as where:
        async with await reader_of(where, b"0") as reader:
            pass
        await reader.aclose()

        assert where.service.snapshot().ledger_watches == {}
        assert (await reader.read(0)).payload == b"0"
