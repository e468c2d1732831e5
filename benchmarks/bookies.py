"""Bookie processes for benchmarks: real TCP, no metadata service, nothing shared with the client's process."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from typing import Any

from bkclient.metadata.base import BookieAddress
from simbookie.bookie import Bookie
from simbookie.server import BookieServer
from simbookie.storage.memory import MemoryStorage

__all__ = ["bookie_processes"]


async def _serve(index: int, pipe: Connection) -> None:
    bookie = Bookie(f"bookie-{index}", MemoryStorage())
    server = BookieServer(bookie, "127.0.0.1", 0)
    await server.start()
    pipe.send(server.port)
    # The parent closes its end, or dies, when it has had enough.
    await asyncio.get_running_loop().run_in_executor(None, pipe.poll, None)


def _run(index: int, pipe: Connection, uvloop: bool) -> None:  # noqa: FBT001 - the target of a process
    run: Callable[[Any], Any] = asyncio.run
    if uvloop:
        import uvloop as uvloop_module  # noqa: PLC0415 - an optional accelerator

        run = uvloop_module.run
    run(_serve(index, pipe))


@asynccontextmanager
async def bookie_processes(count: int, *, uvloop: bool) -> AsyncIterator[list[BookieAddress]]:
    """``count`` bookies in processes of their own for as long as the block lasts."""
    context = multiprocessing.get_context("spawn")
    processes, pipes = [], []
    for index in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=_run, args=(index, theirs, uvloop), daemon=True)
        process.start()
        processes.append(process)
        pipes.append(ours)
    try:
        yield [BookieAddress("127.0.0.1", pipe.recv()) for pipe in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()
