"""A gap in one ledger holds up that ledger: other writers go on, and the windows stay as wide as they are configured."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient._client.window import ClientWindow, WriterWindow
from bkclient._client.writing.advanced import AdvancedLedgerWriter
from bkclient._client.writing.gaps import Gaps
from bkclient._client.writing.outcomes import AppendFuture
from bkclient.config import ClientConfig, LimitSettings
from bkclient.errors import BookKeeperError, LedgerFenced, TooManyRequests
from tests.bkclient.fakes import advanced_writer_of, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import shell_of
from tests.settling import settled

NARROW = ClientConfig(limits=LimitSettings(max_in_flight_entries=16, max_client_in_flight_entries=16))


def append_above_the_gap(writer: AdvancedLedgerWriter, payload: bytes = b"x") -> list[AppendFuture]:
    """Everything from entry 1 on for which there is room; entry 0 is still to come."""
    futures = []
    for entry_id in range(1, 1000):
        try:
            futures.append(writer.append_nowait(entry_id, payload))
        except TooManyRequests:
            break
    with pytest.raises(TooManyRequests, match="above a gap"):
        writer.append_nowait(len(futures) + 1, payload)
    return futures


# Other writers -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("H-13")
async def test_a_gap_in_one_ledger_stops_no_other_writer_of_the_client() -> None:
    async with fake_cluster(config=NARROW) as where:
        gapped, other = await advanced_writer_of(where), await writer_of(where)
        futures = append_above_the_gap(gapped)
        await settled()

        for entry_id in range(50):
            assert await asyncio.wait_for(other.append(b"y"), 1) == entry_id

        assert len(futures) == 4  # a quarter of the window: of the half for gaps, as much as it leaves
        assert where.bk.in_flight_entries == 4
        await gapped.append(0, b"x")
        assert [await future for future in futures] == [1, 2, 3, 4]
        shared = shell_of(gapped).window.shared
        assert (shared.entries, shared.bytes, shared.above_gaps, shared.bytes_above_gaps) == (0, 0, 0, 0)


@pytest.mark.rule("H-13")
async def test_gaps_in_many_ledgers_leave_half_of_the_window_to_all_others() -> None:
    async with fake_cluster(config=NARROW) as where:
        gapped = [await advanced_writer_of(where) for _ in range(10)]
        counts = [len(append_above_the_gap(writer)) for writer in gapped]
        other = await writer_of(where)
        where.transport.hold("abc")

        room = 0
        while True:
            try:
                other.append_nowait(b"y")
            except TooManyRequests:
                break
            room += 1

        assert counts == [4, 2, 1, 1, 0, 0, 0, 0, 0, 0]
        assert room == 8
        assert sum(counts) + room == 16
        where.transport.release("abc")
        await other.flush()


@pytest.mark.rule("H-13")
async def test_an_entry_above_a_gap_that_fills_the_window_by_itself_stops_no_other_writer() -> None:
    config = ClientConfig(limits=LimitSettings(max_in_flight_bytes=100, max_client_in_flight_bytes=100))
    async with fake_cluster(config=config) as where:
        gapped, other = await advanced_writer_of(where), await writer_of(where)
        future = gapped.append_nowait(5, bytes(1000))
        with pytest.raises(TooManyRequests):
            gapped.append_nowait(6, b"x")
        shared = shell_of(gapped).window.shared
        assert (shared.bytes, shared.bytes_above_gaps) == (50, 1000)
        assert (gapped.in_flight_bytes, where.bk.in_flight_bytes) == (1000, 1000)

        for _ in range(20):
            await asyncio.wait_for(other.append(bytes(40)), 1)

        await gapped.close()
        assert future.exception() is not None
        assert (shared.entries, shared.bytes, shared.above_gaps, shared.bytes_above_gaps) == (0, 0, 0, 0)


async def test_entries_of_another_advanced_writer_go_on_in_order_although_gaps_have_taken_their_half() -> None:
    async with fake_cluster(config=NARROW) as where:
        gapped = [await advanced_writer_of(where) for _ in range(4)]
        for writer in gapped:
            append_above_the_gap(writer)
        other = await advanced_writer_of(where)

        ids = [3, 1, 2, 0, 7, 5, 6, 4]
        tasks = [asyncio.create_task(other.append(entry_id, b"y")) for entry_id in ids]

        assert await asyncio.wait_for(asyncio.gather(*tasks), 1) == ids


# Those who wait ------------------------------------------------------------------------------------------------------


async def test_who_waits_above_a_gap_goes_on_when_the_turn_has_come_and_not_before() -> None:
    async with fake_cluster(
        config=ClientConfig(limits=LimitSettings(max_in_flight_entries=2, max_client_in_flight_entries=2))
    ) as where:
        writer = await advanced_writer_of(where)
        where.transport.hold("abc")
        waiting = {entry_id: asyncio.create_task(writer.wait_for_room(entry_id)) for entry_id in (1, 2)}
        await settled()
        # Of two places one is for entries above gaps, and a writer leaves as much as it takes.
        assert [entry_id for entry_id, task in waiting.items() if task.done()] == [1, 2]
        writer.append_nowait(2, b"x")
        waiting = {entry_id: asyncio.create_task(writer.wait_for_room(entry_id)) for entry_id in (1, 3)}
        await settled()
        assert not any(task.done() for task in waiting.values())

        writer.append_nowait(0, b"x")  # fills the window: entry 1 has to wait for it although nothing is missing below
        await settled()
        assert not any(task.done() for task in waiting.values())
        where.transport.release("abc")
        await settled()
        assert waiting[1].done()
        await writer.append(1, b"x")
        await asyncio.gather(*waiting.values())


async def test_who_waits_above_a_gap_goes_on_when_another_gap_is_filled() -> None:
    async with fake_cluster(config=NARROW) as where:
        first, second = await advanced_writer_of(where), await advanced_writer_of(where)
        append_above_the_gap(first)
        append_above_the_gap(second)
        waiting = asyncio.create_task(second.append(100, b"x"))
        given_up = asyncio.create_task(second.append(101, b"x"))
        await settled()
        assert second.last_add_pushed < 100
        given_up.cancel()
        await settled()

        await first.append(0, b"x")
        await settled()

        assert second.last_add_pushed == 100
        assert not shell_of(first).window.shared.waiting_above_gaps
        waiting.cancel()


async def test_who_waits_above_a_gap_learns_that_the_writer_has_ended_and_others_get_its_room() -> None:
    async with fake_cluster(config=NARROW) as where:
        ended, other = await advanced_writer_of(where), await advanced_writer_of(where)
        append_above_the_gap(ended)
        append_above_the_gap(other)
        waiting = [asyncio.create_task(ended.append(50 + number, b"x")) for number in range(3)]
        hopeful = asyncio.create_task(other.wait_for_room(60))
        await settled()
        for bookie in where.transport.bookies.values():
            bookie.fenced.add(ended.ledger_id)

        with pytest.raises(LedgerFenced):
            await ended.append(0, b"x")

        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [LedgerFenced] * 3
        await asyncio.wait_for(hopeful, 1)
        shared = shell_of(other).window.shared
        assert (shared.above_gaps, shared.entries) == (shell_of(other).window.above_gap.entries,) * 2


async def test_a_window_of_one_entry_takes_none_above_a_gap() -> None:
    async with fake_cluster(
        config=ClientConfig(limits=LimitSettings(max_in_flight_entries=1, max_client_in_flight_entries=1))
    ) as where:
        writer = await advanced_writer_of(where)
        with pytest.raises(TooManyRequests, match="above a gap"):
            writer.append_nowait(1, b"x")
        tasks = [asyncio.create_task(writer.append(entry_id, b"x")) for entry_id in (2, 1, 0)]
        assert await asyncio.wait_for(asyncio.gather(*tasks), 1) == [2, 1, 0]


# Any order of events -------------------------------------------------------------------------------------------------


def test_gaps_are_what_a_set_of_ids_says() -> None:
    @given(st.permutations(range(12)))
    def check(ids: list[int]) -> None:
        gaps, handed_in, above = Gaps(), set[int](), 0
        for entry_id in ids:
            assert gaps.is_above(entry_id) == any(smaller not in handed_in for smaller in range(entry_id))
            above += gaps.is_above(entry_id)
            entries, size = gaps.add(entry_id, entry_id)
            above -= entries
            handed_in.add(entry_id)
            missing = next(smaller for smaller in range(13) if smaller not in handed_in)
            assert gaps.last_without_gap == missing - 1
            assert gaps.above == {one: one for one in handed_in if one > missing}
            assert len(gaps.above) == above
            assert size == 0 or not gaps.is_above(entry_id)
        assert gaps.clear() == (0, 0)

    check()


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["in order", "in order", "above", "above", "above", "fill", "done", "done", "end"]),
        st.integers(0, 11),
        st.integers(0, 40),
    ),
    min_size=5,
    max_size=60,
)
ENTRIES, BYTES = 8, 100


class Crowd:
    """Three writers with gaps and one without, who take what they are given, and somebody waiting for everything."""

    def __init__(self) -> None:
        self.shared = ClientWindow(ENTRIES, BYTES)
        self.windows = [WriterWindow(ENTRIES, BYTES, self.shared) for _ in range(4)]
        self.in_order: list[list[int]] = [[] for _ in self.windows]
        self.above: list[list[int]] = [[] for _ in self.windows]
        self.waiting: list[asyncio.Task[None]] = []

    async def _wait(self, window: WriterWindow) -> None:
        while not window.has_room_for(is_above_gap=True):
            await window.wait_in_line(asyncio.get_running_loop().create_future(), is_above_gap=True)

    def happen(self, event: str, number: int, size: int) -> None:
        which = number % 4
        window, in_order, above = self.windows[which], self.in_order[which], self.above[which]
        if event == "in order" and window.try_take(size):
            in_order.append(size)
        elif event == "above" and which:
            if window.has_room_for(is_above_gap=True):
                window.take(size)
                window.enter_gap(size)
                above.append(size)
            else:
                self.waiting.append(asyncio.create_task(self._wait(window)))
        elif event == "fill" and above:
            window.leave_gap(len(above), sum(above))
            in_order += above
            above.clear()
        elif event == "done" and in_order:
            window.give_back(in_order.pop(number % len(in_order)))
        elif event == "end" and number == 0:
            self.end(which)

    def end(self, which: int) -> None:
        window = self.windows[which]
        window.leave_gap(len(self.above[which]), sum(self.above[which]))
        for size in self.in_order[which] + self.above[which]:
            window.give_back(size)
        self.in_order[which], self.above[which] = [], []

    def check(self) -> None:
        shared = self.shared
        in_order = [size for sizes in self.in_order for size in sizes]
        above = [size for sizes in self.above for size in sizes]
        assert (shared.above_gaps, shared.bytes_above_gaps) == (len(above), sum(above))
        assert shared.entries == len(in_order) + len(above) <= ENTRIES
        assert shared.bytes == sum(in_order) + min(sum(above), BYTES // 2)
        assert len(above) <= ENTRIES // 2
        assert sum(above) < BYTES // 2 + 40 or not above
        for window, mine, gapped in zip(self.windows, self.in_order, self.above, strict=True):
            assert (window.entries, window.bytes) == (len(mine) + len(gapped), sum(mine) + sum(gapped))
            assert (window.above_gap.entries, window.above_gap.bytes) == (len(gapped), sum(gapped))
        # What is above gaps leaves half of the window to all else, however much it is.
        if len(in_order) < ENTRIES // 2 and sum(in_order) < BYTES // 2:
            assert shared.has_room
            assert self.windows[0].has_room_for(is_above_gap=False)


@settings(max_examples=300)
@given(EVENTS)
def test_gaps_never_take_more_than_their_half_and_nobody_waits_for_ever(events: list[tuple[str, int, int]]) -> None:
    @in_virtual_time
    async def story() -> None:
        crowd = Crowd()
        for event, number, size in events:
            crowd.happen(event, number, size)
            crowd.check()
            await settled()
        await settled()
        for window in crowd.windows:
            assert not (window.above_gap.waiters and window.above_gap.has_room), "somebody waits although there is room"
        for which in range(4):
            crowd.end(which)
            crowd.check()
        await settled()
        assert all(task.done() for task in crowd.waiting)
        assert not crowd.shared.waiting_above_gaps
        assert crowd.shared.woken == 0

    story()


async def test_several_writers_with_gaps_never_exceed_the_window_of_the_client() -> None:
    async with fake_cluster(config=NARROW) as where:
        writers = [await advanced_writer_of(where) for _ in range(4)]
        plain = await writer_of(where)
        most = 0

        async def produce(number: int) -> None:
            nonlocal most
            ids = [group * 4 + (3, 1, 0, 2)[place] for group in range(20) for place in range(4)]

            async def one(entry_id: int) -> None:
                nonlocal most
                await writers[number].append(entry_id, b"x")

            async with asyncio.TaskGroup() as tasks:
                for entry_id in ids:
                    tasks.create_task(one(entry_id))
                    await asyncio.sleep(0)
                    most = max(most, sum(writer.in_flight_entries for writer in (*writers, plain)))

        async def produce_plainly() -> None:
            for _ in range(50):
                await plain.append(b"y")

        await asyncio.wait_for(asyncio.gather(produce_plainly(), *(produce(number) for number in range(4))), 20)

        assert [writer.last_add_confirmed for writer in (*writers, plain)] == [79] * 4 + [49]
        assert 8 < most <= 16 + len(writers)  # the one next in order of each is never held back
        shared = shell_of(plain).window.shared
        assert (shared.entries, shared.bytes, shared.above_gaps, shared.bytes_above_gaps) == (0, 0, 0, 0)


async def test_a_repeated_id_above_a_gap_takes_no_room() -> None:
    async with fake_cluster(config=NARROW) as where:
        writer = await advanced_writer_of(where)
        writer.append_nowait(3, b"x")
        for _ in range(5):
            with pytest.raises(BookKeeperError, match="added before"):
                writer.append_nowait(3, b"x")
        window = shell_of(writer).window
        assert (window.entries, window.above_gap.entries, window.shared.above_gaps) == (1, 1, 1)
