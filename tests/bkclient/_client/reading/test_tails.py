"""Following a ledger entry by entry while bookies come and go, callers give up and come back, and in the end it is closed."""

from __future__ import annotations

import asyncio
import gc

import anyio
import pytest

from bkclient import BookKeeper, LedgerReader, LedgerWriter
from bkclient._client.reading.tail import LedgerTail
from bkclient.config import ClientConfig, ReadingSettings
from bkclient.entry import Entry
from bkclient.errors import (
    ArgumentError,
    BookieNotAvailable,
    BookKeeperError,
    ClientClosed,
    Code,
    DigestMismatch,
    IllegalOperation,
    NoSuchLedger,
)
from tests.bkclient.fakes import fake_cluster, writer_of
from tests.bkclient.virtual_cluster import VirtualCluster, now, run_in_cluster
from tests.settling import settled


async def follow(tail: LedgerTail) -> list[bytes]:
    """Everything to the end; entries come each once and in order."""
    payloads: list[bytes] = []
    first: int | None = None
    async for entry in tail:
        first = entry.entry_id if first is None else first
        assert entry.entry_id == first + len(payloads)
        payloads.append(entry.payload)
    return payloads


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


async def append(writer: LedgerWriter, first: int, last: int, *, pause_s: float = 0.0) -> None:
    for number in range(first, last + 1):
        await writer.append(b"%d" % number)
        if pause_s:
            await asyncio.sleep(pause_s)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("sizes", [(3, 3, 2), (4, 2, 2)])
@pytest.mark.parametrize("pause_s", [0.0, 0.05, 2.0])
def test_a_tail_delivers_every_entry_once_and_in_order_and_ends_with_the_ledger(
    version: int, sizes: tuple[int, int, int], pause_s: float
) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=5, sizes=sizes, connections={"protocol_version": version}) as (
            writer,
            reader,
        ):
            tails = [asyncio.ensure_future(follow(reader.tail(first))) for first in (0, 7)]
            await append(writer, 5, 30, pause_s=pause_s)
            await writer.close()
            began = now()
            assert await tails[0] == numbers(0, 30)
            assert await tails[1] == numbers(7, 30)
            assert now() - began < 1.5
            assert reader.length == sum(map(len, numbers(0, 30)))

    run_in_cluster(program, bookies=4)


@pytest.mark.parametrize("version", [2, 3])
def test_of_a_closed_ledger_a_tail_is_a_range_and_beyond_its_end_nothing(version: int) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with (
            cluster.ledger(entries=5) as (writer, _),
            cluster.client(connections={"protocol_version": version}) as client,
        ):
            await writer.close()
            reader = await client.open_ledger(writer.ledger_id, recover=True)
            assert await follow(reader.tail(2)) == numbers(2, 4)
            assert await follow(reader.tail(5)) == await follow(reader.tail(2**62)) == []

    run_in_cluster(program)


def test_a_tail_of_a_ledger_without_entries_waits_for_the_first() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger() as (writer, reader):
            tail = asyncio.ensure_future(follow(reader.tail(patience_s=1)))
            await asyncio.sleep(30)
            await append(writer, 0, 3)
            await writer.close()
            assert await tail == numbers(0, 3)

    run_in_cluster(program)


def test_a_tail_that_waits_costs_few_requests() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (writer, reader):
            tail = asyncio.ensure_future(follow(reader.tail()))
            await asyncio.sleep(600)
            assert len(cluster.requests) < 600 / 10 * 4
            await writer.close()
            assert await tail == numbers(0, 2)

    run_in_cluster(program)


def test_a_new_entry_is_delivered_at_once() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=2) as (writer, reader):
            tail = reader.tail(1)
            for entry_id in range(1, 6):
                waiting = asyncio.ensure_future(anext(tail))
                await asyncio.sleep(0.7)
                began = now()
                await writer.append(b"%d" % (entry_id + 1))
                assert (await waiting).entry_id == entry_id
                assert now() - began < 0.05
            await tail.aclose()

    run_in_cluster(program)


# Bookies that fail -------------------------------------------------------------------------------------------------


@pytest.mark.rule("NR-7")
@pytest.mark.rule("NR-10")
@pytest.mark.behaviour("T-164")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("fault", ["crash", "cut", "pause"])
def test_a_tail_lives_through_the_replacement_of_every_bookie(version: int, fault: str) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3, connections={"protocol_version": version}) as (writer, reader):
            tail = asyncio.ensure_future(follow(reader.tail()))
            first = writer.metadata.last_fragment.ensemble
            written = 3
            for bookie_id in first:
                {"crash": cluster.bookies[bookie_id].crash, "pause": cluster.bookies[bookie_id].pause}.get(
                    fault, lambda bookie_id=bookie_id: cluster.cut(bookie_id)
                )()
                for _ in range(3):
                    await append(writer, written, written + 4, pause_s=0.5)
                    written += 5
            assert not set(first) & set(writer.metadata.last_fragment.ensemble)
            for bookie_id in first:  # what is only there is there again
                bookie = cluster.bookies[bookie_id]
                if not bookie.is_alive:
                    bookie.restart()
                elif bookie.is_paused:
                    bookie.resume()
            cluster.world.network.heal()
            await writer.close()
            assert await tail == numbers(0, written - 1)

    run_in_cluster(program, bookies=6)


