"""Tails at bookies that forget a long poll when they hear of the LAC that it names, or of one below, as BookKeeper's own do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from bkclient import LedgerWriter
from bkclient._client.reading.tail import LedgerTail
from simbookie.config import BookieConfig
from simbookie.world.links import NetworkConfig
from tests.bkclient.virtual_cluster import VirtualCluster, now, run_in

pytestmark = pytest.mark.rule("H-47")

#: How soon a tail has an entry. A poll that was forgotten takes 0.1 s at least, and 1.5 s where a bookie was said to have told.
_SOON_S = 0.05


def run(program: Callable[[VirtualCluster], Awaitable[None]], *, bookies: int = 3, seed: int = 1) -> None:
    config = BookieConfig(long_polls_wait_on=False)
    run_in(lambda world: VirtualCluster(world, bookies, config=config), program, seed=seed)


class Following:
    """Reads a tail to its end, and notes when each entry came."""

    def __init__(self, tail: LedgerTail) -> None:
        self.came: dict[int, float] = {}
        self.ended = asyncio.ensure_future(self._follow(tail))

    async def _follow(self, tail: LedgerTail) -> None:
        async for entry in tail:
            assert entry.payload == b"%d" % entry.entry_id
            assert entry.entry_id not in self.came
            self.came[entry.entry_id] = now()

    def delays(self, told: dict[int, float]) -> dict[int, float]:
        """What passed between the telling of an entry and its coming."""
        return {entry_id: self.came[entry_id] - when for entry_id, when in told.items() if entry_id in self.came}


async def append(writer: LedgerWriter, first: int, last: int, *, pause_s: float = 0.0) -> dict[int, float]:
    """Append, and return when the acknowledgement of the next entry told each to be confirmed."""
    told: dict[int, float] = {}
    for number in range(first, last + 1):
        await writer.append(b"%d" % number)
        told[number - 1] = now()
        await asyncio.sleep(pause_s)
    return told


@pytest.mark.parametrize("burst", [1, 2, 3, 7])
@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_tail_does_not_stall_at_a_bookie_that_hears_of_every_entry_after_the_others(slow: int, burst: int) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client("writer") as writing, cluster.client() as reading:
            writer = await writing.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            link = cluster.world.network.link("writer", writer.metadata.last_fragment.ensemble[slow])
            link.config = NetworkConfig(latency_s=0.003)
            await append(writer, 0, 1)
            reader = await reading.open_ledger(writer.ledger_id, recover=False)
            following = Following(reader.tail())
            told: dict[int, float] = {}
            for number in range(2, 101, burst):
                told |= await append(writer, number, min(number + burst - 1, 100))
                await asyncio.sleep(0.01)
            await writer.close()
            await following.ended
            assert list(following.came) == list(range(101))
            assert max(following.delays(told).values()) < _SOON_S

    run(program)


@pytest.mark.parametrize("how", ["opened", "asked", "tried", "read"])
@pytest.mark.parametrize("slow", [0, 1, 2])
def test_the_first_poll_of_a_tail_goes_to_a_bookie_that_told_the_lac_however_that_was_learned(
    slow: int, how: str
) -> None:
    """One bookie is 20 ms behind the others, so it never knows the LAC that a reader learned just now."""

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client("writer") as writing, cluster.client() as reading:
            writer = await writing.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            link = cluster.world.network.link("writer", writer.metadata.last_fragment.ensemble[slow])
            link.config = NetworkConfig(latency_s=0.02)
            reader = await reading.open_ledger(writer.ledger_id, recover=False)
            appending = asyncio.ensure_future(append(writer, 0, 50, pause_s=0.005))
            await asyncio.sleep(0.1)
            if how == "opened":
                reader = await reading.open_ledger(writer.ledger_id, recover=False)
            elif how == "asked":
                await reader.read_last_add_confirmed()
            else:
                await reader.try_read_last_add_confirmed()
            if how == "read":
                while reader.last_add_confirmed < 30:
                    await reader.read(reader.last_add_confirmed)
                    await asyncio.sleep(0.001)
            first = reader.last_add_confirmed + 1
            following = Following(reader.tail(first))
            told = await appending
            await writer.close()
            await following.ended
            assert list(following.came) == list(range(first, 51))
            assert max(following.delays(told).values()) < _SOON_S

    run(program)


@pytest.mark.parametrize("ahead", [2, 3, 30])
def test_a_tail_from_beyond_the_next_entry_does_not_stall_at_those_before_it(ahead: int) -> None:
    """A poll for the entry that it is to begin with would be forgotten at the first entry before that."""

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=5) as (writer, reader):
            first = reader.last_add_confirmed + ahead
            following = Following(reader.tail(first))
            told = await append(writer, 5, 60, pause_s=0.01)
            await writer.close()
            await following.ended
            assert list(following.came) == list(range(first, 61))
            assert max(following.delays(told).values()) < _SOON_S

    run(program)


@pytest.mark.parametrize("victim", [1, 2])
def test_a_tail_stalls_for_a_tenth_of_a_second_where_only_the_metadata_told_the_lac(victim: int) -> None:
    """The bookie that is polled hears of just that LAC a moment later. No bookie told it, so polls are short until one has."""

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client("writer") as writing, cluster.client() as reading:
            writer = await writing.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            ensemble = writer.metadata.last_fragment.ensemble
            await asyncio.gather(*(writer.append(b"%d" % number) for number in range(9)))
            reader = await reading.open_ledger(writer.ledger_id, recover=False)
            following = Following(reader.tail(9))
            await asyncio.sleep(1)
            assert reader.last_add_confirmed == -1, "the entries do not tell of each other"
            cluster.world.network.link("writer", ensemble[0]).config = NetworkConfig(latency_s=0.03)
            cluster.bookies[ensemble[victim]].crash()
            told = await append(writer, 9, 60, pause_s=0.01)
            assert [fragment.first_entry_id for fragment in writer.metadata.fragments] == [0, 9]
            await writer.close()
            await following.ended
            assert list(following.came) == list(range(9, 61))
            assert max(following.delays(told).values()) < 0.1 + _SOON_S

    run(program, bookies=4)


def test_while_nothing_is_confirmed_polls_are_short_at_first_and_few() -> None:
    """BookKeeper's bookies forget those that name no entry, too, if they come before the first one."""

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=1) as (writer, reader):
            following = Following(reader.tail())
            await asyncio.sleep(60)
            waits_ms = [timeout_ms for _, timeout_ms in cluster.polls() if timeout_ms]
            assert waits_ms[:4] == [100, 200, 400, 800]
            assert max(waits_ms) == 10_000
            assert len(cluster.requests) < 40
            await writer.close()
            await following.ended

    run(program)


def test_a_poll_that_others_overtook_while_the_caller_was_away_is_not_taken_for_that_for_the_next_entry() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=3) as (writer, reader):
            tail = reader.tail(2)
            with anyio.move_on_after(0.01):
                await anext(tail)
            await append(writer, 3, 3)
            await asyncio.sleep(1)
            assert (await anext(tail)).entry_id == 2
            waiting = asyncio.ensure_future(anext(tail))
            await append(writer, 4, 4, pause_s=1)
            assert (await waiting).entry_id == 3

    run(program)
