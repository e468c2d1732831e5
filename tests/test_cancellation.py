"""The tool that cancels calls everywhere finds the defects it is for, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import anyio
import pytest

from tests.cancellation import Cancel, cancel_everywhere


async def three_waits() -> str:
    await asyncio.sleep(0)
    await asyncio.sleep(3600)
    await anyio.sleep(0.5)
    return "done"


def test_every_suspension_is_visited_in_each_way_until_the_call_ends_by_itself() -> None:
    outcomes: list[str | None] = []

    async def story(cancel: Cancel) -> None:
        outcomes.append(await cancel(three_waits()))
        assert cancel.was_cancelled == (outcomes[-1] is None)

    assert cancel_everywhere(story, at_least=3) == 3
    assert outcomes == [None, None, None, "done"] * 3


class Permit:
    """Handed to the first in line; ``is_leaky`` as most people write it at first."""

    def __init__(self, *, is_leaky: bool) -> None:
        self._is_leaky = is_leaky
        self.is_free = False
        self._line: list[asyncio.Future[None]] = []

    def release(self) -> None:
        self.is_free = True
        for waiter in self._line:
            if not waiter.done():
                self.is_free = False
                waiter.set_result(None)
                return

    async def acquire(self) -> None:
        if self.is_free:
            self.is_free = False
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not self._is_leaky and not waiter.cancelled():
                self.release()
            raise


async def permit_story(cancel: Cancel, *, is_leaky: bool) -> None:
    permit = Permit(is_leaky=is_leaky)
    asyncio.get_running_loop().call_later(1, permit.release)
    await cancel(permit.acquire())
    if cancel.was_cancelled:
        await anyio.sleep(2)
        assert permit.is_free, "the permit is lost"


def test_a_permit_that_is_lost_when_its_owner_is_cancelled_as_it_is_woken_is_found() -> None:
    cancel_everywhere(lambda cancel: permit_story(cancel, is_leaky=False))

    with pytest.raises(AssertionError, match="the permit is lost") as caught:
        cancel_everywhere(lambda cancel: permit_story(cancel, is_leaky=True))
    assert caught.value.__notes__ == ["the call was cancelled at suspension 0, when what it waited for had come"]


def test_a_task_that_is_left_behind_is_found() -> None:
    kept: list[asyncio.Task[None]] = []

    async def leaves_a_task() -> None:
        kept.append(asyncio.create_task(asyncio.sleep(3600)))
        await asyncio.sleep(0)
        kept[-1].cancel()

    async def story(cancel: Cancel) -> None:
        await cancel(leaves_a_task())

    with pytest.raises(AssertionError, match="tasks are left"):
        cancel_everywhere(story)


def test_a_call_that_swallows_its_cancellation_is_found() -> None:
    async def swallows() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1)

    async def story(cancel: Cancel) -> None:
        await cancel(swallows())

    with pytest.raises(AssertionError, match="went on although it was cancelled"):
        cancel_everywhere(story)


def test_clean_up_that_waits_is_cut_short_by_a_scope_only() -> None:
    cleaned: list[bool] = []

    async def cleans_up() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            cleaned.append(False)
            await asyncio.sleep(1)
            cleaned[-1] = True

    async def story(cancel: Cancel) -> None:
        await cancel(cleans_up())

    assert cancel_everywhere(story) == 2
    assert cleaned == [True, False, True] * 2 + [False, False, True]


def test_a_call_is_cancelled_at_each_suspension_of_the_tasks_that_it_starts() -> None:
    reached: list[int] = []

    async def works() -> None:
        for step in range(3):
            reached[-1] = step
            await asyncio.sleep(0)

    async def starts_a_task() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(works)

    async def story(cancel: Cancel) -> None:
        reached.append(-1)
        await cancel(starts_a_task())

    assert cancel_everywhere(story) == 4, "three of the task, and the end of the group"
    assert {0, 1, 2} <= set(reached)


def test_a_call_that_never_waits_proves_nothing() -> None:
    async def at_once() -> None:
        pass

    async def story(cancel: Cancel) -> None:
        await cancel(at_once())

    with pytest.raises(AssertionError, match="waits only 0 times"):
        cancel_everywhere(story)


def test_errors_of_the_call_are_the_storys() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError

    async def story(cancel: Cancel) -> None:
        with suppress(KeyError):
            await cancel(fails())

    assert cancel_everywhere(story) == 1


def test_a_story_that_forgets_its_call_is_refused() -> None:
    async def story(_cancel: Cancel) -> None:
        await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="cancelled nothing"):
        cancel_everywhere(story)
