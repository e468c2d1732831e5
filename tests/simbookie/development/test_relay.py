"""A relay passes bytes both ways, and nothing at all while it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bkclient.metadata.base import BookieAddress
from simbookie.development.relay import Relay


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line.upper())
    writer.close()


@asynccontextmanager
async def relayed(relay: Relay) -> AsyncIterator[asyncio.Server]:
    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    await relay.start(BookieAddress("127.0.0.1", server.sockets[0].getsockname()[1]))
    try:
        yield server
    finally:
        await relay.aclose()
        server.close()
    assert relay.connections == 0


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.05):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_bytes_pass_both_ways_and_so_does_the_end_of_a_stream() -> None:
    relay = Relay()
    async with relayed(relay):
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"one\n" * 50_000)
        writer.write_eof()
        assert await reader.read(-1) == b"ONE\n" * 50_000
        writer.close()


async def test_nothing_passes_while_it_is_cut_and_all_of_it_afterwards() -> None:
    relay = Relay()
    async with relayed(relay):
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"before\n")
        assert await reader.readline() == b"BEFORE\n"
        relay.cut()
        assert relay.is_cut
        writer.write(b"during\n")
        later_reader, later_writer = await asyncio.open_connection("127.0.0.1", relay.port)
        later_writer.write(b"later\n")
        assert await is_silent(reader)
        assert await is_silent(later_reader)
        relay.heal()
        assert await reader.readline() == b"DURING\n"
        assert await later_reader.readline() == b"LATER\n"
        writer.close()
        later_writer.close()


async def test_a_client_that_is_cut_off_does_not_learn_that_the_bookie_is_gone() -> None:
    relay = Relay()
    async with relayed(relay) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"x\n")
        assert await reader.readline() == b"X\n"
        relay.cut()
        server.close()
        late_reader, late_writer = await asyncio.open_connection("127.0.0.1", relay.port)
        assert await is_silent(late_reader)
        relay.heal()
        assert await late_reader.read() == b""
        writer.close()
        late_writer.close()


async def test_a_connection_too_many_is_closed() -> None:
    relay = Relay(connections_max=1)
    async with relayed(relay):
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"x\n")
        assert await reader.readline() == b"X\n"
        second, second_writer = await asyncio.open_connection("127.0.0.1", relay.port)
        with suppress(ConnectionError):
            assert await second.read() == b""
        assert relay.connections == 1
        writer.close()
        second_writer.close()
