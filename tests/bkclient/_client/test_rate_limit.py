"""Permits at a rate: bursts, waiting, credit, and callers that go away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import anyio
import pytest

from bkclient._client.rate_limit import RateLimit
from bkclient.config import LimitSettings
from simbookie.world.hosts import World
from tests.cancellation import Cancel, cancel_everywhere


@pytest.fixture
def play() -> Iterator[Callable[[Callable[[], Awaitable[None]]], None]]:
    """Runs a story in virtual time."""
    with World(1) as world:

        def run(story: Callable[[], Awaitable[None]]) -> None:
            async def main() -> None:
                await story()

            world.run(main)

        yield run


Play = Callable[[Callable[[], Awaitable[None]]], None]


def now() -> float:
    return asyncio.get_running_loop().time()


def test_no_rate_is_no_throttle(play: Play) -> None:
    async def story() -> None:
        assert RateLimit.of(LimitSettings()) is None
        assert RateLimit.of(LimitSettings(throttle_per_s=5)) is not None

    play(story)


@pytest.mark.rule("R-2")
def test_a_burst_of_one_second_is_free_and_then_permits_come_at_the_rate(play: Play) -> None:
    async def story() -> None:
        throttle, began = RateLimit(10), now()
        for _ in range(10):
            await throttle.acquire()
        assert now() == began

        for _ in range(10):
            await throttle.acquire()
        assert now() - began == pytest.approx(1)

    play(story)


def test_what_an_idle_time_saves_is_one_second(play: Play) -> None:
    async def story() -> None:
        throttle = RateLimit(10)
        await throttle.acquire(10)
        await anyio.sleep(60)
        assert throttle.try_take(10)
        assert not throttle.try_take()

    play(story)


def test_permits_are_due_in_the_order_in_which_they_were_asked_for(play: Play) -> None:
    async def story() -> None:
        throttle, began, order = RateLimit(10), now(), []
        await throttle.acquire(10)

        async def take(number: int) -> None:
            await throttle.acquire()
            order.append((number, round(now() - began, 6)))

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(take, number)
        assert order == [(0, 0.1), (1, 0.2), (2, 0.3)]

    play(story)


def test_what_is_taken_on_credit_is_waited_for_by_the_next(play: Play) -> None:
    async def story() -> None:
        throttle, began = RateLimit(10), now()
        throttle.take(14)
        assert now() == began
        await throttle.acquire()
        assert now() - began == pytest.approx(0.5)

    play(story)


def test_a_caller_that_is_cancelled_gives_its_permits_back() -> None:
    async def story(cancel: Cancel) -> None:
        throttle = RateLimit(10)
        throttle.take(20)
        began = now()
        await cancel(throttle.acquire(5))
        before = now()
        await throttle.acquire()
        assert now() == pytest.approx(max(before, began + (1.1 if cancel.was_cancelled else 1.6)))

    cancel_everywhere(story, at_least=1)
