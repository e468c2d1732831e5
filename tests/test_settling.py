"""Waiting until nothing more happens by itself."""

from __future__ import annotations

import asyncio

import pytest

from tests.bkclient.fakes import in_virtual_time
from tests.settling import settled


async def chain(length: int, done: list[int]) -> None:
    for _ in range(length):
        await asyncio.sleep(0)
    done.append(length)


async def settling() -> None:
    done: list[int] = []
    tasks = [asyncio.create_task(chain(length, done)) for length in (1, 50, 500)]
    later = asyncio.create_task(asyncio.sleep(3600))
    asyncio.get_running_loop().call_later(0, done.append, 0)
    await settled()
    assert sorted(done) == [0, 1, 50, 500]
    assert all(task.done() for task in tasks)
    assert not later.done()
    later.cancel()
    await settled()
    assert later.cancelled()


async def test_what_needs_no_outside_help_has_happened_however_long_it_takes() -> None:
    await settling()


def test_in_virtual_time_too() -> None:
    in_virtual_time(settling)()


async def test_what_never_ends_is_told() -> None:
    spinning = asyncio.create_task(chain(10**9, []), name="spinning")
    with pytest.raises(AssertionError, match="goes on and on"):
        await settled()
    spinning.cancel()