def test_bookies_that_are_all_away_for_a_while_cost_pauses_and_no_entry() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=4) as (writer, reader):
            tail = asyncio.ensure_future(follow(reader.tail()))
            await asyncio.sleep(1)
            for bookie in cluster.bookies.values():
                bookie.crash()
            cluster.requests.clear()
            await asyncio.sleep(30)
            assert len(cluster.requests) < 100
            for bookie in cluster.bookies.values():
                bookie.restart()
                await bookie.registered()
            await asyncio.sleep(20)
            await append(writer, 4, 6)
            await writer.close()
            assert await tail == numbers(0, 6)

    run_in_cluster(program)


def test_a_failure_that_lasts_is_raised_and_the_tail_can_go_on_after_it() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=4) as (writer, reader):
            tail = reader.tail(patience_s=10)
            assert (await anext(tail)).entry_id == 0
            for bookie in cluster.bookies.values():
                bookie.crash()
            began = now()
            with pytest.raises(BookieNotAvailable):
                await follow(tail)
            assert 10 <= now() - began < 20

            for bookie in cluster.bookies.values():
                bookie.restart()
                await bookie.registered()
            await asyncio.sleep(20)
            await append(writer, 4, 5)
            await writer.close()
            rest = await follow(tail)
            assert rest == numbers(6 - len(rest), 5)

    run_in_cluster(program)


async def test_what_repeating_does_not_help_against_is_raised_at_once() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        for number in range(3):
            await writer.append(b"%d" % number)
        await settled()
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        for bookie in where.transport.bookies.values():
            bookie.entries[writer.ledger_id, 1] = b"rotten"
        tail = reader.tail()

        assert (await anext(tail)).payload == b"0"
        with pytest.raises(DigestMismatch):
            await anext(tail)
        await tail.aclose()


async def test_bookies_that_do_not_wait_are_not_asked_without_a_pause() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        await writer.append(b"0")
        await settled()
        for bookie in where.transport.bookies.values():
            bookie.max_lac = -1  # and answers long polls as other reads, at once
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        for bookie in where.transport.bookies.values():
            bookie.entries.clear()
        where.sent.clear()
        tail = reader.tail()
        with anyio.move_on_after(0.05):
            await anext(tail)
        await tail.aclose()

        assert len(where.sent) < 20


# Ledgers that go, readers that close -------------------------------------------------------------------------------


@pytest.mark.rule("NR-7")
@pytest.mark.behaviour("T-165")
@pytest.mark.parametrize("version", [2, 3])
def test_a_tail_of_a_ledger_that_was_deleted_ends_with_an_error_after_what_was_confirmed(version: int) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with (
            cluster.ledger(entries=4, connections={"protocol_version": version}) as (writer, reader),
            cluster.client() as other,
        ):
            tail, closed = reader.tail(), asyncio.ensure_future(reader.wait_closed())
            assert (await anext(tail)).entry_id == 0
            await other.delete_ledger(writer.ledger_id)
            with pytest.raises(NoSuchLedger):
                await closed
            with pytest.raises(NoSuchLedger):
                await reader.wait_closed()
            assert reader.is_deleted
            assert not reader.is_closed
            assert [(await anext(tail)).entry_id for _ in range(2)] == [1, 2]
            with pytest.raises(NoSuchLedger):
                await anext(tail)

    run_in_cluster(program)


@pytest.mark.rule("NR-8")
def test_a_reader_that_is_closed_cannot_be_followed_beyond_what_it_knows() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=4) as (_, reader):
            tail = reader.tail()
            closed = asyncio.ensure_future(reader.wait_closed())
            await asyncio.sleep(0.1)
            await reader.aclose()
            for wait in (closed, reader.wait_closed()):
                with pytest.raises(IllegalOperation):
                    await wait
            assert [(await anext(tail)).entry_id for _ in range(3)] == [0, 1, 2]
            with pytest.raises(IllegalOperation):
                await anext(tail)
            assert not reader.is_following

    run_in_cluster(program)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("after_s", [0.0, 0.3, 5.0])
def test_a_client_that_closes_ends_a_tail_with_an_error(version: int, after_s: float) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=4) as (writer, _):
            async with cluster.client(connections={"protocol_version": version}) as client:
                reader = await client.open_ledger(writer.ledger_id, recover=False)
                tail = asyncio.ensure_future(follow(reader.tail()))
                await asyncio.sleep(after_s)
            with pytest.raises(ClientClosed):
                await tail

    run_in_cluster(program)


