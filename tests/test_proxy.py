"""The proxy of the tests forwards faithfully, ends cleanly, and lets those built on it see and change everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from bkclient.metadata.base import BookieAddress
from tests.proxy import Cut, Direction, Flow, Proxy, RecordingProxy

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

#: More than passes in one piece.
MUCH = bytes(range(256)) * 4_000


@asynccontextmanager
async def peer(serve: Serve) -> AsyncIterator[BookieAddress]:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(closing, "127.0.0.1", 0)
    async with server:
        yield BookieAddress("127.0.0.1", server.sockets[0].getsockname()[1])


async def answers_when_all_is_said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"heard " + await reader.read())


async def is_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def connected(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(proxy.address.host, proxy.address.port)


async def said(proxy: Proxy, data: bytes) -> bytes:
    """What comes back once ``data`` was all there was to say."""
    reader, writer = await connected(proxy)
    writer.write(data)
    writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    unseen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    yield
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() - {asyncio.current_task()} == set()
    assert unseen == []


async def test_what_one_side_says_arrives_though_it_said_all_and_listens_only() -> None:
    async with peer(answers_when_all_is_said) as address, RecordingProxy(address) as proxy:
        assert await said(proxy, MUCH) == b"heard " + MUCH
        assert await said(proxy, b"again") == b"heard again"

    assert proxy.heard(Direction.REQUESTS) == [MUCH, b"again"]
    assert proxy.heard(Direction.ANSWERS) == [b"heard " + MUCH, b"heard again"]


async def test_connections_end_with_the_block() -> None:
    async with peer(is_silent) as address:
        async with Proxy(address) as proxy:
            port = proxy.address.port
            reader, writer = await connected(proxy)
            writer.write(b"hello")
            await asyncio.sleep(0.01)
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_peer_that_is_not_there_ends_connections() -> None:
    async with peer(is_silent) as address:
        pass
    async with Proxy(address) as proxy:
        reader, writer = await connected(proxy)
        assert await reader.read() == b""
        writer.close()


class CutsAtOnce(Proxy):
    async def passes(self, flow: Flow, data: bytes) -> None:
        raise Cut


async def test_a_cut_ends_both_sides_with_nothing_forwarded() -> None:
    lost = asyncio.Event()

    async def waits_for_the_end(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""
        lost.set()

    async with peer(waits_for_the_end) as address, CutsAtOnce(address) as proxy:
        reader, writer = await connected(proxy)
        writer.write(b"hello")
        assert await reader.read() == b""
        await lost.wait()
        writer.close()


class IsWrong(Proxy):
    async def passes(self, flow: Flow, data: bytes) -> None:
        raise AssertionError("a test's own mistake")


async def test_a_mistake_in_what_passes_is_raised_at_the_end_of_the_block() -> None:
    async with peer(answers_when_all_is_said) as address:
        with pytest.raises(ExceptionGroup) as caught:
            async with IsWrong(address) as proxy:
                assert await said(proxy, b"hello") == b""

    assert caught.group_contains(AssertionError, match="a test's own mistake")


async def hold(address: BookieAddress) -> None:
    async with Proxy(address) as proxy:
        _, writer = await connected(proxy)
        try:
            await anyio.sleep_forever()
        finally:
            writer.close()


async def test_a_proxy_ends_cleanly_in_a_scope_that_is_cancelled() -> None:
    async with peer(is_silent) as address:
        with anyio.move_on_after(0.01) as scope:
            await hold(address)

    assert scope.cancelled_caught


async def test_a_proxy_ends_cleanly_in_a_group_that_fails() -> None:
    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise KeyError

    async def together(address: BookieAddress) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(hold(address))
            group.create_task(fails())

    async with peer(is_silent) as address:
        with pytest.raises(ExceptionGroup):
            await together(address)
