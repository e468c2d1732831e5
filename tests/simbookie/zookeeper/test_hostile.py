"""Clients that are hostile or broken, with an honest one beside them, and what is left when they are gone."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

import pytest
from kazoo.protocol import serialization as codec
from kazoo.security import make_acl

from simbookie.zookeeper import ConnectionLimits, EmbeddedZooKeeper, Limits
from simbookie.zookeeper.codes import ErrorCode

PATIENCE_S = 30
OPEN = [make_acl("world", "anyone", all=True)]
LIMITS = Limits(sessions_max=6, session_timeout_min_s=0.2, znodes_max=2000, watches_max=40, watches_per_client_max=30)
CONNECTIONS = ConnectionLimits(
    connections_max=8,
    connections_per_source_max=8,
    connect_timeout_s=0.3,
    close_timeout_s=0.3,
    backlog_max=100_000,
)


def framed(record: bytes) -> bytes:
    return struct.pack(">i", len(record)) + record


def hello(timeout_ms: int = 20_000, session_id: int = 0, password: bytes = bytes(16), zxid: int = 0) -> bytes:
    return framed(bytes(codec.Connect(0, zxid, timeout_ms, session_id, password, read_only=False).serialize()))


def asked(request: Any, xid: int = 1) -> bytes:
    return framed(struct.pack(">ii", xid, request.type) + bytes(request.serialize()))


class Client:
    """A connection on which any bytes can be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.session_id, self.password = 0, b""

    @classmethod
    async def connect(cls, server: EmbeddedZooKeeper) -> Self:
        return cls(*await asyncio.open_connection(server.host, server.port))

    async def open_session(self, **options: Any) -> bool:
        self.writer.write(hello(**options))
        told, _ = codec.Connect.deserialize(await self.frame(), 0)
        self.session_id, self.password = told.session_id, told.passwd
        return bool(told.session_id)

    async def frame(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def ask(self, request: Any) -> int:
        """The error of a request."""
        self.writer.write(asked(request))
        header, _ = codec.ReplyHeader.deserialize(await self.frame(), 0)
        return int(header.err)

    async def until_closed(self) -> bytes:
        """What comes before the server ends the connection."""
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                return await self.reader.read(-1)
            return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


Connect = Callable[[], Awaitable[Client]]


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedZooKeeper]:
    async with EmbeddedZooKeeper(limits=LIMITS, connection_limits=CONNECTIONS) as running:
        yield running


@pytest.fixture
async def connect(server: EmbeddedZooKeeper) -> AsyncIterator[Connect]:
    """Connects clients; in the end they go, and nothing of them may be left but sessions that have not expired yet."""
    clients: list[Client] = []

    async def one() -> Client:
        clients.append(await Client.connect(server))
        return clients[-1]

    yield one
    for client in clients:
        await client.close()
    async with asyncio.timeout(PATIENCE_S):
        while server.connections:  # noqa: ASYNC110  the server is told by the operating system in its own time
            await asyncio.sleep(0.01)
    assert len(server.service.watches) == 0


async def is_served(connect: Connect) -> bool:
    """Whether an honest client gets on."""
    honest = await connect()
    is_open = await honest.open_session()
    return is_open and await honest.ask(codec.Sync("/")) == 0 and await honest.ask(codec.CloseInstance) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        framed(b""),
        framed(b"\0" * 43),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 2000) + b"x",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_who_does_not_ask_for_a_session_is_disconnected(connect: Connect, data: bytes) -> None:
    client = await connect()
    client.writer.write(data)
    await client.until_closed()
    assert await is_served(connect)


async def test_who_has_seen_more_than_the_server_knows_gets_no_session(connect: Connect) -> None:
    client = await connect()
    client.writer.write(hello(zxid=2**63 - 1))
    assert await client.until_closed() == b""
    assert await is_served(connect)


