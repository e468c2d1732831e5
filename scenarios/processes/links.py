"""Links: proxies between each client and each server of a run, where the network is broken.

A link listens on a port of its own for one client, and carries its connections to one server. It does to them what a network does
to TCP, and nothing else: what is cut off waits, in one direction or both, and arrives when the fault has ended; connections are
reset; bytes come late. While a link is cut, new connections are taken and stay silent, as nothing tells a client more.

The link's own connections come from an address of the loopback interface that stands for the client's host, so servers see who
asks. Between clients and bookies it looks into frames, to count them and to do to single ones what a plan says
(:mod:`scenarios.processes.picking`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final

from scenarios.processes.picking import FrameBounds, FrameFaults, PickedStream
from simbookie.development.forwarding import CHUNK_SIZE, all_of, forward
from simbookie.world.frames import filters_between
from simbookie.world.links import NetworkConfig

__all__ = ["ClientLink", "LinkWay", "check_addresses"]

_HOST: Final = "127.0.0.1"
#: Linger for no time: closing resets the connection.
_RESETS: Final = struct.pack("ii", 1, 0)


def check_addresses() -> None:
    """``RuntimeError`` where the loopback interface has one address only."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.1.1", 0))
        except OSError as error:
            raise RuntimeError(
                f"runs with processes need the loopback addresses 127.0.0.2 and up, which only Linux has by itself: {error}"
            ) from None


class LinkWay:
    """One direction of a link: whether anything passes, how late, and how many frames have."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._open = asyncio.Event()
        self._open.set()
        self._blocks = 0
        #: The delays of chunks of bytes, which keep their order.
        self.weather: NetworkConfig | None = None
        #: Whole frames that passed.
        self.frames = 0

    def block(self) -> None:
        """Let nothing pass until :meth:`unblock` was called as often."""
        self._blocks += 1
        self._open.clear()

    def unblock(self) -> None:
        """Take one block away."""
        self._blocks -= 1
        if not self._blocks:
            self._open.set()

    async def wait_open(self) -> None:
        """Wait until something may pass."""
        while self._blocks:
            await self._open.wait()

    async def let_pass(self, stream: FrameBounds, data: bytes) -> None:
        """Wait until these bytes of a stream may pass, as late as the weather has them; none stand for its end."""
        if data:
            await self._delay()
        await self.wait_open()
        self.frames += stream.feed(data)

    async def _delay(self) -> None:
        weather = self.weather
        if weather is not None:
            late = weather.latency_s + self._rng.uniform(0, weather.jitter_s)
            if self._rng.random() < weather.slow_probability:
                late += self._rng.uniform(0, weather.slow_s)
            await asyncio.sleep(late)


class ClientLink:
    """The way from a client to a server and back. ``target`` gives the server's port, which may change when it restarts."""

    def __init__(self, address: str, target: Callable[[], int], rng: Random, faults: FrameFaults | None = None) -> None:
        """``faults`` pick single frames, where frames are BookKeeper's."""
        self._address = address
        self._faults = faults
        self._target = target
        self.to, self.back = LinkWay(rng), LinkWay(rng)
        self._server: asyncio.Server | None = None
        self._carriers: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self.port = 0

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accepted, _HOST, 0, limit=CHUNK_SIZE)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Break every connection. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        carriers = list(self._carriers)
        for carrier in carriers:
            carrier.cancel()
        await asyncio.gather(*carriers, return_exceptions=True)

    def reset(self) -> None:
        """Reset every connection, on both sides; what is under way is lost, perhaps in the middle of a frame."""
        for carrier in self._carriers:
            carrier.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ends = self._carriers[task] = [writer]
        try:
            with suppress(asyncio.CancelledError, OSError):
                await self._carry(reader, writer, ends)
        finally:
            del self._carriers[task]
            for each in ends:
                _reset(each)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: list[asyncio.StreamWriter]
    ) -> None:
        await self.to.wait_open()
        await self.back.wait_open()
        answers, other = await asyncio.open_connection(
            _HOST, self._target(), limit=CHUNK_SIZE, local_addr=(self._address, 0)
        )
        ends.append(other)
        if self._faults is None:
            await all_of(
                forward(reader, other, partial(self.to.let_pass, FrameBounds())),
                forward(answers, writer, partial(self.back.let_pass, FrameBounds())),
            )
            return
        to, back = PickedStream(reader, self._faults.to), PickedStream(answers, self._faults.back)
        to.filter, back.filter = filters_between(to, back)
        await all_of(
            to.take(),
            back.take(),
            forward(to, other, partial(self.to.let_pass, FrameBounds())),
            forward(back, writer, partial(self.back.let_pass, FrameBounds())),
        )


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
    writer.transport.abort()