# Callers that go away ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("patience_s", [0.0005, 0.004, 0.3])
def test_a_caller_that_gives_up_again_and_again_misses_nothing(version: int, patience_s: float) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=5, connections={"protocol_version": version}) as (writer, reader):
            writing = asyncio.ensure_future(append(writer, 5, 40, pause_s=0.01))
            payloads: list[bytes] = []
            given_up = 0
            async with reader.tail() as tail:
                while len(payloads) < 40:
                    with anyio.move_on_after(patience_s) as scope:
                        payloads.append((await anext(tail)).payload)
                    given_up += scope.cancelled_caught
                assert payloads == numbers(0, 39)
                assert given_up > 0 or patience_s > 0.1
                await writing
                await writer.close()
                assert await follow(tail) == numbers(40, 40)
            with pytest.raises(StopAsyncIteration):
                await anext(tail)

    run_in_cluster(program)


def test_a_poll_outlives_the_callers_that_give_up_waiting() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (writer, reader):
            tail = reader.tail(2)
            for _ in range(20):
                with anyio.move_on_after(0.01):
                    await anext(tail)
            assert len(cluster.polls()) == 1
            await writer.append(b"3")
            assert (await anext(tail)).payload == b"2"
            await tail.aclose()
            await tail.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(tail)

    run_in_cluster(program)


def test_two_tasks_at_a_time_are_one_too_many() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (_, reader), reader.tail(2) as tail:
            waiting = asyncio.ensure_future(anext(tail))
            await asyncio.sleep(0.1)
            with pytest.raises(IllegalOperation, match="another task"):
                await anext(tail)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    run_in_cluster(program)


async def test_who_just_stops_following_leaves_nothing_behind_that_complains() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    async with (
        fake_cluster(config=ClientConfig(reading=ReadingSettings(read_ahead_entries=4))) as where,
        await writer_of(where) as writer,
    ):
        for number in range(9):
            await writer.append(b"%d" % number)
        await settled()
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        where.transport.hold("abc")
        following = asyncio.ensure_future(_first(reader))
        await settled()
        where.transport.answer_first(1)
        assert (await following).payload == b"0"
        gc.collect()
        where.sent.clear()
        where.transport.release("abc", Code.BOOKIE_NOT_AVAILABLE)
        await settled()
        gc.collect()
        assert where.sent == []

    assert complaints == []


async def _first(reader: LedgerReader) -> Entry:
    async for entry in reader.tail():
        return entry
    raise AssertionError("it is not empty")


@pytest.mark.parametrize(
    ("first", "patience_s"),
    [(-1, 1.0), ("0", 1.0), (True, 1.0), (2**63, 1.0), (0, -1), (0, float("nan")), (0, "1"), (0, True), (0, 1e9)],
)
async def test_wrong_arguments_of_a_tail_are_refused(first: int, patience_s: float) -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        with pytest.raises(ArgumentError):
            reader.tail(first, patience_s=patience_s)


# Many at once ------------------------------------------------------------------------------------------------------


async def write_through_crashes(
    cluster: VirtualCluster, client: BookKeeper, created: asyncio.Future[int], entries: int
) -> None:
    rng = cluster.world.rng("weather")
    writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
    created.set_result(writer.ledger_id)
    for number in range(entries):
        await writer.wait_for_room()
        writer.append_nowait(b"%d" % number)
        if rng.random() < 0.2:
            await asyncio.sleep(rng.uniform(0, 0.1))
        # One at a time, so that the writer finds replacements.
        if number % (entries // 5) == entries // 10 and all(bookie.is_alive for bookie in cluster.bookies.values()):
            victim = cluster.bookies[rng.choice(writer.metadata.last_fragment.ensemble)]
            victim.crash()
            cluster.world.loop.call_later(rng.uniform(0.1, 1), victim.restart)
    await writer.flush()
    await writer.close()


async def follow_through_crashes(cluster: VirtualCluster, ledger_id: int, entries: int, version: int) -> None:
    async with cluster.client(connections={"protocol_version": version}) as client:
        reader: LedgerReader | None = None
        while reader is None:
            try:
                reader = await client.open_ledger(ledger_id, recover=False)
            except BookKeeperError:
                await asyncio.sleep(0.5)
        async with reader:
            assert await follow(reader.tail()) == numbers(0, entries - 1)


@pytest.mark.parametrize(
    ("readers", "entries", "seed"),
    [(8, 100, 1), (8, 100, 2), pytest.param(50, 2000, 3, marks=[pytest.mark.sweep, pytest.mark.timeout(1200)])],
)
def test_many_tails_of_one_ledger_see_all_of_it_whatever_breaks(readers: int, entries: int, seed: int) -> None:
    async def program(cluster: VirtualCluster) -> None:
        created: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with cluster.client() as writing, anyio.create_task_group() as tasks:
            tasks.start_soon(write_through_crashes, cluster, writing, created, entries)
            ledger_id = await created
            for number in range(readers):
                tasks.start_soon(follow_through_crashes, cluster, ledger_id, entries, 2 + number % 2)

    run_in_cluster(program, bookies=8, seed=seed)
