"""Waiting at real bookies for the next entry, and asking them for the first sign of progress."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.entry import LastConfirmedAndEntry
from bkclient.errors import (
    ArgumentError,
    BookieNotAvailable,
    ClientClosed,
    Code,
    NoSuchLedgerOnBookie,
)
from bkclient.observability import stats as names
from bkclient.wire.messages import LAST_ENTRY, ReadRequest
from simbookie.world.calls import RequestMessage
from simbookie.world.faults import Fate
from tests.bkclient._client.reading.test_late_reads import Stats
from tests.bkclient.inside import reads_of
from tests.bkclient.virtual_cluster import VirtualCluster, now, run_in_cluster


def position(ensemble: tuple[str, ...], entry_id: int) -> str:
    return ensemble[entry_id % len(ensemble)]


# Long polls --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-39")
@pytest.mark.rule("R-40")
@pytest.mark.rule("DS-3")
@pytest.mark.behaviour("T-150")
@pytest.mark.parametrize("parallel", [False, True])
def test_a_long_poll_ends_with_the_next_entry_when_that_is_confirmed(parallel: bool) -> None:
    async def program(cluster: VirtualCluster) -> None:
        stats = Stats()
        async with cluster.ledger(entries=3, stats=stats) as (writer, reader):
            assert reader.last_add_confirmed == 1
            stats.operations.clear()
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 5.0, parallel=parallel))
            await asyncio.sleep(1)
            assert not polling.done()
            ensemble = writer.metadata.last_fragment.ensemble
            told_by = reads_of(reader).view.told_by
            asked = dict.fromkeys((told_by, *(ensemble[(2 + i) % 3] for i in range(3))))
            assert cluster.polls() == [(bookie_id, 5000) for bookie_id in list(asked)[: 3 if parallel else 1]]
            request = next(r for _, r in cluster.requests if isinstance(r, ReadRequest))
            assert request.entry_id == LAST_ENTRY
            assert request.long_poll is not None
            assert (request.long_poll.previous_lac, request.long_poll.piggyback) == (1, True)

            await writer.append(b"3")
            result = await polling
            assert result.entry is not None
            assert (result.last_add_confirmed, result.entry.entry_id, result.entry.payload) == (2, 2, b"2")
            assert (reader.last_add_confirmed, reader.length) == (2, 3)
            await asyncio.sleep(10)
            assert stats.operations == [(names.READ_LAC_AND_ENTRY, 0)]

    run_in_cluster(program)


@pytest.mark.rule("R-39")
def test_an_entry_that_is_confirmed_already_is_just_read() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=5) as (_, reader):
            began = now()
            result = await reader.read_last_add_confirmed_and_entry(1, 5.0)

            assert result.entry is not None
            assert (result.last_add_confirmed, result.entry.payload) == (3, b"1")
            assert cluster.polls() == []
            assert now() - began < 0.1

    run_in_cluster(program)


@pytest.mark.rule("R-39")
@pytest.mark.behaviour("T-28")
@pytest.mark.parametrize("version", [2, 3])
def test_a_closed_ledger_answers_every_question_for_its_end_by_itself(version: int) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with (
            cluster.ledger(entries=2) as (writer, _),
            cluster.client(connections={"protocol_version": version}) as client,
        ):
            await writer.close()
            reader = await client.open_ledger(writer.ledger_id, recover=False)
            cluster.requests.clear()

            assert (reader.is_closed, reader.last_add_confirmed, reader.length) == (True, 1, 2)
            assert await reader.read_last_add_confirmed() == await reader.try_read_last_add_confirmed() == 1
            await reader.wait_closed()
            assert await reader.read_last_add_confirmed_and_entry(7, 5.0) == LastConfirmedAndEntry(1, None)
            assert cluster.requests == []
            found = await reader.read_last_add_confirmed_and_entry(0, 5.0)
            assert found.entry is not None
            assert found.entry.payload == b"0"

    run_in_cluster(program)


@pytest.mark.rule("R-44")
@pytest.mark.rule("R-45")
@pytest.mark.rule("R-41")
def test_a_poll_without_news_ends_in_time_and_is_no_error() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (_, reader):
            began = now()
            result = await reader.read_last_add_confirmed_and_entry(2, 4.0)

            assert result == LastConfirmedAndEntry(1, None)
            assert now() - began == pytest.approx(4.0, abs=0.1)
            # The second one is asked when the first is late, and waits for what is left of the time.
            assert [timeout_ms for _, timeout_ms in cluster.polls()] == [4000, 2500]

    run_in_cluster(program)


@pytest.mark.rule("H-21")
@pytest.mark.rule("R-24")
def test_a_poll_may_wait_longer_than_the_timeout_of_a_read() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3, timeouts={"read_s": 1.0}) as (writer, reader):
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 60.0))
            await asyncio.sleep(50)
            await writer.append(b"3")
            assert (await polling).last_add_confirmed == 2

    run_in_cluster(program)


@pytest.mark.rule("R-43")
@pytest.mark.behaviour("T-152")
def test_a_bookie_that_knows_the_lac_and_lacks_the_entry_ends_the_poll_without_it() -> None:
    async def program(cluster: VirtualCluster) -> None:
        # Striped, one copy each: the news that an entry is confirmed comes to another bookie than the entry.
        async with cluster.ledger(entries=4, sizes=(4, 1, 1)) as (writer, reader):
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(3, 5.0, parallel=True))
            await asyncio.sleep(1)
            await writer.append(b"4")
            result = await polling
            assert result == LastConfirmedAndEntry(3, None)
            assert (await reader.read(3)).payload == b"3"

    run_in_cluster(program, bookies=4)


@pytest.mark.behaviour("T-151")
@pytest.mark.parametrize("call", ["poll", "try", "read"])
def test_long_polls_and_lac_reads_go_on_while_bookies_are_down(call: str) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3, sizes=(3, 3, 1)) as (writer, reader):
            down = position(writer.metadata.last_fragment.ensemble, 2)
            cluster.bookies[down].crash()
            if call == "poll":
                polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 30.0))
                await asyncio.sleep(1)
                await writer.append(b"3")
                await writer.append(b"4")
                assert (await polling).last_add_confirmed >= 2
            elif call == "try":
                assert await reader.try_read_last_add_confirmed() == 1
            else:
                with pytest.raises(BookieNotAvailable):  # with Qa = 1 any bookie may know more
                    await reader.read_last_add_confirmed()

    run_in_cluster(program, bookies=4)


@pytest.mark.behaviour("T-153")
@pytest.mark.behaviour("T-155")
def test_a_late_answer_leaves_a_finished_poll_alone_and_is_known_to_the_next() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (writer, reader):
            slow = writer.metadata.last_fragment.ensemble[0]
            held = cluster.world.network.intercept(
                lambda _source, destination, message: (
                    destination == slow
                    and isinstance(message, RequestMessage)
                    and isinstance(message.request, ReadRequest)
                ),
                Fate.HOLD,
            )
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 30.0, parallel=True))
            await asyncio.sleep(0.5)
            await writer.append(b"3")
            assert (await polling).last_add_confirmed == 2
            await writer.append(b"4")
            held.remove()
            held.release()
            await asyncio.sleep(1)
            assert polling.result().last_add_confirmed == 2
            assert reader.last_add_confirmed == 3
            assert (await reader.read_last_add_confirmed_and_entry(3, 3.0)).entry is not None

    run_in_cluster(program)


@pytest.mark.behaviour("T-154")
def test_speculative_polls_to_several_bookies_end_once() -> None:
    async def program(cluster: VirtualCluster) -> None:
        stats = Stats()
        async with cluster.ledger(entries=3, stats=stats) as (writer, reader):
            stats.operations.clear()
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 30.0))
            await asyncio.sleep(6)
            assert len(cluster.polls()) == 3
            await writer.append(b"3")
            assert (await polling).last_add_confirmed == 2
            await asyncio.sleep(60)
            assert stats.operations == [(names.READ_LAC_AND_ENTRY, 0)]
            assert stats.events[names.SPECULATIVE_READS] == 2
            assert stats.events[names.LAC_UPDATE_HITS] == 1

    run_in_cluster(program)


@pytest.mark.rule("R-43")
def test_a_bookie_that_was_cut_off_costs_one_delay() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (writer, reader):
            cluster.world.network.block(position(writer.metadata.last_fragment.ensemble, 2), "client")
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 30.0))
            await asyncio.sleep(0.1)
            writer.append_nowait(b"3")
            began = now()
            assert (await polling).last_add_confirmed == 2
            assert now() - began < 1.6

    run_in_cluster(program)


@pytest.mark.rule("R-43")
def test_a_poll_fails_only_when_nobody_answers() -> None:
    async def program(cluster: VirtualCluster) -> None:
        stats = Stats()
        async with cluster.ledger(entries=3, stats=stats) as (_, reader):
            for bookie in cluster.bookies.values():
                bookie.crash()
            with pytest.raises(BookieNotAvailable, match="entry 2"):
                await reader.read_last_add_confirmed_and_entry(2, 30.0)
            assert stats.operations[-1] == (names.READ_LAC_AND_ENTRY, Code.BOOKIE_NOT_AVAILABLE)

    run_in_cluster(program)


@pytest.mark.rule("RO-7")
def test_a_ledger_that_bookies_do_not_know_yet_is_nothing_to_blame_them_for() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(sizes=(3, 1, 1)) as (writer, reader):
            with pytest.raises(NoSuchLedgerOnBookie):
                await reader.read_last_add_confirmed_and_entry(0, 5.0)
            ensemble = writer.metadata.last_fragment.ensemble
            assert [reads_of(reader).health.last_failed_entry(b) for b in ensemble] == [0, None, None]

    run_in_cluster(program)


@pytest.mark.rule("NR-7")
def test_a_poll_ends_when_the_ledger_is_closed() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (writer, reader):
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 60.0))
            beyond = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(3, 60.0))
            closing = asyncio.ensure_future(reader.wait_closed())
            await asyncio.sleep(1)
            began = now()
            await writer.close()
            assert await polling == await beyond == LastConfirmedAndEntry(2, None)
            await closing
            assert now() - began < 1
            assert (reader.is_closed, reader.length) == (True, 3)

    run_in_cluster(program)


@pytest.mark.rule("NR-7")
@pytest.mark.behaviour("T-164")
def test_a_poll_goes_on_at_the_new_ensemble() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3, sizes=(2, 2, 2)) as (writer, reader):
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(4, 60.0))
            await asyncio.sleep(1)
            old = writer.metadata.last_fragment.ensemble
            for bookie_id in old:
                cluster.cut(bookie_id)
            began = now()
            cluster.world.loop.call_later(30, cluster.world.network.heal)
            for entry_id in (3, 4, 5):
                await writer.append(b"%d" % entry_id)
            assert not set(old) & set(writer.metadata.last_fragment.ensemble)
            result = await polling
            assert result.entry is not None
            assert result.entry.payload == b"4"
            assert now() - began < 25

    run_in_cluster(program, bookies=6)


def test_an_ensemble_change_that_confirms_the_entry_ends_the_poll() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3, sizes=(1, 1, 1)) as (writer, reader):
            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 60.0))
            await asyncio.sleep(1)
            cluster.cut(writer.metadata.last_fragment.ensemble[0])
            await writer.append(b"3")
            assert [fragment.first_entry_id for fragment in writer.metadata.fragments] == [0, 3]
            assert await polling == LastConfirmedAndEntry(2, None)
            # T-72: all before the last fragment is confirmed, whatever its bookies know.
            assert reader.last_add_confirmed == 2

    run_in_cluster(program)


def test_a_client_that_closes_ends_polls_and_waits() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (writer, _):
            async with cluster.client() as client:
                reader = await client.open_ledger(writer.ledger_id, recover=False)
                waits = [
                    asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 60.0)),
                    asyncio.ensure_future(reader.wait_closed()),
                ]
                await asyncio.sleep(1)
            for wait in waits:
                with pytest.raises(ClientClosed):
                    await wait
            for call in (reader.wait_closed, reader.try_read_last_add_confirmed):
                with pytest.raises(ClientClosed):
                    await call()
            with pytest.raises(ClientClosed):
                await reader.read_last_add_confirmed_and_entry(2, 60.0)

    run_in_cluster(program)


@pytest.mark.parametrize(
    ("entry_id", "timeout_s", "parallel"),
    [
        (-1, 1.0, False),
        ("2", 1.0, False),
        (2**63, 1.0, False),
        (2, -0.1, False),
        (2, float("nan"), False),
        (2, 3601, False),
        (2, "1", False),
        (2, True, False),
        (2, None, False),
        (2, 1.0, 1),
    ],
)
def test_wrong_arguments_of_a_poll_are_refused(entry_id: int, timeout_s: float, parallel: bool) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (_, reader):
            with pytest.raises(ArgumentError):
                await reader.read_last_add_confirmed_and_entry(entry_id, timeout_s, parallel=parallel)
            assert cluster.requests == []

    run_in_cluster(program)


@pytest.mark.rule("R-2")
def test_polls_take_permits_like_other_requests() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3, limits={"throttle_per_s": 1}) as (_, reader):
            await asyncio.sleep(5)
            await reader.read_last_add_confirmed_and_entry(2, 0.1, parallel=True)
            began = now()
            await reader.read(0)
            assert now() - began == pytest.approx(2.9, abs=0.2)

    run_in_cluster(program)


# Over protocol version 2 -------------------------------------------------------------------------------------------


@pytest.mark.rule("R-39")
def test_over_version_2_the_lac_is_asked_for_until_the_entry_is_confirmed_or_the_time_is_up() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3, connections={"protocol_version": 2}) as (writer, reader):
            began = now()
            assert await reader.read_last_add_confirmed_and_entry(2, 2.0) == LastConfirmedAndEntry(1, None)
            assert now() - began == pytest.approx(2.0, abs=0.1)
            assert 0 < len(cluster.requests) < 60

            polling = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(2, 20.0))
            await asyncio.sleep(1)
            await writer.append(b"3")
            result = await polling
            assert result.entry is not None
            assert (result.last_add_confirmed, result.entry.payload) == (2, b"2")

            beyond = asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(9, 20.0))
            await writer.close()
            assert await beyond == LastConfirmedAndEntry(3, None)
            assert cluster.polls() == []

    run_in_cluster(program)


# The first sign of progress ----------------------------------------------------------------------------------------


@pytest.mark.rule("R-38")
@pytest.mark.behaviour("T-147")
@pytest.mark.behaviour("T-157")
@pytest.mark.parametrize("version", [2, 3])
def test_the_first_progress_is_the_lac_of_the_last_entry_and_no_progress_the_known_one(version: int) -> None:
    async def program(cluster: VirtualCluster) -> None:
        stats = Stats()
        async with cluster.ledger(entries=3, connections={"protocol_version": version}, stats=stats) as (
            writer,
            reader,
        ):
            for entry_id in range(3, 10):
                await writer.append(b"%d" % entry_id)
            assert await reader.try_read_last_add_confirmed() == 8
            assert await reader.try_read_last_add_confirmed() == 8
            assert reader.last_add_confirmed == 8
            assert stats.operations[-2:] == [(names.TRY_READ_LAC, 0)] * 2

    run_in_cluster(program)


@pytest.mark.rule("R-38")
@pytest.mark.behaviour("T-148")
def test_one_bookie_of_three_suffices() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=5, sizes=(3, 1, 1)) as (writer, reader):
            alive = position(writer.metadata.last_fragment.ensemble, 3)
            for name, bookie in cluster.bookies.items():
                if name != alive:
                    bookie.crash()
            assert await reader.try_read_last_add_confirmed() == 3

    run_in_cluster(program)


@pytest.mark.rule("R-38")
@pytest.mark.behaviour("T-149")
def test_with_no_bookie_alive_asking_for_progress_is_an_error() -> None:
    async def program(cluster: VirtualCluster) -> None:
        stats = Stats()
        async with cluster.ledger(entries=5, stats=stats) as (_, reader):
            for bookie in cluster.bookies.values():
                bookie.crash()
            with pytest.raises(BookieNotAvailable, match=f"ledger {reader.ledger_id}"):
                await reader.try_read_last_add_confirmed()
            assert stats.operations[-1] == (names.TRY_READ_LAC, Code.BOOKIE_NOT_AVAILABLE)

    run_in_cluster(program)
