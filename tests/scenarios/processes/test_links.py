"""Links break connections as networks do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from scenarios.processes.links import ClientLink
from simbookie.world.links import NetworkConfig

_FRAME = b"\x00\x00\x00\x05hello"


class Echo:
    """A server that sends back what it gets, and knows where connections come from."""

    def __init__(self) -> None:
        self.port = 0
        self.peers: list[str] = []
        self.heard = b""
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.peers.append(writer.get_extra_info("peername")[0])
        try:
            while data := await reader.read(1000):
                self.heard += data
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    found = Echo()
    server = await found.start()
    yield found
    server.close()
    found.close()


@pytest.fixture
async def link(echo: Echo) -> AsyncIterator[ClientLink]:
    made = ClientLink("127.0.1.7", lambda: echo.port, Random(1))
    await made.start()
    yield made
    await made.aclose()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(link: ClientLink) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    return reader, writer


async def silence(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.05)


async def test_a_link_carries_frames_and_servers_see_the_address_of_its_host(link: ClientLink, echo: Echo) -> None:
    reader, writer = await connected(link)
    writer.write(_FRAME + _FRAME[:6])
    assert await reader.readexactly(len(_FRAME) + 6) == _FRAME + _FRAME[:6]
    assert echo.peers == ["127.0.1.7"]
    assert (link.to.frames, link.back.frames) == (1, 1), "the second frame is not whole"
    writer.close()


async def test_what_is_sent_into_a_cut_arrives_when_it_has_ended(link: ClientLink, echo: Echo) -> None:
    reader, writer = await connected(link)
    writer.write(b"a")
    await reader.readexactly(1)
    link.to.block()
    link.to.block()
    writer.write(b"b")
    await silence(reader)
    assert echo.heard == b"a"
    link.to.unblock()
    await silence(reader)
    link.to.unblock()
    assert await reader.readexactly(1) == b"b"
    writer.close()


async def test_a_cut_of_one_direction_leaves_the_other(link: ClientLink, echo: Echo) -> None:
    reader, writer = await connected(link)
    writer.write(b"a")
    await reader.readexactly(1)
    link.back.block()
    writer.write(b"b")
    await silence(reader)
    assert echo.heard == b"ab"
    link.back.unblock()
    assert await reader.readexactly(1) == b"b"
    writer.close()


async def test_a_new_connection_into_a_cut_is_silent(link: ClientLink, echo: Echo) -> None:
    link.back.block()
    reader, writer = await connected(link)
    writer.write(b"a")
    await silence(reader)
    assert not echo.peers
    link.back.unblock()
    assert await reader.readexactly(1) == b"a"
    writer.close()


async def test_a_reset_breaks_connections_and_new_ones_work(link: ClientLink) -> None:
    reader, writer = await connected(link)
    writer.write(b"a")
    await reader.readexactly(1)
    link.reset()
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()
    reader, writer = await connected(link)
    writer.write(b"b")
    assert await reader.readexactly(1) == b"b"
    writer.close()


async def test_a_connection_to_a_server_that_is_gone_is_reset() -> None:
    link = ClientLink("127.0.1.7", lambda: 1, Random(1))
    await link.start()
    reader, writer = await connected(link)
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()
    await link.aclose()


async def test_weather_delays_and_keeps_the_order(link: ClientLink) -> None:
    link.to.weather = NetworkConfig(latency_s=0.03, jitter_s=0.02)
    reader, writer = await connected(link)
    began = asyncio.get_running_loop().time()
    for byte in b"abc":
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert await reader.readexactly(3) == b"abc"
    assert asyncio.get_running_loop().time() - began >= 0.03
    writer.close()
