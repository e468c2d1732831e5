"""A server that speaks as much of ZooKeeper's protocol as it takes to be mistaken for one, and then misbehaves."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

__all__ = ["Behaviour", "after_the_handshake", "in_the_handshake", "serve"]

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SESSION_TIMEOUT_MS = 60_000


@asynccontextmanager
async def serve(behaviour: Behaviour) -> AsyncIterator[str]:
    """Yield the ``host:port`` of a server that treats every connection with ``behaviour``."""
    tasks: set[asyncio.Task[None]] = set()

    async def treat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await behaviour(reader, writer)
        writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(treat(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(length)
    answer = struct.pack(">iiqi16s?", 0, SESSION_TIMEOUT_MS, 0x5E55, 16, bytes(16), False)
    writer.write(struct.pack(">i", len(answer)) + answer)


async def _silence(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _hang_up(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    pass


async def _half_a_frame(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">i", 1000) + bytes(10))
    await asyncio.Event().wait()


async def _trickle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">i", 1_000_000))
    while not writer.transport.is_closing():
        writer.write(b"\0")
        await asyncio.sleep(0.1)


async def _another_protocol(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await asyncio.Event().wait()


async def _nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while not writer.transport.is_closing():
        await asyncio.sleep(0.05)
        writer.write(struct.pack(">i", 16) + b"\xff" * 16)


async def _deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # that of a server's connection can
    await asyncio.Event().wait()


_WAYS: dict[str, Behaviour] = {
    "is silent": _silence,
    "hangs up": _hang_up,
    "sends half a frame": _half_a_frame,
    "sends a byte now and then": _trickle,
    "speaks another protocol": _another_protocol,
    "sends nonsense": _nonsense,
    "does not read": _deaf,
}

in_the_handshake: dict[str, Behaviour] = _WAYS
"""What a server may do instead of opening a session."""


def _after(behaviour: Behaviour) -> Behaviour:
    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        await behaviour(reader, writer)

    return both


after_the_handshake: dict[str, Behaviour] = {name: _after(behaviour) for name, behaviour in _WAYS.items()}
"""What it may do after it has opened one."""
