"""What reads tell callers who ask for what cannot be, and what is asked of bookies by default: every word, every edge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bkclient._client.reading.reader import LedgerReader
from bkclient.config import ClientConfig, ConnectionSettings, ReadingSettings, WritingSettings
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    IllegalOperation,
    NoSuchEntry,
    NoSuchLedger,
    ReadFailed,
)
from bkclient.wire.messages import ReadRequest
from tests.bkclient._client.reading.ledgers import reader_of, tail_of, written
from tests.bkclient.fakes import FakeCluster, fake_cluster, in_virtual_time
from tests.settling import settled

LARGEST_ID = 2**63 - 1

Call = Callable[[LedgerReader], Any]

IN_ORDER = ClientConfig(reading=ReadingSettings(speculative_first_s=0, reorder=False))


async def outcome(call: Call, reader: LedgerReader) -> Any:
    """What a call returns, be it made at once, awaited or iterated."""
    result = call(reader)
    if isinstance(result, Awaitable):
        return await result
    return [item async for item in result]


RANGES: dict[str, Callable[..., Call]] = {
    "read_range": lambda first, last, **options: lambda reader: reader.read_range(first, last, **options),
    "read_entries": lambda first, last, **options: lambda reader: reader.read_entries(first, last, **options),
    "read_results": lambda first, last, **options: lambda reader: reader.read_results(first, last, **options),
}
SINGLE: dict[str, Callable[..., Call]] = {
    "read": lambda entry_id, **options: lambda reader: reader.read(entry_id, **options),
    "read_batch": lambda entry_id, **options: lambda reader: reader.read_batch(entry_id, **options),
}
POLL: dict[str, Callable[..., Call]] = {
    "poll": lambda entry_id, **options: (
        lambda reader: reader.read_last_add_confirmed_and_entry(entry_id, 1.0, **options)
    ),
    "tail": lambda entry_id, **options: lambda reader: reader.tail(entry_id, **options),
}


# Arguments -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize(("first", "last"), [(-1, 0), (1, 0), (-2, -1)])
async def test_a_range_that_is_none_is_refused(name: str, first: int, last: int) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 3)
        with pytest.raises(ArgumentError) as caught:
            await outcome(RANGES[name](first, last), reader)
        assert caught.value.message == f"entry ids must satisfy 0 <= first <= last, got {first} and {last}"
        assert caught.value.ledger_id == reader.ledger_id
        assert where.sent == []


@pytest.mark.parametrize("name", [*SINGLE, *POLL])
@pytest.mark.parametrize("entry_id", [True, "0", 0.0, None])
async def test_an_entry_id_is_an_int(name: str, entry_id: Any) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 3)
        with pytest.raises(ArgumentError) as caught:
            await outcome((SINGLE | POLL)[name](entry_id), reader)
        which = "start" if name == "read_batch" else "an entry id"
        assert caught.value.message == f"{which} must be an int, got {type(entry_id).__name__}"
        assert caught.value.ledger_id == reader.ledger_id


@pytest.mark.parametrize("name", ["read", "read_batch"])
async def test_the_largest_id_can_be_asked_for_and_the_next_cannot(name: str) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 3)
        with pytest.raises(NoSuchEntry):
            await outcome(SINGLE[name](LARGEST_ID, unconfirmed=True), reader)
        with pytest.raises(ArgumentError) as caught:
            await outcome(SINGLE[name](LARGEST_ID + 1, unconfirmed=True), reader)
        assert caught.value.message == f"an entry id must be <= {LARGEST_ID}, got {LARGEST_ID + 1}"
        assert caught.value.ledger_id == reader.ledger_id


@pytest.mark.parametrize("name", ["max_count", "max_bytes"])
async def test_bounds_of_a_batch_are_what_the_protocol_has_room_for(name: str) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 3)
        largest: dict[str, Any] = {name: 2**31 - 1}
        assert len(await reader.read_batch(0, **largest)) == 3
        for wrong, message in (
            (2**31, f"{name} must be < 2**31, got {2**31}"),
            (-1, f"{name} must be >= 0, got -1"),
            (True, f"{name} must be an int, got bool"),
            (1.0, f"{name} must be an int, got float"),
        ):
            with pytest.raises(ArgumentError) as caught:
                await reader.read_batch(0, **{name: wrong})  # type: ignore[arg-type]
            assert (caught.value.message, caught.value.ledger_id) == (message, reader.ledger_id)
        with pytest.raises(ArgumentError, match=r"start must be >= 0, got -1"):
            await reader.read_batch(-1)


@pytest.mark.parametrize("name", [*RANGES, *SINGLE])
async def test_what_is_beyond_the_last_add_confirmed_is_not_read_by_default(name: str) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 3)
        call = RANGES[name](1, 3) if name in RANGES else SINGLE[name](3)
        with pytest.raises(ReadFailed) as caught:
            await outcome(call, reader)
        assert caught.value.message == "the last add confirmed known here is 2"
        assert (caught.value.ledger_id, caught.value.entry_id) == (reader.ledger_id, 3)
        assert where.sent == []


@pytest.mark.parametrize("name", ["read_range", "read_entries", "read", "read_batch"])
async def test_unconfirmed_reads_go_beyond_it(name: str) -> None:
    async with fake_cluster() as where:
        writer = await written(where, 3)
        reader = await tail_of(where, writer)
        known = reader.last_add_confirmed
        assert known < 2
        call = RANGES[name](2, 2, unconfirmed=True) if name in RANGES else SINGLE[name](2, unconfirmed=True)
        found = await outcome(call, reader)
        entry = found if name == "read" else next(iter(found))
        assert (entry.entry_id, entry.payload) == (2, b"2")
        await writer.close()


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", [*RANGES, "read"])
async def test_replicas_are_asked_one_after_the_other_unless_all_are_wanted_at_once(
    name: str, *, parallel: bool
) -> None:
    async with fake_cluster(config=IN_ORDER) as where:
        reader = await reader_of(where, 3)
        options: dict[str, Any] = {"parallel": True} if parallel else {}
        await outcome(RANGES[name](1, 1, **options) if name in RANGES else SINGLE[name](1, **options), reader)
        assert len(where.sent) == (3 if parallel else 1)
        assert all(isinstance(request, ReadRequest) and request.entry_id == 1 for _, request in where.sent)


@pytest.mark.parametrize("name", [*RANGES, "read", "poll"])
async def test_flags_are_booleans(name: str) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 3)
        call = RANGES[name](0, 0, parallel=1) if name in RANGES else (SINGLE | POLL)[name](0, parallel=1)
        with pytest.raises(ArgumentError, match="parallel"):
            await outcome(call, reader)
        assert where.sent == []


# What is not there any more -------------------------------------------------------------------------------------------


CALLS: dict[str, Call] = {
    "read": lambda reader: reader.read(0),
    "read_range": lambda reader: reader.read_range(0, 0),
    "read_entries": lambda reader: reader.read_entries(0, 0),
    "read_results": lambda reader: reader.read_results(0, 0),
    "read_batch": lambda reader: reader.read_batch(0),
    "read_last_add_confirmed": lambda reader: reader.read_last_add_confirmed(),
    "try_read_last_add_confirmed": lambda reader: reader.try_read_last_add_confirmed(),
    "poll": lambda reader: reader.read_last_add_confirmed_and_entry(9, 1.0),
    "tail": lambda reader: reader.tail(1),
    "wait_closed": lambda reader: reader.wait_closed(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_after_the_end_of_its_client_every_read_says_so(name: str) -> None:
    async with fake_cluster() as where:
        reader = await tail_of(where, await written(where, 3))
        await where.bk.aclose()
        with pytest.raises(ClientClosed) as caught:
            await outcome(CALLS[name], reader)
        assert caught.value.ledger_id == reader.ledger_id


async def test_a_ledger_without_entries_has_no_last_one() -> None:
    async with fake_cluster() as where:
        closed, open_one = await reader_of(where, 0), await tail_of(where, await written(where, 0))
        for reader in (closed, open_one):
            with pytest.raises(NoSuchEntry) as caught:
                await reader.read_last_entry()
            assert caught.value.message == "the ledger has no confirmed entry"
            assert caught.value.ledger_id == reader.ledger_id
            assert [entry async for entry in reader] == []


async def test_who_waits_for_the_end_of_a_ledger_learns_that_it_was_deleted_or_is_not_followed() -> None:
    async with fake_cluster() as where:
        writer = await written(where, 1)
        reader = await tail_of(where, writer)
        waiting = asyncio.ensure_future(reader.wait_closed())
        await settled()
        await where.bk.delete_ledger(writer.ledger_id)
        for call in (waiting, reader.wait_closed()):
            with pytest.raises(NoSuchLedger) as deleted:
                await call
            assert (deleted.value.message, deleted.value.ledger_id) == ("it was deleted", reader.ledger_id)
        with pytest.raises(NoSuchLedger) as followed:
            await anext(reader.tail(5))
        assert followed.value.message == "it was deleted while it was followed"
        assert followed.value.ledger_id == reader.ledger_id

        other = await tail_of(where, await written(where, 1))
        waiting = asyncio.ensure_future(other.wait_closed())
        await settled()
        await other.aclose()
        for call in (waiting, other.wait_closed()):
            with pytest.raises(IllegalOperation) as stopped:
                await call
            assert stopped.value.message == "this reader does not follow its ledger"
            assert stopped.value.ledger_id == other.ledger_id
        with pytest.raises(IllegalOperation) as unlearned:
            await anext(other.tail(5))
        assert unlearned.value.message == "the reader is closed, so the end cannot be learned"
        assert unlearned.value.ledger_id == other.ledger_id


async def test_a_tail_has_one_reader_at_a_time() -> None:
    async with fake_cluster() as where:
        reader = await tail_of(where, await written(where, 1))
        where.transport.hold("abc")
        tail = reader.tail(3)
        first = asyncio.ensure_future(anext(tail))
        await settled()
        with pytest.raises(IllegalOperation) as caught:
            await anext(tail)
        assert caught.value.message == "another task waits for the next entry"
        assert caught.value.ledger_id == reader.ledger_id
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first


# Polls -----------------------------------------------------------------------------------------------------------------


async def test_a_poll_returns_at_once_what_is_known_already() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 3)
        found = await reader.read_last_add_confirmed_and_entry(1, 10.0)
        assert found.last_add_confirmed == 2
        assert found.entry is not None
        assert found.entry.payload == b"1"
        where.sent.clear()
        beyond = await reader.read_last_add_confirmed_and_entry(3, 10.0)
        assert (beyond.last_add_confirmed, beyond.entry) == (2, None)
        assert where.sent == []


def test_over_version_2_a_poll_without_news_ends_after_its_time() -> None:
    @in_virtual_time
    async def play() -> None:
        async with fake_cluster(
            config=ClientConfig(
                connections=ConnectionSettings(protocol_version=2), writing=WritingSettings(explicit_lac_interval_s=0.0)
            )
        ) as where:
            writer = await written(where, 3)
            reader = await tail_of(where, writer)
            began = asyncio.get_running_loop().time()
            found = await reader.read_last_add_confirmed_and_entry(9, 5.0)
            assert asyncio.get_running_loop().time() - began == pytest.approx(5.0, abs=0.001)
            assert (found.last_add_confirmed, found.entry) == (1, None)
            await writer.close()

    play()


def test_over_version_2_a_poll_returns_with_the_entry_once_it_is_confirmed() -> None:
    @in_virtual_time
    async def play() -> None:
        async with fake_cluster(
            config=ClientConfig(
                connections=ConnectionSettings(protocol_version=2), writing=WritingSettings(explicit_lac_interval_s=0.0)
            )
        ) as where:
            writer = await written(where, 3)
            reader = await tail_of(where, writer)
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 60.0))
            await asyncio.sleep(2)
            assert not polling.done()
            await writer.append(b"3")
            found = await polling
            assert found.last_add_confirmed == 2
            assert found.entry is not None
            assert found.entry.payload == b"2"
            await writer.close()

    play()


async def known_by(where: FakeCluster) -> list[BookKeeperError]:
    """Nothing, unless a read of results hides an entry behind another that cannot be read."""
    reader = await reader_of(where, 3)
    for bookie in where.transport.bookies.values():
        bookie.entries.pop((reader.ledger_id, 1))
    results = [result async for result in reader.read_results(0, 2)]
    assert [result.entry_id for result in results] == [0, 1, 2]
    assert [None if result.entry is None else result.entry.payload for result in results] == [b"0", None, b"2"]
    return [result.error for result in results if result.error is not None]


async def test_an_entry_that_is_lost_hides_no_other() -> None:
    async with fake_cluster() as where:
        (error,) = await known_by(where)
        assert type(error) is NoSuchEntry
        assert error.entry_id == 1