@pytest.mark.parametrize("seed", range(20))
async def test_noise_in_a_session_disturbs_nobody_else(connect: Connect, seed: int) -> None:
    rng = random.Random(seed)
    client = await connect()
    assert await client.open_session()
    for _ in range(200):
        body = rng.randbytes(rng.randrange(60))
        head = struct.pack(
            ">ii", rng.randrange(2**31), rng.choice((*range(-11, 23), *range(100, 108), rng.randrange(2**31)))
        )
        client.writer.write(framed(head + body) if rng.random() < 0.99 else rng.randbytes(rng.randrange(20)))
    client.writer.write_eof()
    await client.until_closed()
    assert await is_served(connect)


async def test_a_record_without_a_header_ends_the_connection(connect: Connect) -> None:
    client = await connect()
    assert await client.open_session(timeout_ms=100_000)
    client.writer.write(framed(b"\0\0\0"))
    assert await client.until_closed() == b""


async def test_a_frame_larger_than_allowed_ends_the_connection_before_it_has_come(connect: Connect) -> None:
    client = await connect()
    assert await client.open_session(timeout_ms=100_000)  # so that it cannot expire instead
    data = b"x" * (CONNECTIONS.frame_size_max - 1000)
    assert await client.ask(codec.Create("/large", data, OPEN, 0)) == 0
    client.writer.write(struct.pack(">i", CONNECTIONS.frame_size_max + 1))
    assert await client.until_closed() == b""


async def test_a_session_cannot_be_taken_without_its_password(connect: Connect) -> None:
    owner, thief, heir = await connect(), await connect(), await connect()
    assert await owner.open_session()
    assert not await thief.open_session(session_id=owner.session_id, password=b"0" * 16)
    assert await thief.until_closed() == b""
    assert await owner.ask(codec.Sync("/")) == 0
    assert await heir.open_session(session_id=owner.session_id, password=owner.password)
    assert await owner.until_closed() == b"", "a session is at one connection"
    assert await heir.ask(codec.Sync("/")) == 0


async def test_a_silent_session_expires_with_its_znodes_and_its_connection(
    server: EmbeddedZooKeeper, connect: Connect
) -> None:
    silent, watcher = await connect(), await connect()
    assert await silent.open_session(timeout_ms=200)
    assert await watcher.open_session()
    assert await silent.ask(codec.Create("/here", b"", OPEN, 1)) == 0
    assert await watcher.ask(codec.Exists("/here", watcher=True)) == 0
    assert await silent.until_closed() == b""
    event, _ = codec.Watch.deserialize(await watcher.frame(), codec.reply_header_struct.size)
    assert (event.type, event.path) == (2, "/here")
    assert len(server.service.sessions) == 1


async def test_bytes_that_are_no_whole_request_keep_no_session_alive(connect: Connect) -> None:
    client = await connect()
    assert await client.open_session(timeout_ms=400)
    dripping = asyncio.create_task(client.until_closed())
    client.writer.write(struct.pack(">i", 10_000))
    while not dripping.done():
        client.writer.write(b"x")
        await asyncio.sleep(0.02)
    assert await dripping == b""


