"""Work that is done although its caller is cancelled: for how long the caller waits, and what becomes of errors."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from bkclient._in_any_case import in_any_case
from tests.bkclient.fakes import in_virtual_time


class Work:
    """Takes some seconds, and then fails or not."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        self._seconds, self._error = seconds, error
        self.is_done = False

    async def __call__(self) -> None:
        await asyncio.sleep(self._seconds)
        self.is_done = True
        if self._error is not None:
            raise self._error


@in_virtual_time
async def test_a_caller_that_is_not_cancelled_waits_as_long_as_it_takes_and_gets_the_error() -> None:
    work = Work(3600)
    await in_any_case(work(), "work")
    assert work.is_done
    with pytest.raises(KeyError):
        await in_any_case(Work(1, KeyError())(), "work")


@in_virtual_time
async def test_a_caller_that_is_cancelled_waits_a_while_and_until_it_is_cancelled_again() -> None:
    loop = asyncio.get_running_loop()
    for seconds, cancelled_at, ended_at in ((3, (1,), 3), (100, (1,), 6), (100, (1, 2), 2), (3, (1, 2), 2)):
        for error in (None, KeyError()):
            work, began_at = Work(seconds, error), loop.time()
            caller = asyncio.create_task(in_any_case(work(), "work"))
            for when in cancelled_at:
                loop.call_later(when, caller.cancel)
            with pytest.raises(asyncio.CancelledError):
                await caller
            assert loop.time() - began_at == pytest.approx(ended_at)
            await asyncio.sleep(seconds)
            assert work.is_done


@in_virtual_time
async def test_a_scope_that_is_cancelled_already_does_not_cut_the_work_short() -> None:
    work = Work(3)
    with anyio.move_on_after(1) as scope:
        try:
            await anyio.sleep(2)
        finally:
            await in_any_case(work(), "work")
    assert scope.cancelled_caught
    assert work.is_done
