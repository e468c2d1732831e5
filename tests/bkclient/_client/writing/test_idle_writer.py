"""What a writer that has nothing to do holds: none of the parts that only some writers ever need."""

from __future__ import annotations

import asyncio
import gc
from collections import OrderedDict, deque

import bkclient
from tests.bkclient.fakes import fake_cluster, writer_of
from tests.bkclient.inside import shell_of

#: What is large while it is empty.
LARGE = (deque, OrderedDict, asyncio.Event)


def large_parts() -> int:
    gc.collect()
    return sum(isinstance(each, LARGE) for each in gc.get_objects())


async def test_an_idle_writer_has_no_queues_of_its_own_and_shares_its_options() -> None:
    async with fake_cluster() as where:
        first = await writer_of(where)
        before = large_parts()
        others: list[bkclient.LedgerWriter] = [await writer_of(where) for _ in range(10)]
        assert large_parts() == before
        for other in others:
            assert shell_of(other).machine.options is shell_of(first).machine.options


async def test_what_was_made_for_one_writer_is_not_shared_with_others() -> None:
    async with fake_cluster() as where:
        held, other = await writer_of(where), await writer_of(where)
        where.transport.hold("abc")
        future = held.append_nowait(b"x")
        flushing = asyncio.create_task(held.flush())
        waiting = asyncio.create_task(shell_of(held).window.wait_in_line(future_of_nothing(), is_above_gap=True))
        await asyncio.sleep(0)
        assert shell_of(held).window.above_gap.waiters
        assert not shell_of(other).window.above_gap.waiters
        assert shell_of(held).flushes.waiters
        assert not shell_of(other).flushes.waiters
        waiting.cancel()
        where.transport.release("abc")
        await flushing
        assert await future == 0


def future_of_nothing() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()
