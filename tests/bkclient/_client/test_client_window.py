"""What all writers of one client may have in flight together, and that none keeps the others out."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient._client.window import ClientWindow, WriterWindow
from bkclient.config import ClientConfig, LimitSettings
from bkclient.errors import Code, LedgerClosed, TooManyRequests
from tests.bkclient.fakes import fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import shell_of
from tests.settling import settled

NARROW = ClientConfig(limits=LimitSettings(max_in_flight_entries=8, max_client_in_flight_entries=8))


@pytest.mark.rule("H-13")
async def test_several_writers_together_never_exceed_the_window_of_the_client() -> None:
    async with fake_cluster(config=NARROW) as where:
        writers = [await writer_of(where) for _ in range(5)]
        most = 0

        async def produce(number: int) -> None:
            nonlocal most
            for _ in range(20):
                await writers[number].wait_for_room()
                writers[number].append_nowait(b"x")
                most = max(most, sum(writer.in_flight_entries for writer in writers))

        await asyncio.gather(*(produce(number) for number in range(5)))
        for writer in writers:
            await writer.flush()

        assert most == 8
        assert [writer.last_add_confirmed for writer in writers] == [19] * 5
        assert (where.bk.in_flight_entries, where.bk.in_flight_bytes) == (0, 0)


@pytest.mark.rule("H-13")
async def test_the_window_of_the_client_is_full_by_bytes_too() -> None:
    config = ClientConfig(limits=LimitSettings(max_in_flight_bytes=100, max_client_in_flight_bytes=100))
    async with fake_cluster(config=config) as where:
        first, second = await writer_of(where), await writer_of(where)
        where.transport.hold("abc")
        first.append_nowait(bytes(60))
        second.append_nowait(bytes(60))
        with pytest.raises(TooManyRequests, match="2 entries with 120 bytes of all writers of this client"):
            second.append_nowait(b"x")
        with pytest.raises(TooManyRequests, match="of all writers"):
            first.append_nowait(b"x")

        where.transport.release("abc")
        await second.wait_for_room()
        second.append_nowait(b"x")


async def test_a_writer_that_fills_the_window_waits_behind_those_it_held_up() -> None:
    async with fake_cluster(config=NARROW) as where:
        greedy, modest = await writer_of(where), await writer_of(where)
        order: list[str] = []

        async def produce(name: str, count: int) -> None:
            writer = greedy if name == "greedy" else modest
            for _ in range(count):
                await writer.wait_for_room()
                writer.append_nowait(b"x")
                order.append(name)

        where.transport.hold("abc")
        producing = asyncio.create_task(produce("greedy", 100))
        await settled()
        others = asyncio.create_task(produce("modest", 2))
        await settled()
        assert order == ["greedy"] * 8
        where.transport.release("abc")

        await asyncio.gather(producing, others)
        await greedy.flush()
        await modest.flush()
        assert order.index("modest") < 8 + 8  # not after the hundredth


async def test_a_window_of_one_writer_that_is_wider_widens_that_of_the_client() -> None:
    config = ClientConfig(limits=LimitSettings(max_in_flight_entries=30, max_client_in_flight_entries=10))
    async with fake_cluster(config=config) as where:
        writer = await writer_of(where)
        for _ in range(30):
            writer.append_nowait(b"x")
        with pytest.raises(TooManyRequests):
            writer.append_nowait(b"x")
        await writer.flush()


async def test_who_waits_in_the_line_of_the_client_learns_that_its_writer_has_ended() -> None:
    async with fake_cluster(config=NARROW) as where:
        full, waiting = await writer_of(where), await writer_of(where)
        where.transport.hold("abc")
        for _ in range(8):
            full.append_nowait(b"x")
        tasks = [asyncio.create_task(waiting.append(b"x")) for _ in range(3)]
        await settled()
        assert len(shell_of(full).window.shared.waiters) == 3

        await waiting.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [LedgerClosed] * 3
        assert not shell_of(full).window.shared.waiters
        where.transport.release("abc")
        await full.flush()


async def test_what_a_failed_writer_had_in_flight_is_free_for_others() -> None:
    async with fake_cluster(config=NARROW) as where:
        failing, other = await writer_of(where), await writer_of(where)
        where.transport.hold("abc")
        for _ in range(8):
            failing.append_nowait(b"x")
        waiting = asyncio.create_task(other.append(b"y"))
        await settled()
        where.transport.release("abc", Code.LEDGER_FENCED)

        assert await waiting == 0
        assert where.bk.in_flight_entries == 0


def windows(count: int, *, own: int, shared: int) -> list[WriterWindow]:
    line = ClientWindow(shared, 1000)
    return [WriterWindow(own, 1000, line) for _ in range(count)]


async def test_waiters_of_a_window_are_served_in_the_order_in_which_they_came() -> None:
    first, second = windows(2, own=4, shared=4)
    for _ in range(4):
        first.take(1)
    served: list[int] = []

    async def wait(number: int, window: WriterWindow) -> None:
        await window.wait()
        assert window.try_take(1)
        served.append(number)

    tasks = [asyncio.create_task(wait(number, (second, first)[number % 2])) for number in range(4)]
    await asyncio.sleep(0)
    for _ in range(4):
        first.give_back(1)
        await asyncio.sleep(0.001)

    await asyncio.gather(*tasks)
    assert [number for number in served if number % 2 == 0] == [0, 2]
    assert [number for number in served if number % 2 == 1] == [1, 3]


@pytest.mark.parametrize(("own", "shared"), [(4, 100), (100, 4)])
async def test_places_that_are_given_back_together_let_as_many_go_on_in_order(own: int, shared: int) -> None:
    (window,) = windows(1, own=own, shared=shared)
    for _ in range(4):
        window.take(1)
    served: list[int] = []

    async def wait(number: int) -> None:
        await window.wait()
        assert window.try_take(1)
        served.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(6)]
    await asyncio.sleep(0)
    window.give_back(3, 3)
    newcomer = asyncio.create_task(wait(6))
    await settled()
    assert served[:3] == [0, 1, 2], "a later writer does not overtake writers that have room"
    for _ in range(4):
        window.give_back(1)
        await settled()
    await asyncio.gather(*tasks, newcomer)
    assert sorted(served) == list(range(7))


async def test_a_place_may_be_taken_beyond_the_window_and_is_given_back_like_others() -> None:
    (window,) = windows(1, own=1, shared=1)
    window.take(5)
    window.take(5)
    assert not window.try_take(1)
    window.give_back(5)
    assert not window.try_take(1)
    window.give_back(5)
    assert window.try_take(1)


async def test_a_released_window_keeps_nobody_waiting() -> None:
    (window,) = windows(1, own=1, shared=1)
    window.take(1)
    waiting = asyncio.create_task(window.wait())
    await asyncio.sleep(0)
    window.release()
    await waiting
    await window.wait()
    window.release()
    assert not window.waiters


# Any order of events -------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "look", "done", "done", "cancel", "release", "wait"]),
        st.integers(0, 11),
    ),
    min_size=10,
    max_size=60,
)


class Crowd:
    """Three writers and the tasks that append to them."""

    def __init__(self) -> None:
        self.windows = windows(3, own=2, shared=3)
        self.in_flight: list[WriterWindow] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.released: list[WriterWindow] = []

    async def append(self, window: WriterWindow) -> None:
        while window not in self.released:
            await window.wait()
            if window not in self.released and window.try_take(1):
                self.in_flight.append(window)
                return

    async def look(self, window: WriterWindow) -> None:
        """Wait for room and leave it to others."""
        await window.wait()

    def happen(self, event: str, number: int) -> None:
        window = self.windows[number % 3]
        if event == "append":
            self.tasks.append(asyncio.create_task(self.append(window)))
        elif event == "look":
            self.tasks.append(asyncio.create_task(self.look(window)))
        elif event == "done" and self.in_flight:
            self.in_flight.pop(number % len(self.in_flight)).give_back(1)
        elif event == "cancel" and (waiting := [task for task in self.tasks if not task.done()]):
            waiting[number % len(waiting)].cancel()
        elif event == "release" and number == 0:
            self.released.append(window)
            window.release()

    def check(self) -> None:
        """Nobody waits in a line that has moved on, and what is counted is what is there."""
        shared = self.windows[0].shared
        assert shared.entries == shared.bytes == len(self.in_flight) <= 3
        assert not (shared.waiters and shared.entries <= 2)
        for window in self.windows:
            assert window.entries == window.bytes == self.in_flight.count(window) <= 2
            assert not (window.waiters and window.entries <= 1)
            assert window.woken == 0
        assert shared.woken == 0


@settings(max_examples=300)
@given(EVENTS)
def test_nobody_waits_for_ever_whatever_happens_in_whatever_order(events: list[tuple[str, int]]) -> None:
    @in_virtual_time
    async def story() -> None:
        crowd = Crowd()
        for event, number in events:
            crowd.happen(event, number)
            if event == "wait":
                await settled()
                crowd.check()
        while any(not task.done() for task in crowd.tasks):
            await settled()
            crowd.check()
            if crowd.in_flight:
                crowd.in_flight.pop().give_back(1)
            else:
                assert all(task.done() for task in crowd.tasks), "somebody waits for nothing"
        await asyncio.gather(*crowd.tasks, return_exceptions=True)

    story()


@given(
    st.lists(st.integers(0, 5), max_size=12),
    st.integers(1, 8),
    st.integers(1, 12),
    st.integers(1, 8),
    st.integers(1, 12),
    st.lists(st.integers(0, 5), max_size=4),
)
def test_places_for_many_entries_are_those_that_each_would_have_taken(
    sizes: list[int], own_entries: int, own_bytes: int, all_entries: int, all_bytes: int, taken_by_another: list[int]
) -> None:
    async def windows() -> tuple[ClientWindow, WriterWindow]:
        shared = ClientWindow(all_entries, all_bytes)
        other = WriterWindow(10, 100, shared)
        for size in taken_by_another:
            other.try_take(size)
        return shared, WriterWindow(own_entries, own_bytes, shared)

    async def play() -> None:
        (shared, window), (shared_by_each, each) = await windows(), await windows()
        count = 0
        while count < len(sizes) and each.try_take(sizes[count]):
            count += 1
        assert window.take_many(sizes) == count
        assert (window.entries, window.bytes) == (each.entries, each.bytes)
        assert (shared.entries, shared.bytes) == (shared_by_each.entries, shared_by_each.bytes)

    asyncio.run(play())
