"""A writer whose bookies die or fall asleep, in simulated time: what it does about it, and which copies exist in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from bkclient import BookKeeper, ClientConfig
from bkclient._client.writing.writer import LedgerWriter
from bkclient.errors import Code, UnauthorizedAccess
from bkclient.protocol.append import AppendMachine
from bkclient.repair.admin import RepairAdmin
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.wire.messages import AddRequest, Request
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host
from simbookie.world.transport import SimulatedTransport
from tests.bkclient.virtual_cluster import VirtualCluster, now, run_in


class RefusingTransport(SimulatedTransport):
    """A transport on which adds to some bookies are refused as unauthorized."""

    refusing: tuple[str, ...] = ()

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        if bookie_id in self.refusing and isinstance(request, AddRequest):
            asyncio.get_running_loop().call_soon(reply_to, bookie_id, request, Code.UNAUTHORIZED, None)
        else:
            super().submit(bookie_id, request, reply_to)


class Place:
    """A client, and bookies by name."""

    def __init__(self, client: BookKeeper, transport: RefusingTransport, bookies: dict[str, BookieHost]) -> None:
        self.client = client
        self.transport = transport
        self.bookies = bookies

    async def payloads(self, ledger_id: int) -> list[bytes]:
        """What a client that opens the ledger finds in it."""
        reader = await self.client.open_ledger(ledger_id, recover=True)
        return [(await reader.read(entry_id)).payload for entry_id in range(reader.last_add_confirmed + 1)]

    async def is_sound(self, ledger_id: int) -> bool:
        """Whether every copy of every entry is where it should be (as the checker of Java's tests asks)."""
        return (await RepairAdmin(self.client).check_ledger(ledger_id, thorough=True)).is_sound


class RefusingCluster(VirtualCluster):
    """A cluster whose client has a :class:`RefusingTransport`."""

    usual: ClassVar = ClientConfig()
    transport: RefusingTransport

    def new_transport(self, host: Host, settings: ClientConfig) -> BookieTransport:
        self.transport = RefusingTransport(self.world, host)
        return self.transport


def run_in_place(program: Callable[[Place], Awaitable[None]], *, bookies: int) -> float:
    """Run ``program`` in a world without other trouble; returns how many simulated seconds it took."""
    ended: list[float] = []

    async def with_client(cluster: RefusingCluster) -> None:
        async with cluster.client() as client:
            await program(Place(client, cluster.transport, cluster.bookies))
        ended.append(now())

    run_in(lambda world: RefusingCluster(world, bookies), with_client)
    return ended[0]


async def create(place: Place, ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> LedgerWriter:
    return await place.client.create_ledger(
        ensemble_size=ensemble_size, write_quorum_size=write_quorum_size, ack_quorum_size=ack_quorum_size
    )


@pytest.mark.behaviour("T-57")
def test_writing_one_by_one_goes_on_while_three_of_five_bookies_die() -> None:
    async def program(place: Place) -> None:
        writer = await create(place, 5, 4, 4)
        expected = []
        victims = iter(writer.metadata.last_fragment.ensemble)
        for number in range(12):
            if number in (3, 6, 9):
                place.bookies[next(victims)].crash()
            expected.append(b"%d" % number)
            assert await writer.append(expected[-1]) == number
        await writer.close()

        assert len(writer.metadata.fragments) >= 4
        assert await place.payloads(writer.ledger_id) == expected

    run_in_place(program, bookies=8)


@pytest.mark.behaviour("T-58")
def test_two_pipelined_writers_go_on_while_three_of_five_bookies_die() -> None:
    async def program(place: Place) -> None:
        writers = [await create(place, 5, 4, 4) for _ in range(2)]
        futures = []
        victims = iter(writers[0].metadata.last_fragment.ensemble)
        for number in range(90):
            if number in (20, 40, 60):
                place.bookies[next(victims)].crash()
            futures += [writer.append_nowait(b"%d" % number) for writer in writers]
            await asyncio.sleep(0.001)
        ids = await asyncio.gather(*futures)

        assert ids == [number for number in range(90) for _ in writers]
        for writer in writers:
            await writer.close()
            assert await place.payloads(writer.ledger_id) == [b"%d" % number for number in range(90)]

    run_in_place(program, bookies=8)


@pytest.mark.rule("W-2")
def test_what_happens_to_a_ledger_reaches_its_writer_one_event_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[str] = []
    seen: set[str] = set()

    def guard(name: str) -> None:
        honest = getattr(AppendMachine, name)

        def one_at_a_time(self: AppendMachine, *args: Any, **kwargs: Any) -> Any:
            assert not running, f"{name} was called from within {running[0]}"
            seen.add(name)
            running.append(name)
            try:
                return honest(self, *args, **kwargs)
            finally:
                running.pop()

        monkeypatch.setattr(AppendMachine, name, one_at_a_time)

    inputs = {"append", "on_add_reply", "on_update_done", "act_on_late_failures", "check_quorum_timeout", "on_forced"}
    for name in sorted(inputs):
        guard(name)

    async def program(place: Place) -> None:
        writer = await create(place, 3, 3, 2)
        victims = iter(writer.metadata.last_fragment.ensemble)
        for number in range(8):
            if number in (2, 4):
                place.bookies[next(victims)].crash()
            writer.append_nowait(b"first")
            await writer.append(b"second")
        await asyncio.sleep(60)
        await writer.force()
        await writer.close()

    run_in_place(program, bookies=5)

    assert seen == inputs


@pytest.mark.rule("W-45")
@pytest.mark.behaviour("T-52")
def test_a_bookie_slower_than_the_timeout_is_replaced_and_the_append_completes() -> None:
    async def program(place: Place) -> None:
        writer = await create(place, 3, 3, 3)
        await writer.append(b"before")
        before = writer.metadata.last_fragment.ensemble
        slow = before[1]
        place.bookies[slow].pause()

        assert await writer.append(b"during") == 1

        after = writer.metadata.last_fragment.ensemble
        assert (after[0], after[2]) == (before[0], before[2])
        assert after[1] != slow
        await writer.close()

    assert 5 <= run_in_place(program, bookies=4) < 15


@pytest.mark.behaviour("T-182")
def test_with_an_ack_quorum_to_spare_a_slow_bookie_holds_nobody_up_and_misses_nothing_in_the_end() -> None:
    async def program(place: Place) -> None:
        writer = await create(place, 3, 3, 2)
        await writer.append(b"0")
        slow = place.bookies[writer.metadata.last_fragment.ensemble[2]]
        slow.pause()
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number in range(1, 20):
            await writer.append(b"%d" % number)
        assert loop.time() - start < 1
        slow.resume()
        await asyncio.sleep(1)
        await writer.close()

        assert len(writer.metadata.fragments) == 1
        assert await place.is_sound(writer.ledger_id)

    run_in_place(program, bookies=4)


@pytest.mark.behaviour("T-183")
@pytest.mark.parametrize("sleepers", [1, 2])
def test_bookies_that_sleep_past_the_timeout_fail_no_append_and_leave_no_gap(sleepers: int) -> None:
    async def program(place: Place) -> None:
        writer = await create(place, 4, 3, 3)
        futures = []
        sleeping = writer.metadata.last_fragment.ensemble[:sleepers]
        for number in range(60):
            if number == 20:
                for bookie_id in sleeping:
                    place.bookies[bookie_id].pause()
            futures.append(writer.append_nowait(b"%d" % number))
            await asyncio.sleep(0.2)
        ids = await asyncio.gather(*futures)
        for bookie_id in sleeping:
            place.bookies[bookie_id].resume()
        await writer.close()

        assert ids == list(range(60))
        assert not set(sleeping) & set(writer.metadata.last_fragment.ensemble)
        assert await place.is_sound(writer.ledger_id)

    run_in_place(program, bookies=6)


@pytest.mark.behaviour("T-105")
@pytest.mark.behaviour("T-106")
def test_after_one_bookie_refused_and_another_hung_the_ledger_ends_in_one_place_with_all_its_copies() -> None:
    async def program(place: Place) -> None:
        writer = await create(place, 3, 3, 2)
        for number in range(3):
            await writer.append(b"%d" % number)
        await asyncio.sleep(1)
        refusing, hanging, _ = writer.metadata.last_fragment.ensemble
        place.transport.refusing = (refusing,)
        place.bookies[hanging].pause()

        results = await asyncio.gather(*(writer.append_nowait(b"lost") for _ in range(5)), return_exceptions=True)
        assert [type(result) for result in results] == [UnauthorizedAccess] * 5
        ends = [len(await place.payloads(writer.ledger_id))]
        place.bookies[hanging].resume()
        await asyncio.sleep(10)  # late answers and failures arrive at the writer
        ends.append(len(await place.payloads(writer.ledger_id)))

        assert ends == [3, 3]
        assert await place.is_sound(writer.ledger_id)

    run_in_place(program, bookies=4)


@pytest.mark.rule("H-5")
def test_an_idle_writer_that_found_nobody_to_replace_a_silent_bookie_tries_again() -> None:
    async def program(place: Place) -> None:
        writer = await create(place, 3, 3, 2)
        members = writer.metadata.last_fragment.ensemble
        (spare,) = [name for name in place.bookies if name not in members]
        place.bookies[spare].crash()
        await asyncio.sleep(60)  # its registration ends
        place.bookies[members[0]].pause()
        await writer.append(b"0")
        await asyncio.sleep(30)
        assert writer.metadata.last_fragment.ensemble == members
        place.bookies[spare].restart()
        await asyncio.sleep(120)

        assert writer.metadata.last_fragment.ensemble == (spare, *members[1:])
        await writer.close()

    run_in_place(program, bookies=4)


@pytest.mark.rule("H-5")
@pytest.mark.rule("W-33")
def test_an_idle_writer_replaces_a_bookie_that_fell_silent_after_the_quorum() -> None:
    async def program(place: Place) -> None:
        writer = await create(place, 3, 3, 2)
        dead = writer.metadata.last_fragment.ensemble[0]
        place.bookies[dead].pause()
        await writer.append(b"0")
        assert len(writer.metadata.fragments) == 1
        await asyncio.sleep(60)

        assert dead not in writer.metadata.last_fragment.ensemble
        await writer.append(b"1")
        await writer.close()

    run_in_place(program, bookies=4)
