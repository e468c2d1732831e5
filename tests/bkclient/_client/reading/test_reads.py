"""What the reads of a handle promise beyond single entries: several at once, unconfirmed ones, results one by one, stability."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from bkclient import LedgerReader
from bkclient.config import (
    ClientConfig,
    ConnectionSettings,
    LimitSettings,
    ReadingSettings,
    TimeoutSettings,
    WritingSettings,
)
from bkclient.errors import (
    BookieNotAvailable,
    BookKeeperError,
    ClientClosed,
    Code,
    DigestMismatch,
    IllegalOperation,
    NoSuchEntry,
    ReadFailed,
)
from bkclient.ledger import LedgerState
from bkclient.observability import stats as names
from bkclient.wire.messages import ReadRequest
from tests.bkclient._client.reading.ledgers import BOTH_VERSIONS, reader_of, tail_of, written
from tests.bkclient._client.reading.test_late_reads import Stats
from tests.bkclient.fakes import fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import followed_of, polls_of, reads_of
from tests.cancellation import Cancel, cancel_everywhere
from tests.settling import settled

# Several at once ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-1")
@pytest.mark.behaviour("T-190")
@pytest.mark.parametrize("parallel", [False, True])
async def test_a_range_read_as_a_whole_comes_as_a_whole_or_fails_as_one(parallel: bool) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 4)
        entries = await reader.read_entries(1, 3, parallel=parallel)
        assert [entry.payload for entry in entries] == [b"1", b"2", b"3"]

        with pytest.raises(NoSuchEntry, match="entry 4"):
            await reader.read_entries(1, 5, parallel=parallel, unconfirmed=True)
        with pytest.raises(ReadFailed):
            await reader.read_entries(1, 4, parallel=parallel)


@pytest.mark.behaviour("T-193")
@pytest.mark.parametrize("parallel", [False, True])
async def test_each_entry_of_a_range_has_its_own_outcome_in_order(parallel: bool) -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(read_ahead_entries=3))) as where:
        reader = await reader_of(where, 7)
        for bookie in where.transport.bookies.values():
            bookie.entries[reader.ledger_id, 1] = b"rotten"
            del bookie.entries[reader.ledger_id, 4]
        results = [result async for result in reader.read_results(0, 6, parallel=parallel)]

        assert [result.entry_id for result in results] == list(range(7))
        assert [result.entry_id for result in results if result.entry is None] == [1, 4]
        assert isinstance(results[1].error, DigestMismatch)
        assert isinstance(results[4].error, NoSuchEntry)
        assert [r.entry.payload for r in results if r.entry is not None] == [b"0", b"2", b"3", b"5", b"6"]
        assert all((result.error is None) != (result.entry is None) for result in results)


async def test_a_closed_client_ends_the_results_with_its_error() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 3)
        where.transport.hold("abc")
        results = reader.read_results(0, 2)
        reading = asyncio.ensure_future(anext(results))
        await settled()

    with pytest.raises(ClientClosed):
        await reading


@pytest.mark.behaviour("T-38")
@pytest.mark.parametrize("config", BOTH_VERSIONS)
async def test_with_all_bookies_stopped_a_read_fails_as_unavailable_once(config: ClientConfig) -> None:
    stats = Stats()
    async with fake_cluster(config=config, stats=stats) as where:
        reader = await reader_of(where, 2)
        stats.operations.clear()
        for bookie in where.transport.bookies.values():
            bookie.code = Code.BOOKIE_NOT_AVAILABLE

        for call in (lambda: reader.read(0), lambda: reader.read_entries(0, 0)):
            with pytest.raises(BookieNotAvailable):
                await call()
        await settled()
        assert stats.operations == [(names.READ, Code.BOOKIE_NOT_AVAILABLE)] * 2


# Unconfirmed -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-20")
@pytest.mark.behaviour("T-39")
@pytest.mark.behaviour("T-40")
@pytest.mark.parametrize("config", BOTH_VERSIONS)
async def test_unconfirmed_reads_go_to_the_last_entry_and_move_nothing(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where, await written(where, 5) as writer:
        reader = await tail_of(where, writer)

        assert (await reader.read(4, unconfirmed=True)).payload == b"4"
        assert [entry.payload async for entry in reader.read_range(2, 4, unconfirmed=True)] == [b"2", b"3", b"4"]
        assert (reader.last_add_confirmed, reader.length) == (3, 4), "entry 4 is not part of it yet"
        with pytest.raises(NoSuchEntry, match="entry 5"):
            await reader.read(5, unconfirmed=True)
        with pytest.raises(NoSuchEntry, match="entry 7"):
            [entry async for entry in reader.read_range(7, 9, unconfirmed=True)]


@pytest.mark.rule("H-16")
@pytest.mark.rule("R-19")
async def test_a_confirmed_read_beyond_the_lac_fails_until_that_is_refreshed() -> None:
    async with fake_cluster() as where, await written(where, 3) as writer:
        reader = await tail_of(where, writer)
        await writer.append(b"3")
        await settled()
        with pytest.raises(ReadFailed):
            await reader.read(2)

        assert await reader.read_last_add_confirmed() == 2
        assert (await reader.read(2)).payload == b"2"


# What a reader learns ----------------------------------------------------------------------------------------------


@pytest.mark.rule("LAC-3")
@pytest.mark.behaviour("T-156")
async def test_reading_alone_moves_a_reader_by_what_bookies_tell_in_passing() -> None:
    stats = Stats()
    async with fake_cluster(stats=stats) as where, await written(where, 5) as writer:
        reader = await tail_of(where, writer)
        for entry_id in range(5, 9):
            await writer.append(b"%d" % entry_id)
        await settled()
        for bookie in where.transport.bookies.values():
            bookie.max_lac = 7
        read = [entry.entry_id async for entry in reader]
        read += [entry.entry_id async for entry in reader.read_range(4, reader.last_add_confirmed)]

        assert read == list(range(8))
        assert (stats.events[names.LAC_UPDATE_HITS], stats.events[names.LAC_UPDATE_MISSES]) == (1, 7)


@pytest.mark.rule("H-17")
@pytest.mark.rule("R-35")
@pytest.mark.parametrize("config", BOTH_VERSIONS)
async def test_no_question_for_the_lac_takes_a_reader_back(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where, await written(where, 4) as writer:
        reader = await tail_of(where, writer)
        for bookie in where.transport.bookies.values():
            for entry_id in (1, 2, 3):
                del bookie.entries[writer.ledger_id, entry_id]

        assert await reader.read_last_add_confirmed() == 2
        assert await reader.try_read_last_add_confirmed() == 2


@pytest.mark.rule("NR-5")
@pytest.mark.rule("H-18")
@pytest.mark.parametrize("config", BOTH_VERSIONS)
async def test_the_length_of_an_open_ledger_is_that_of_the_last_confirmed_entry_read(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where, await written(where, 5) as writer:
        reader = await tail_of(where, writer)
        assert reader.length == 0
        await reader.read(2)
        assert reader.length == 3
        await reader.read(0)
        assert reader.length == 3
        await writer.close()
        await settled()
        assert reader.length == 5


@pytest.mark.rule("H-37")
@pytest.mark.rule("API-13")
async def test_an_entry_tells_its_own_size_and_the_ledgers_length() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        for payload in (b"four", b"", b"seven77"):
            await writer.append(payload)
        entries = await writer.reader.read_entries(0, 2) if hasattr(writer, "read_entries") else []
        entries = entries or [entry async for entry in writer.reader.read_range(0, 2)]

        assert [(entry.size, entry.ledger_length) for entry in entries] == [(4, 4), (0, 4), (7, 11)]


@pytest.mark.parametrize("config", BOTH_VERSIONS)
async def test_all_before_an_empty_last_fragment_is_confirmed(config: ClientConfig) -> None:
    async with fake_cluster("abcdef", config=config) as where, await written(where, 3) as writer:
        reader = await tail_of(where, writer)
        assert reader.last_add_confirmed == 1
        others = tuple(sorted(set("abcdef") - set(writer.metadata.last_fragment.ensemble)))
        where.edit(writer.ledger_id, lambda metadata: metadata.with_ensemble(3, others))
        await settled()

        assert reader.last_add_confirmed == 2
        fresh = await tail_of(where, writer)
        assert fresh.last_add_confirmed == await fresh.read_last_add_confirmed() == 2
        assert (await fresh.read(2)).payload == b"2"


@pytest.mark.rule("NR-6")
async def test_what_a_tailing_reader_may_read_survives_a_recovery() -> None:
    async with fake_cluster() as where:
        writer = await written(where, 6)
        reader = await tail_of(where, writer)
        seen = [entry.payload async for entry in reader]
        for bookie_id in writer.metadata.last_fragment.ensemble[:1]:
            where.transport.bookies[bookie_id].code = Code.BOOKIE_NOT_AVAILABLE
        recovered = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        await settled()

        assert recovered.last_add_confirmed >= reader.last_add_confirmed >= len(seen) - 1
        assert [entry.payload async for entry in recovered][: len(seen)] == seen


# Following the metadata --------------------------------------------------------------------------------------------


@pytest.mark.rule("NR-10")
async def test_a_reader_with_a_stale_ensemble_reads_no_metadata_and_learns_by_its_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fake_cluster("abcdef") as where, await written(where, 3) as writer:
        reader = await tail_of(where, writer)
        old = writer.metadata.last_fragment.ensemble
        reads: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(where.store, "read_ledger", reads.append)
            for bookie_id in old:
                where.transport.bookies[bookie_id].code = Code.NO_SUCH_ENTRY
            with pytest.raises(NoSuchEntry):
                await reader.read(0)
        assert reads == []

        others = tuple(sorted(set("abcdef") - set(old)))
        for old_id, new_id in zip(old, others, strict=True):
            where.transport.bookies[new_id].entries = dict(where.transport.bookies[old_id].entries)
        where.edit(writer.ledger_id, lambda metadata: metadata.with_ensemble(0, others))
        await settled()
        assert (await reader.read(0)).payload == b"0"
        for bookie_id in old:
            where.transport.bookies[bookie_id].code = None


@pytest.mark.rule("NR-9")
@pytest.mark.behaviour("T-166")
@pytest.mark.parametrize("recovers", [True, False])
async def test_a_reader_that_keeps_up_outlives_all_bookies_it_started_with(recovers: bool) -> None:
    async with fake_cluster("abcdef") as where:
        writer = await written(where, 4)
        if not recovers:
            await writer.close()
        reader = await where.bk.open_ledger(
            writer.ledger_id, password=b"secret", keep_metadata_updated=True, recover=True
        )
        ensemble = list(reader.metadata.last_fragment.ensemble)
        for position, spare in enumerate(sorted(set("abcdef") - set(ensemble))):
            leaving = where.transport.bookies[ensemble[position]]
            where.transport.bookies[spare].entries = dict(leaving.entries)
            leaving.code = Code.BOOKIE_NOT_AVAILABLE
            ensemble[position] = spare
            where.edit(writer.ledger_id, lambda metadata: metadata.with_ensemble(0, tuple(ensemble)))
            await settled()
            assert [entry.payload async for entry in reader] == [b"0", b"1", b"2", b"3"]
        await reader.aclose()


async def test_the_close_is_waited_for_by_any_number_of_callers() -> None:
    async with fake_cluster() as where:
        writer = await written(where, 3)
        reader = await tail_of(where, writer)
        waits = [asyncio.ensure_future(reader.wait_closed()) for _ in range(3)]
        await settled()
        waits[0].cancel()
        await settled()
        assert [wait.done() for wait in waits] == [True, False, False]
        waits[1].cancel()  # and the close comes before it has noticed
        followed_of(reader)._end_waits(None)
        await writer.close()
        await waits[2]
        assert waits[1].cancelled()

        assert reader.last_add_confirmed == 2
        await reader.wait_closed()


async def test_who_does_not_follow_a_ledger_cannot_wait_for_its_close() -> None:
    async with fake_cluster() as where, await written(where, 3) as writer:
        reader = await tail_of(where, writer)
        waiting = asyncio.ensure_future(reader.wait_closed())
        await settled()
        await reader.aclose()

        with pytest.raises(IllegalOperation):
            await waiting
        with pytest.raises(IllegalOperation):
            await reader.wait_closed()


@in_virtual_time
async def test_a_change_wakes_the_pauses_of_all_tails() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        reader = await tail_of(where, writer)
        tails = [asyncio.ensure_future(anext(reader.tail(), None)) for _ in range(3)]
        await asyncio.sleep(30)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await writer.close()

        assert await asyncio.gather(*tails) == [None] * 3
        assert loop.time() == began


# Long polls --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-3")
async def test_a_long_poll_that_brings_another_entry_than_asked_for_is_a_corrupt_answer() -> None:
    async with fake_cluster() as where, await written(where, 4) as writer:
        reader = await tail_of(where, writer)
        for bookie in where.transport.bookies.values():
            bookie.max_lac = 9
        with pytest.raises(DigestMismatch, match="entry 9"):
            await reader.read_last_add_confirmed_and_entry(9, 1.0)
        assert reader.last_add_confirmed == 2, "what comes with a corrupt answer is not believed"

        result = await reader.read_last_add_confirmed_and_entry(3, 1.0)
        assert result.entry is not None
        assert (result.entry.payload, result.last_add_confirmed) == (b"3", 9)


async def test_a_change_of_the_metadata_that_concerns_no_ensemble_leaves_a_poll_alone() -> None:
    async with fake_cluster() as where, await written(where, 4) as writer:
        reader = await tail_of(where, writer)
        where.transport.hold("abc")
        poll = polls_of(reader).start(3, 10.0, parallel=True)
        where.edit(writer.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
        await settled()
        assert not poll.future.done()
        assert len([request for _, request in where.sent if isinstance(request, ReadRequest)]) == 3

        where.edit(writer.ledger_id, lambda metadata: metadata.closed(3, 4))
        await settled()
        assert poll.future.result().last_add_confirmed == 3
        poll.on_metadata()
        polls_of(reader).end(poll)
        where.transport.release("abc")


# Callers that go away ----------------------------------------------------------------------------------------------


async def _all(entries: Any) -> list[Any]:
    return [entry async for entry in entries]


async def _next_of_tail(reader: LedgerReader, first: int) -> Any:
    async with reader.tail(first) as tail:
        # not anyio's: before 4.16 a task that is cancelled just as a scope of its own expires goes on
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                return await anext(tail)
    return None


CALLS: dict[str, Callable[[LedgerReader], Any]] = {
    "read": lambda reader: reader.read(0),
    "read, parallel": lambda reader: reader.read(0, parallel=True),
    "read_unconfirmed": lambda reader: reader.read(3, unconfirmed=True),
    "read_range": lambda reader: _all(reader.read_range(0, 2)),
    "read_range_unconfirmed": lambda reader: _all(reader.read_range(0, 3, unconfirmed=True)),
    "read_entries": lambda reader: reader.read_entries(0, 2),
    "read_entries_unconfirmed": lambda reader: reader.read_entries(0, 3, unconfirmed=True),
    "read_results": lambda reader: _all(reader.read_results(0, 2)),
    "read_batch": lambda reader: reader.read_batch(0),
    "read_batch_unconfirmed": lambda reader: reader.read_batch(0, unconfirmed=True),
    "iteration": _all,
    "read_last_entry": lambda reader: reader.read_last_entry(),
    "read_last_add_confirmed": lambda reader: reader.read_last_add_confirmed(),
    "try_read_last_add_confirmed": lambda reader: reader.try_read_last_add_confirmed(),
    "poll": lambda reader: reader.read_last_add_confirmed_and_entry(3, 0.2),
    "poll, confirmed": lambda reader: reader.read_last_add_confirmed_and_entry(1, 0.2),
    "tail": lambda reader: _next_of_tail(reader, 0),
    "tail, waiting": lambda reader: _next_of_tail(reader, 3),
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("hindrance", ["none", "late", "busy", "rate"])
@pytest.mark.parametrize("call", CALLS)
def test_a_read_that_is_cancelled_anywhere_leaves_the_reader_as_good_as_before(
    call: str, hindrance: str, version: int
) -> None:
    config = ClientConfig(
        connections=ConnectionSettings(protocol_version=version),
        writing=WritingSettings(explicit_lac_interval_s=0),
        reading=ReadingSettings(read_ahead_entries=2, speculative_first_s=0.1),
        timeouts=TimeoutSettings(backpressure_s=0.01 if hindrance == "busy" else None),
        limits=LimitSettings(throttle_per_s=4 if hindrance == "rate" else 0),
    )

    async def story(cancel: Cancel) -> None:
        async with fake_cluster(config=config) as where, await written(where, 4) as writer:
            reader = await tail_of(where, writer)
            first = writer.metadata.last_fragment.ensemble[0]
            if hindrance == "late":
                where.transport.hold(first)
                asyncio.get_running_loop().call_later(0.5, where.transport.release, first, Code.TIMEOUT)
            elif hindrance == "busy":
                where.transport.unwritable.update("abc")
            with suppress(BookKeeperError, TimeoutError):  # what comes of it is shown elsewhere
                await cancel(CALLS[call](reader))
            where.transport.unwritable.clear()
            where.transport.release("abc", Code.TIMEOUT)
            await asyncio.sleep(1)
            assert reads_of(reader).waiting == {}
            assert len(polls_of(reader)) == 0
            assert followed_of(reader)._end_waiters == {}
            assert [entry.payload async for entry in reader] == [b"0", b"1", b"2"]
            assert await reader.read_last_add_confirmed() == 2
            where.sent.clear()
            await asyncio.sleep(1)
            assert where.sent == [], "nothing goes on in the background"

    cancel_everywhere(story, at_least=1)


def test_waiting_for_the_close_may_be_cancelled() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            writer = await written(where, 2)
            reader = await tail_of(where, writer)
            asyncio.get_running_loop().call_later(1, lambda: asyncio.ensure_future(writer.close()))
            await cancel(reader.wait_closed())
            assert followed_of(reader)._end_waiters == {}
            await reader.wait_closed()

    cancel_everywhere(story, at_least=1)
