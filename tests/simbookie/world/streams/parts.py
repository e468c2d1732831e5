"""Protocols that note what they are told, and the two grounds on which stories about connections are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from simbookie.world.hosts import Host, World
from simbookie.world.links import TcpConfig

__all__ = ["HOST", "Noting", "NotingBuffered", "connect", "in_reality", "in_world", "pair", "serve"]

T = TypeVar("T")
HOST = "127.0.0.1"

Story = Callable[[], Coroutine[Any, Any, T]]


def in_reality(story: Story[T]) -> T:
    """Tell a story on asyncio's own loop, over loopback."""

    async def bounded() -> T:
        async with asyncio.timeout(30):
            return await story()

    return asyncio.run(bounded())


def in_world(story: Story[T], tcp: TcpConfig | None = None, seed: int = 1) -> T:
    """Tell it on a host of a simulated world."""
    with World(seed, tcp=tcp) as world:
        task = Host(world, "here").spawn(story)
        world.run(lambda: world.join(task))
        return task.result()


class _Notes:
    """What a protocol was told: ``events`` in order, and the bytes that came."""

    def __init__(self, *, stays_open: bool = False) -> None:
        self.events: list[str] = []
        self.received = bytearray()
        self.error: Exception | None = None
        self.stays_open = stays_open
        self.transport: asyncio.Transport
        self.changed = asyncio.Event()

    def note(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until something that the protocol is told makes ``predicate`` true."""
        while not predicate():
            self.changed.clear()
            await self.changed.wait()

    async def until_received(self, size: int) -> None:
        await self.until(lambda: len(self.received) >= size)

    async def until_told(self, event: str) -> None:
        await self.until(lambda: event in self.events)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.note("made")

    def eof_received(self) -> bool:
        self.note("end")
        return self.stays_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.note("lost")

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def took(self, data: bytes | memoryview) -> None:
        self.received += data
        if self.events[-1] != "data":
            self.events.append("data")
        self.changed.set()


class Noting(_Notes, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self.took(data)


class NotingBuffered(_Notes, asyncio.BufferedProtocol):
    """One with a buffer of ``size`` bytes."""

    def __init__(self, *, stays_open: bool = False, size: int = 4096) -> None:
        super().__init__(stays_open=stays_open)
        self.buffer = bytearray(size)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.took(memoryview(self.buffer)[:nbytes])


AnyNoting = Noting | NotingBuffered


async def serve(factory: Callable[[], AnyNoting] = Noting, **options: Any) -> tuple[int, asyncio.AbstractServer, Any]:
    """Listen; the port, the server, and a queue of the protocols of accepted connections."""
    accepted: asyncio.Queue[AnyNoting] = asyncio.Queue()

    def made() -> AnyNoting:
        protocol = factory()
        accepted.put_nowait(protocol)
        return protocol

    server = await asyncio.get_running_loop().create_server(made, HOST, 0, **options)
    port: int = server.sockets[0].getsockname()[1]
    return port, server, accepted


async def connect(port: int, factory: Callable[[], AnyNoting] = Noting) -> AnyNoting:
    _, protocol = await asyncio.get_running_loop().create_connection(factory, HOST, port)
    return protocol


async def pair(
    near: Callable[[], AnyNoting] = Noting, far: Callable[[], AnyNoting] = Noting
) -> tuple[AnyNoting, AnyNoting, Callable[[], Awaitable[None]]]:
    """Both ends of a connection, and what cleans up."""
    port, server, accepted = await serve(far)
    near_end = await connect(port, near)
    far_end = await accepted.get()
    await far_end.until_told("made")

    async def clean() -> None:
        for end in (near_end, far_end):
            if "lost" not in end.events:  # asyncio's transports cannot be aborted after that
                end.transport.abort()
                await end.until_told("lost")
        server.close()

    return near_end, far_end, clean