async def test_connections_and_sessions_are_bounded(
    server: EmbeddedZooKeeper, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    clients = [await connect() for _ in range(LIMITS.sessions_max)]
    for client in clients:
        assert await client.open_session()
    surplus = await connect()
    surplus.writer.write(hello())
    assert await surplus.until_closed() == b""
    waiting = [await connect() for _ in range(20)]
    for client in waiting:
        await client.until_closed()
    assert server.connections == LIMITS.sessions_max
    assert len([record for record in caplog.records if "is refused: there are 8 connections" in record.message]) == 1
    await clients[0].ask(codec.CloseInstance)
    assert await is_served(connect)


async def test_one_source_does_not_take_all_connections() -> None:
    limits = ConnectionLimits(connections_per_source_max=2)
    async with EmbeddedZooKeeper(connection_limits=limits) as server:
        clients = [await Client.connect(server) for _ in range(3)]
        assert await clients[2].until_closed() == b""
        assert await clients[0].open_session()
        for client in clients:
            await client.close()


async def test_watches_are_bounded_for_each_client_and_for_all(connect: Connect) -> None:
    clients = [await connect(), await connect()]
    for client, room in zip(clients, (30, 10), strict=True):
        assert await client.open_session()
        codes = [await client.ask(codec.Exists(f"/{number}", watcher=True)) for number in range(room + 5)]
        assert codes == [ErrorCode.NO_NODE] * room + [ErrorCode.QUOTA_EXCEEDED] * 5
    assert await is_served(connect)


async def test_a_path_is_bounded(connect: Connect) -> None:
    client = await connect()
    assert await client.open_session()
    path = "/" + "x" * LIMITS.path_size_max
    for request in (
        codec.Exists(path, watcher=True),
        codec.Create(path, b"", OPEN, 0),
        codec.GetData(path, watcher=True),
    ):
        assert await client.ask(request) == ErrorCode.BAD_ARGUMENTS
    assert await client.ask(codec.Create(path[:-1], b"", OPEN, 0)) == 0


async def test_a_flood_does_not_keep_others_waiting(server: EmbeddedZooKeeper, connect: Connect) -> None:
    flooder, honest = await connect(), await connect()
    assert await flooder.open_session()
    assert await honest.open_session()
    handled: list[int] = []
    handle = server.service.handle

    def count(client: Any, record: bytes) -> None:
        handled.append(client.session.session_id)
        handle(client, record)

    server.service.handle = count  # type: ignore[method-assign]  # watched, not changed
    flooder.writer.write(asked(codec.Sync("/")) * 10_000)
    honest.writer.write(asked(codec.Sync("/")))
    await honest.frame()
    first = handled.index(honest.session_id)
    assert first < 500, "a turn of the flooder comes before, not its flood"
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(10_000):
            await flooder.frame()


async def test_who_does_not_read_is_not_served_on(server: EmbeddedZooKeeper, connect: Connect) -> None:
    greedy = await connect()
    assert await greedy.open_session(timeout_ms=100_000)
    assert await greedy.ask(codec.Create("/large", b"x" * 500_000, OPEN, 0)) == 0
    (connection,) = server._connections
    transport = connection._transport
    assert transport is not None
    greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]  # which this transport has
    greedy.writer.write(asked(codec.GetData("/large", watcher=False)) * 1000)
    for _ in range(100):  # turns in which it could be served
        assert await is_served(connect)
    assert transport.get_write_buffer_size() < 5_000_000, "of half a gigabyte"
    greedy.writer.transport.abort()


async def test_who_does_not_read_events_is_disconnected(
    server: EmbeddedZooKeeper, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    deaf, busy = await connect(), await connect()
    assert await deaf.open_session(timeout_ms=100_000)
    assert await busy.open_session(timeout_ms=100_000)
    path = "/" + "x" * 4000
    deaf.writer.write(framed(struct.pack(">ii", 1, 106) + codec.write_string(path) + struct.pack(">i", 0)))
    await deaf.frame()
    deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]  # which this transport has
    assert await busy.ask(codec.Create(path, b"", OPEN, 0)) == 0
    for _ in range(5000):
        if server.connections == 1:
            break
        assert await busy.ask(codec.SetData(path, b"", -1)) == 0
    assert server.connections == 1
    assert "it does not read its events" in caplog.text
    assert len(server.service.watches) == 0
    deaf.writer.transport.abort()


async def test_closing_waits_for_nobody_for_ever(server: EmbeddedZooKeeper, connect: Connect) -> None:
    stuck, idle = await connect(), await connect()
    assert await stuck.open_session()
    assert await stuck.ask(codec.Create("/large", b"x" * 1_000_000, OPEN, 0)) == 0
    stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]  # which this transport has
    stuck.writer.write(asked(codec.GetData("/large", watcher=False)) * 20)
    assert await idle.open_session()
    async with asyncio.timeout(PATIENCE_S):
        await server.aclose()
    assert server.connections == 0
    stuck.writer.transport.abort()
