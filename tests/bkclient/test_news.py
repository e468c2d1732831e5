"""Waiting for news: what ends it, and that a stop is a stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from bkclient._news import wait_for_news
from bkclient.placement import BookieWeights
from bkclient.placement.disk_info import DiskInfo

WAIT_S = 0.001


async def news() -> None:
    await wait_for_news(asyncio.Event(), WAIT_S)


async def disk_space() -> None:
    async def free_space(_bookie_id: str) -> int:
        return 1

    await DiskInfo(free_space, BookieWeights(0), interval_s=WAIT_S, retry_interval_s=WAIT_S).run()


@pytest.mark.parametrize("wait", [news, disk_space])
async def test_a_stop_that_comes_just_as_a_wait_for_news_ends_is_a_stop(wait: Callable[[], Awaitable[None]]) -> None:
    """Its time is up and it is cancelled in one turn of the loop; scopes of anyio before 4.16 take the one for the other."""
    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(WAIT_S, waiting.cancel)
    time.sleep(0.01)  # noqa: ASYNC251 - so that both are due in the next turn
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)


async def test_news_that_do_not_come_are_not_waited_for() -> None:
    await wait_for_news(asyncio.Event(), WAIT_S)
    await wait_for_news(asyncio.Event(), -1.0)


async def test_without_a_limit_only_news_end_the_wait() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, event.set)
    began = asyncio.get_running_loop().time()
    await wait_for_news(event, None)
    assert asyncio.get_running_loop().time() - began >= 0.049
