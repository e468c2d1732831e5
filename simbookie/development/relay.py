"""A relay before one bookie, which can part the bookie from its clients.

While it is open it passes bytes both ways. While it is cut nothing passes in either direction: connections stay up, new ones are
taken and stay silent, and what a side closes is not told to the other one before the relay is open again. The bookie is still
connected to the metadata service, which the relay does not carry, so it stays registered.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final

from bkclient.metadata.base import BookieAddress
from simbookie.development.forwarding import CHUNK_SIZE, all_of, forward

__all__ = ["Relay"]

_CONNECTIONS_MAX: Final = 10_000


class Relay:
    """Has a port of ``host`` from the beginning, and serves it between :meth:`start` and :meth:`aclose`.

    At most ``connections_max`` connections at a time; a further one is closed. Each holds at most 64 KiB in each direction.
    """

    def __init__(self, host: str = "127.0.0.1", *, connections_max: int = _CONNECTIONS_MAX) -> None:
        self._socket = socket.create_server((host, 0))
        #: What clients are told.
        self.port: int = self._socket.getsockname()[1]
        self._connections_max = connections_max
        self._target: BookieAddress | None = None
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._carriers: set[asyncio.Task[None]] = set()

    @property
    def is_cut(self) -> bool:
        """Whether nothing passes."""
        return not self._open.is_set()

    @property
    def connections(self) -> int:
        """Connections at present."""
        return len(self._carriers)

    def cut(self) -> None:
        """Let nothing pass from now on. Idempotent."""
        self._open.clear()

    def heal(self) -> None:
        """Let everything pass again. Idempotent."""
        self._open.set()

    async def start(self, target: BookieAddress) -> None:
        """Carry connections to ``target``."""
        self._target = target
        self._server = await asyncio.start_server(self._accepted, sock=self._socket, limit=CHUNK_SIZE)

    async def aclose(self) -> None:
        """Break every connection and give the port back. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._socket.close()
        for carrier in self._carriers:
            carrier.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._server is None or len(self._carriers) >= self._connections_max:
            writer.transport.abort()
            return
        self._carriers.add(task)
        with suppress(asyncio.CancelledError):  # of this relay's end; the task is nobody else's
            await self._carry(reader, writer)
        self._carriers.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._target is not None
        other: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            answers, other = await asyncio.open_connection(self._target.host, self._target.port, limit=CHUNK_SIZE)
            await all_of(
                forward(reader, other, self._passes),
                forward(answers, writer, self._passes),
            )
            await self._open.wait()
        except OSError:
            await self._open.wait()  # a client that is cut off does not learn that the bookie is gone
        finally:
            for each in (writer, other):
                if each is not None:
                    each.transport.abort()

    async def _passes(self, _: bytes) -> None:
        await self._open.wait()
