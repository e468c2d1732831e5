"""Replicas that let a reader wait: when another one is asked, what is remembered, and how that changes which one is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from bkclient._client.health import PENDING_IF_UNWRITABLE
from bkclient._client.reading.reader import LedgerReader
from bkclient.config import ClientConfig, ReadingSettings
from bkclient.errors import BookieNotAvailable, Code, RequestTimeout, UnexpectedCondition
from bkclient.ledger import BookieId
from bkclient.observability import stats as names
from bkclient.placement import BookieHealth, RandomPlacement
from bkclient.repair.admin import core_of
from bkclient.wire.messages import ReadRequest
from tests.bkclient._client.reading.ledgers import reader_of
from tests.bkclient.fakes import FakeCluster, fake_cluster, in_virtual_time
from tests.bkclient.inside import reads_of
from tests.settling import settled


def now() -> float:
    return asyncio.get_running_loop().time()


def order_of(reader: LedgerReader, entry_id: int = 0) -> tuple[str, ...]:
    metadata = reader.metadata
    ensemble = metadata.ensemble_at(entry_id)
    return tuple(ensemble[(entry_id + i) % len(ensemble)] for i in range(metadata.write_quorum_size))


def asked(where: FakeCluster) -> list[str]:
    return [bookie_id for bookie_id, request in where.sent if isinstance(request, ReadRequest)]


class Stats:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, int]] = []
        self.events: Counter[str] = Counter()

    def now(self) -> float:
        return now()

    def operation(self, name: str, seconds: float, code: int) -> None:
        assert seconds >= 0
        self.operations.append((name, code))

    def event(self, name: str, amount: int = 1) -> None:
        self.events[name] += amount

    def level(self, name: str, change: int) -> None:
        pass


# Speculation -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-11")
@pytest.mark.rule("RO-6")
@pytest.mark.behaviour("T-195")
@in_virtual_time
async def test_a_hung_replica_costs_one_delay_and_is_known_as_slow() -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(speculative_first_s=1.0))) as where:
        reader = await reader_of(where)
        first, second, _ = order_of(reader)
        where.transport.hold(first)
        began = now()

        assert (await reader.read(0)).payload == b"0"
        assert now() - began == pytest.approx(1.0)
        assert asked(where) == [first, second]
        assert [reads_of(reader).health.is_slow(b) for b in order_of(reader)] == [True, False, False]


@pytest.mark.behaviour("T-195")
@in_virtual_time
async def test_without_speculation_a_hung_replica_is_waited_for() -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(speculative_first_s=0))) as where:
        reader = await reader_of(where)
        first, second, _ = order_of(reader)
        where.transport.hold(first)
        asyncio.get_running_loop().call_later(30, where.transport.release, first, Code.TIMEOUT)
        began = now()

        assert (await reader.read(0)).payload == b"0"
        assert now() - began == pytest.approx(30)
        assert asked(where) == [first, second]


@pytest.mark.rule("R-11")
@pytest.mark.behaviour("T-196")
@in_virtual_time
async def test_two_hung_replicas_cost_two_delays_and_exactly_those_are_slow() -> None:
    config = ClientConfig(
        reading=ReadingSettings(speculative_first_s=1.0, speculative_max_s=1.5, speculative_backoff=2.0)
    )
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where)
        for bookie_id in order_of(reader)[:2]:
            where.transport.hold(bookie_id)
        began = now()

        await reader.read(0)
        assert now() - began == pytest.approx(2.5)
        assert [reads_of(reader).health.is_slow(b) for b in order_of(reader)] == [True, True, False]


@pytest.mark.rule("R-9")
@pytest.mark.behaviour("T-197")
@in_virtual_time
async def test_the_overtaken_replica_may_still_answer_and_is_not_slow_then() -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(speculative_first_s=1.0))) as where:
        reader = await reader_of(where)
        first, second, _ = order_of(reader)
        where.transport.hold(first + second)
        asyncio.get_running_loop().call_later(1.5, where.transport.release, first)
        began = now()

        await reader.read(0)
        assert now() - began == pytest.approx(1.5)
        assert asked(where) == [first, second]
        assert not reads_of(reader).health.is_slow(first)


@pytest.mark.rule("R-12")
@pytest.mark.behaviour("T-198")
@in_virtual_time
async def test_after_the_end_nobody_is_asked_and_no_timer_stays_on() -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(speculative_first_s=1.0))) as where:
        reader = await reader_of(where, 20)
        where.transport.hold(order_of(reader)[0])
        await reader.read(0)
        [entry async for entry in reader.read_range(1, 1)]
        where.sent.clear()
        await asyncio.sleep(10)

        assert where.sent == []
        assert reads_of(reader).waiting == {}
        assert reads_of(reader)._timer is None


@pytest.mark.rule("R-11")
@pytest.mark.behaviour("T-199")
@in_virtual_time
async def test_a_replica_that_answers_other_entries_of_the_operation_is_waited_for() -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(speculative_first_s=1.0))) as where:
        reader = await reader_of(where, 4, sizes=(3, 3, 2))
        first = order_of(reader, 0)[0]
        where.transport.hold(first)
        reading = asyncio.ensure_future(reader.read_entries(0, 3))
        await asyncio.sleep(0.5)
        # Entries 0 and 3 were asked of it; it answers entry 0 and keeps silent about entry 3.
        where.transport.answer_first(1)
        await asyncio.sleep(5)
        assert asked(where).count(first) == 2
        assert len(asked(where)) == 4

        where.transport.release(first)
        assert [entry.payload for entry in await reading] == [b"0", b"1", b"2", b"3"]
        assert not reads_of(reader).health.is_slow(first)


@pytest.mark.rule("R-11")
@in_virtual_time
async def test_what_a_replica_answered_before_an_entry_was_asked_for_does_not_vouch_for_it() -> None:
    config = ClientConfig(reading=ReadingSettings(speculative_first_s=1.0, read_ahead_entries=1))
    async with fake_cluster(config=config) as where:
        reader = await reader_of(where, 4)
        entries = reader.read_range(0, 3)
        for _ in range(3):
            await anext(entries)
        where.transport.hold(order_of(reader, 3)[0])
        began = now()

        assert (await anext(entries)).payload == b"3"
        assert now() - began == pytest.approx(1.0)


@in_virtual_time
async def test_a_read_that_was_cancelled_asks_nobody_when_it_would_be_late() -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(speculative_first_s=1.0))) as where:
        reader = await reader_of(where)
        where.transport.hold("abc")
        reading = asyncio.ensure_future(reader.read(0))
        await settled()
        reading.cancel()
        await asyncio.sleep(5)

        assert len(asked(where)) == 1


@in_virtual_time
async def test_entries_asked_for_at_different_times_are_late_at_different_times() -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(speculative_first_s=1.0))) as where:
        reader = await reader_of(where)
        where.transport.hold(order_of(reader)[0])
        began, ends = now(), []

        async def read_after(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            await reader.read(0)
            ends.append(round(now() - began, 6))

        await asyncio.gather(*(read_after(delay_s) for delay_s in (0.0, 0.25, 0.25, 0.75, 3.0)))
        assert ends == [1.0, 1.25, 1.25, 1.75, 3.0], "the last one knows of a slow bookie and asks another one first"


@pytest.mark.rule("R-12")
@pytest.mark.rule("R-18")
@in_virtual_time
async def test_a_parallel_read_asks_all_replicas_and_takes_the_fastest() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where, 2)
        where.transport.hold("".join(order_of(reader)[:2]))
        began = now()

        assert (await reader.read(0, parallel=True)).payload == b"0"
        assert now() == began
        assert asked(where) == [*order_of(reader)]
        assert not any(reads_of(reader).health.is_slow(b) for b in order_of(reader))
        where.transport.release("abc")
        assert [entry.entry_id async for entry in reader.read_range(0, 1, parallel=True)] == [0, 1]
        assert len(asked(where)) == 9


# What is remembered ------------------------------------------------------------------------------------------------


@pytest.mark.rule("RO-6")
@in_virtual_time
async def test_a_mark_is_shared_by_all_readers_of_the_client_and_forgotten_after_a_while() -> None:
    async with fake_cluster(
        config=ClientConfig(reading=ReadingSettings(speculative_first_s=1.0, bookie_failure_history_s=60))
    ) as where:
        reader, other = await reader_of(where), await reader_of(where)
        first = order_of(reader)[0]
        where.transport.hold(first)
        await reader.read(0)

        assert reads_of(other).health.is_slow(first)
        await asyncio.sleep(59.9)
        assert reads_of(other).health.is_slow(first)
        await asyncio.sleep(0.2)
        assert not reads_of(other).health.is_slow(first)


@pytest.mark.rule("RO-6")
@in_virtual_time
async def test_where_replicas_are_ordered_by_load_nobody_is_marked() -> None:
    async with fake_cluster(
        config=ClientConfig(reading=ReadingSettings(speculative_first_s=1.0, reorder_threshold_pending_requests=5))
    ) as where:
        reader = await reader_of(where)
        where.transport.hold(order_of(reader)[0])
        await reader.read(0)

        assert not reads_of(reader).health.is_slow(order_of(reader)[0])


@pytest.mark.rule("RO-7")
@pytest.mark.rule("H-27")
@pytest.mark.parametrize(
    ("code", "is_noted"),
    [(Code.NO_SUCH_ENTRY, True), (Code.READ, True), (Code.DATA_UNKNOWN, True), (Code.TOO_MANY_REQUESTS, False)],
)
async def test_ordinary_reads_note_which_entry_a_bookie_failed_to_deliver(code: Code, is_noted: bool) -> None:
    async with fake_cluster() as where:
        reader, other = await reader_of(where, 4), await reader_of(where)
        first = order_of(reader, 3)[0]
        where.transport.bookies[first].code = code
        await reader.read(3)

        assert reads_of(reader).health.last_failed_entry(first) == (3 if is_noted else None)
        assert reads_of(reader).health.last_failed_entry(order_of(reader, 3)[1]) is None
        assert reads_of(other).health.last_failed_entry(first) is None, "entry ids mean something within one ledger"


@pytest.mark.rule("RO-7")
async def test_failures_are_not_noted_if_that_is_switched_off() -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(bookie_failure_tracking=False))) as where:
        reader = await reader_of(where)
        where.transport.bookies[order_of(reader)[0]].code = Code.NO_SUCH_ENTRY
        await reader.read(0)

        assert reads_of(reader).health.last_failed_entry(order_of(reader)[0]) is None


@pytest.mark.rule("RO-3")
async def test_a_bookie_whose_connection_takes_no_more_counts_as_the_busiest() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where)
        where.transport.hold("a")
        reading = asyncio.ensure_future(reader.read(0, parallel=True))
        await settled()
        where.transport.unwritable.add("b")

        assert [reads_of(reader).health.pending_requests(b) for b in "abc"] == [1, PENDING_IF_UNWRITABLE, 0]
        await reading


# Which to ask -------------------------------------------------------------------------------------------------------


class Backwards(RandomPlacement):
    """Asks the last replica first, and remembers which bookies it was asked about."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.replicas: list[tuple[str, ...]] = []

    def read_order(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
        assert health.last_failed_entry("nobody") is None
        self.replicas.append(tuple(write_set))
        return tuple(reversed(write_set))


class Forgetful(RandomPlacement):
    """Breaks the rule that no replica may be left out."""

    def read_order(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
        return tuple(write_set)[1:]


@pytest.mark.rule("RO-1")
@pytest.mark.parametrize("reorders", [True, False])
async def test_the_policy_orders_the_write_set_unless_that_is_switched_off(reorders: bool) -> None:
    policy, stats = Backwards(), Stats()
    async with fake_cluster(
        "abcd", config=ClientConfig(reading=ReadingSettings(reorder=reorders)), placement=policy, stats=stats
    ) as where:
        reader = await reader_of(where, 2, sizes=(4, 3, 2))
        await reader.read(1)

        write_set = order_of(reader, 1)
        assert asked(where) == [write_set[2 if reorders else 0]]
        assert policy.replicas == ([write_set] if reorders else [])
        assert stats.events[names.READS_REORDERED] == (1 if reorders else 0)


@pytest.mark.rule("RO-1")
async def test_a_policy_that_leaves_out_a_replica_fails_the_read() -> None:
    async with fake_cluster(placement=Forgetful(Random(1))) as where:
        reader = await reader_of(where)

        with pytest.raises(UnexpectedCondition, match="must only reorder"):
            await reader.read(0)
        assert where.sent == []


@pytest.mark.rule("R-23")
@pytest.mark.behaviour("T-207")
async def test_sticky_reads_keep_to_one_bookie_until_it_fails() -> None:
    async with fake_cluster(config=ClientConfig(reading=ReadingSettings(sticky=True))) as where:
        reader = await reader_of(where, 9)
        await reader.read_entries(0, 8)
        assert len(set(asked(where))) == 1
        (sticky,) = set(asked(where))

        where.transport.bookies[sticky].code = Code.BOOKIE_NOT_AVAILABLE
        where.sent.clear()
        await reader.read(0)
        await reader.read(1)
        assert len(asked(where)) == 3
        assert asked(where)[0] == sticky
        assert asked(where)[1] == asked(where)[2] != sticky


@pytest.mark.rule("R-23")
@pytest.mark.behaviour("T-207")
@in_virtual_time
async def test_sticky_reads_leave_a_bookie_that_hangs() -> None:
    async with fake_cluster(
        config=ClientConfig(reading=ReadingSettings(sticky=True, speculative_first_s=1.0))
    ) as where:
        reader = await reader_of(where, 9)
        await reader.read(0)
        (sticky,) = asked(where)
        where.transport.hold(sticky)
        await reader.read(0)
        where.sent.clear()
        began = now()
        await reader.read_entries(0, 8)

        assert now() == began
        assert sticky not in asked(where)


@pytest.mark.rule("R-23")
@pytest.mark.behaviour("T-207")
async def test_readers_begin_with_different_bookies_and_striped_ledgers_know_no_sticky_reads() -> None:
    async with fake_cluster("abcd", config=ClientConfig(reading=ReadingSettings(sticky=True))) as where:
        firsts = set()
        for _ in range(20):
            reader = await reader_of(where, 1, sizes=(3, 3, 2))
            await reader.read(0)
            firsts.add(order_of(reader).index(asked(where)[0]))
        assert firsts == {0, 1, 2}

        striped = await reader_of(where, 8, sizes=(4, 2, 2))
        await striped.read_entries(0, 7)
        by_entry = {
            request.entry_id: bookie_id for bookie_id, request in where.sent if isinstance(request, ReadRequest)
        }
        assert by_entry == {entry_id: order_of(striped, entry_id)[0] for entry_id in range(8)}


# What is told ------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_reads_late_answers_and_corruption_are_counted() -> None:
    stats = Stats()
    async with fake_cluster(
        config=ClientConfig(reading=ReadingSettings(speculative_first_s=1.0)), stats=stats
    ) as where:
        reader = await reader_of(where, 2)
        stats.operations.clear()
        where.transport.hold(order_of(reader)[0])
        await reader.read(0)
        where.transport.release(order_of(reader)[0])
        entries = where.transport.bookies[order_of(reader, 1)[0]].entries
        entries[reader.ledger_id, 1] = b"rotten"
        await reader.read(1)
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TIMEOUT
        with pytest.raises(RequestTimeout):
            await reader.read(0)

        assert stats.operations == [(names.READ, 0), (names.READ, 0), (names.READ, Code.TIMEOUT)]
        assert stats.events[names.SPECULATIVE_READS] == 1
        assert stats.events[names.DIGEST_MISMATCHES] == 1


async def test_the_watcher_of_bookies_is_told_of_failed_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where)
        told: list[tuple[str, int]] = []
        monkeypatch.setattr(core_of(where.bk).watcher, "on_request_failed", lambda b, code: told.append((b, code)))
        for bookie in where.transport.bookies.values():
            bookie.code = Code.BOOKIE_NOT_AVAILABLE
        with pytest.raises(BookieNotAvailable):
            await reader.read(0)

        assert told == [(bookie_id, Code.BOOKIE_NOT_AVAILABLE) for bookie_id in order_of(reader)]
