"""What controls a running cluster, put together: relays, commands on standard input, the page."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

import bkclient
from simbookie.development.control import ClusterControl
from simbookie.development.relay import Relay
from simbookie.development.terminal import lines_of, run_commands
from simbookie.processes import ProcessCluster

__all__ = ["Controls"]


@dataclass(frozen=True, slots=True)
class Controls:
    """Which controls a cluster has. ``page`` is host and port; without it there is none, and with it packages are needed.

    Commands are taken from standard input if ``commands`` says so, or if there is a page and standard input is the terminal in
    whose foreground this program runs.
    """

    relays: Mapping[int, Relay]
    commands: bool
    page: tuple[str, int] | None

    @asynccontextmanager
    async def running(self, cluster: ProcessCluster, say: Callable[[str], None]) -> AsyncIterator[str | None]:
        """Serve until the block ends; yields the address of the page, if there is one. ``OSError`` if that is taken."""
        async with AsyncExitStack() as closing:
            control = ClusterControl(cluster, self.relays)
            closing.push_async_callback(control.aclose)
            await control.start()
            address = None
            if self.page is not None:
                address = await self._serve_page(control, self.page, closing)
            if self.commands or (self.page is not None and _is_in_foreground()):
                taking = asyncio.create_task(run_commands(control, lines_of(sys.stdin.fileno()), say))
                closing.push_async_callback(_ended, taking)
            yield address

    async def _serve_page(self, control: ClusterControl, page: tuple[str, int], closing: AsyncExitStack) -> str:
        from simbookie.development.page_server import PageServer  # noqa: PLC0415  needs the extra admin
        from simbookie.development.snapshot import Snapshots  # noqa: PLC0415  needs the extra admin

        bk = await closing.enter_async_context(bkclient.connect(control.cluster.metadata_uri))
        snapshots = Snapshots(control, bk)
        closing.push_async_callback(snapshots.aclose)
        token = f"{random.SystemRandom().getrandbits(128):032x}"
        server = PageServer(control, snapshots, *page, token=token)
        closing.push_async_callback(server.aclose)
        await server.start()
        return server.url


def _is_in_foreground() -> bool:
    with suppress(OSError, ValueError):
        return os.isatty(sys.stdin.fileno()) and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    return False


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
