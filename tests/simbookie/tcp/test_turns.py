"""Who is served when: slices, turns, and that nobody waits for those with more to do."""

from __future__ import annotations

import asyncio

import pytest

from simbookie.tcp.turns import Turns


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Connection:
    """Has ``work`` slices to do, each of which takes ``cost`` seconds."""

    def __init__(self, name: str, turns: Turns, clock: Clock, log: list[str], work: int, cost: float) -> None:
        self.name, self.turns, self.clock, self.log = name, turns, clock, log
        self.work, self.cost = work, cost

    def go_on(self) -> None:
        self.log.append(self.name)
        self.clock.now += self.cost
        self.work -= 1
        if self.work:
            self.turns.wait(self, is_unfinished=True)


async def test_a_turn_has_so_much_time_and_the_next_one_as_much_again(clock: Clock) -> None:
    turns = Turns(0.02, clock)
    assert turns.has_time(clock.now)
    first = turns.current
    clock.now += 0.019
    assert turns.has_time(clock.now)
    clock.now += 0.001
    assert not turns.has_time(clock.now)
    assert turns.current == first
    await asyncio.sleep(0)
    assert turns.has_time(clock.now)
    assert turns.current != first


async def test_those_with_more_to_do_take_turns(clock: Clock) -> None:
    turns, log = Turns(0.02, clock), list[str]()
    for name in "abc":
        turns.wait(Connection(name, turns, clock, log, 3, 0.001), is_unfinished=True)
    for _ in range(4):
        await asyncio.sleep(0)
    assert "".join(log) == "abcabcabc"
    assert turns.waiting == 0


async def test_those_with_more_to_do_get_half_a_turn_and_at_least_one_slice(clock: Clock) -> None:
    turns, log = Turns(0.02, clock), list[str]()
    for name in "abc":
        turns.wait(Connection(name, turns, clock, log, 2, 0.008), is_unfinished=True)
    await asyncio.sleep(0)
    assert "".join(log) == "ab", "after 16 of 10 ms no further one is begun"
    assert turns.has_time(clock.now), "the rest of the turn is for what comes"
    await asyncio.sleep(0)
    assert "".join(log) == "abca"


@pytest.mark.parametrize("greedy", [1, 1000])
async def test_one_that_has_not_been_served_yet_comes_before_all_that_want_more(clock: Clock, greedy: int) -> None:
    turns, log = Turns(0.02, clock), list[str]()
    for number in range(greedy):
        turns.wait(Connection(f"greedy-{number}", turns, clock, log, 50, 0.005), is_unfinished=True)
    await asyncio.sleep(0)
    log.clear()
    turns.wait(Connection("modest", turns, clock, log, 1, 0.0001), is_unfinished=False)
    await asyncio.sleep(0)
    assert log[0] == "modest"
    assert len(log) > 1, "the others go on"


async def test_newcomers_do_not_starve_those_with_more_to_do(clock: Clock) -> None:
    turns, log = Turns(0.02, clock), list[str]()
    turns.wait(Connection("old", turns, clock, log, 10, 0.005), is_unfinished=True)
    for _ in range(10):
        turns.wait(Connection("new", turns, clock, log, 1, 0.03), is_unfinished=False)
        await asyncio.sleep(0)
    assert log.count("old") >= 9


async def test_one_that_leaves_is_not_served(clock: Clock) -> None:
    turns, log = Turns(0.02, clock), list[str]()
    gone = Connection("gone", turns, clock, log, 1, 0)
    for is_unfinished in (True, False):
        turns.wait(gone, is_unfinished=is_unfinished)
        turns.leave(gone)
    await asyncio.sleep(0)
    assert log == []
