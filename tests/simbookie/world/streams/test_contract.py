"""Connections of the virtual-time loop behave as those of asyncio's own loop: the same stories are told to both."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simbookie.world.links import TcpConfig
from tests.simbookie.world.streams.parts import (
    HOST,
    Noting,
    NotingBuffered,
    Story,
    connect,
    in_reality,
    in_world,
    pair,
    serve,
)

CERTIFICATES = Path(__file__).parents[3] / "certificates"
#: More than all buffers of a connection over loopback hold.
MUCH = 12 * 1024 * 1024

Tell = Callable[[Story[None]], None]

GROUNDS: dict[str, Tell] = {
    "asyncio": in_reality,
    "world": in_world,
    "world, 7-byte segments": lambda story: in_world(story, TcpConfig(segment_bytes=7 * 1024, cut_probability=0.3)),
    "world, small buffers": lambda story: in_world(
        story, TcpConfig(send_buffer_bytes=50_000, receive_buffer_bytes=9_000)
    ),
}


@pytest.fixture(params=GROUNDS)
def tell(request: pytest.FixtureRequest) -> Tell:
    return GROUNDS[request.param]


@pytest.mark.parametrize("near", [Noting, NotingBuffered])
@pytest.mark.parametrize("far", [Noting, NotingBuffered])
def test_bytes_arrive_in_order_both_ways_and_then_the_end(tell: Tell, near: Any, far: Any) -> None:
    async def story() -> None:
        one, other, clean = await pair(near, far)
        one.transport.write(b"hello ")
        one.transport.writelines([b"wor", bytearray(b"l"), memoryview(b"d")])
        await other.until_received(11)
        other.transport.write(bytes(range(256)) * 40)
        await one.until_received(256 * 40)
        one.transport.close()
        assert one.events == ["made", "data"], "nothing is told from within a call"
        await other.until_told("lost")
        await one.until_told("lost")
        assert bytes(other.received) == b"hello world"
        assert bytes(one.received) == bytes(range(256)) * 40
        assert one.events == ["made", "data", "lost"]
        assert other.events == ["made", "data", "end", "lost"]
        assert (one.error, other.error) == (None, None)
        await clean()

    tell(story)


def test_connection_made_comes_before_the_caller_goes_on(tell: Tell) -> None:
    async def story() -> None:
        port, server, _ = await serve()
        protocol = await connect(port)
        assert protocol.events == ["made"]
        assert protocol.transport.get_protocol() is protocol
        protocol.transport.abort()
        await protocol.until_told("lost")
        server.close()

    tell(story)


def test_addresses_and_socket_options(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair()
        near, far = one.transport, other.transport
        assert near.get_extra_info("sockname") == far.get_extra_info("peername")
        assert near.get_extra_info("peername") == far.get_extra_info("sockname")
        assert near.get_extra_info("peername")[1] != near.get_extra_info("sockname")[1]
        assert near.get_extra_info("no such thing", "default") == "default"
        near.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await clean()

    tell(story)


def test_a_protocol_that_stays_open_after_the_end_can_go_on_writing(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair(far=lambda: Noting(stays_open=True))
        assert one.transport.can_write_eof()
        one.transport.write(b"question")
        one.transport.write_eof()
        one.transport.write_eof()
        with pytest.raises(RuntimeError, match=r"write_eof\(\)"):
            one.transport.write(b"more")
        await other.until_told("end")
        assert not other.transport.is_closing()
        other.transport.write(b"answer")
        await one.until_received(6)
        other.transport.close()
        await one.until_told("lost")
        assert bytes(other.received) == b"question"
        assert one.events == ["made", "data", "end", "lost"]
        assert other.events == ["made", "data", "end", "lost"]
        await clean()

    tell(story)


def test_what_is_unsent_goes_out_before_the_end_of_write_eof_and_before_close(tell: Tell) -> None:
    async def story() -> None:
        for finish in ("write_eof", "close"):
            one, other, clean = await pair()
            one.transport.write(b"x" * MUCH)
            getattr(one.transport, finish)()
            await other.until_told("end")
            assert len(other.received) == MUCH
            await other.until_told("lost")
            await one.until_told("lost")
            assert one.error is None
            await clean()

    tell(story)


def test_a_reader_that_pauses_stops_the_writer_and_loses_nothing(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair(far=NotingBuffered)
        assert other.transport.is_reading()
        other.transport.pause_reading()
        other.transport.pause_reading()
        assert not other.transport.is_reading()
        one.transport.write(b"a" * MUCH)
        one.transport.write(b"b" * MUCH)
        assert one.events == ["made", "pause"]
        unsent = one.transport.get_write_buffer_size()
        assert MUCH < unsent <= 2 * MUCH
        await asyncio.sleep(0.05)
        assert other.received == b""
        assert one.transport.get_write_buffer_size() > MUCH
        other.transport.resume_reading()
        other.transport.resume_reading()
        await other.until_received(2 * MUCH)
        await one.until_told("resume")
        assert one.transport.get_write_buffer_size() == 0
        assert one.events == ["made", "pause", "resume"]
        assert other.received == b"a" * MUCH + b"b" * MUCH
        await clean()

    tell(story)


def test_water_marks_say_when_writing_pauses(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair()
        other.transport.pause_reading()
        one.transport.write(b"x" * MUCH)
        assert one.events[-1] == "pause"
        one.transport.set_write_buffer_limits(high=3 * MUCH, low=2 * MUCH)
        assert one.transport.get_write_buffer_limits() == (2 * MUCH, 3 * MUCH)
        other.transport.resume_reading()
        await one.until_told("resume")
        await other.until_received(MUCH)
        one.transport.set_write_buffer_limits(high=0)
        assert one.transport.get_write_buffer_limits() == (0, 0)
        with pytest.raises(ValueError, match="high"):
            one.transport.set_write_buffer_limits(high=1, low=2)
        await clean()

    tell(story)


def test_pausing_again_while_bytes_wait_lets_none_of_them_through(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair(far=lambda: NotingBuffered(size=10))
        taken: list[int] = []

        def took(data: bytes | memoryview) -> None:
            NotingBuffered.took(other, data)
            taken.append(len(data))
            other.transport.pause_reading()

        other.took = took  # type: ignore[method-assign]
        one.transport.write(b"0123456789abcdefghij")
        await other.until_received(10)
        await asyncio.sleep(0.01)
        assert bytes(other.received) == b"0123456789"
        other.transport.resume_reading()
        await other.until_received(20)
        assert taken == [10, 10]
        await clean()

    tell(story)


def test_abort_drops_what_is_unsent_and_tells_later(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair()
        other.transport.pause_reading()
        one.transport.write(b"x" * MUCH)
        one.transport.abort()
        assert one.transport.is_closing()
        assert one.events == ["made", "pause"]
        assert one.transport.get_write_buffer_size() == 0
        await one.until_told("lost")
        assert one.error is None
        other.transport.resume_reading()
        await other.until_told("lost")
        assert len(other.received) < MUCH
        one.transport.abort()
        one.transport.close()
        await asyncio.sleep(0.01)
        assert one.events == ["made", "pause", "lost"]
        await clean()

    tell(story)


def test_what_is_written_after_the_end_is_dropped(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair()
        one.transport.close()
        await one.until_told("lost")
        for _ in range(3):
            one.transport.write(b"nobody")
        assert one.transport.get_write_buffer_size() == 0
        await other.until_told("lost")
        assert other.received == b""
        assert not one.transport.is_reading()
        one.transport.resume_reading()
        one.transport.pause_reading()
        await clean()

    tell(story)


def test_closing_with_unread_bytes_resets_the_other_end(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair()
        other.transport.pause_reading()
        one.transport.write(b"never read")
        await asyncio.sleep(0.05)
        other.transport.close()
        await one.until_told("lost")
        assert isinstance(one.error, ConnectionResetError)
        assert other.error is None
        await clean()

    tell(story)


def test_writing_to_an_end_that_was_closed_breaks_the_connection(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair(near=lambda: Noting(stays_open=True))
        other.transport.close()
        await one.until_told("end")
        while "lost" not in one.events:
            one.transport.write(b"into the void")
            await asyncio.sleep(0.005)
        assert isinstance(one.error, ConnectionResetError | BrokenPipeError)
        await clean()

    tell(story)


def test_a_connection_that_nobody_accepts_is_refused(tell: Tell) -> None:
    async def story() -> None:
        port, server, _ = await serve()
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await connect(port)

    tell(story)


def test_a_port_is_taken_once(tell: Tell) -> None:
    async def story() -> None:
        port, server, _ = await serve()
        with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
            await asyncio.get_running_loop().create_server(Noting, HOST, port)
        server.close()

    tell(story)


def test_a_closed_server_keeps_its_connections(tell: Tell) -> None:
    async def story() -> None:
        port, server, accepted = await serve()
        assert server.is_serving()
        near = await connect(port)
        far = await accepted.get()
        server.close()
        assert not server.is_serving()
        near.transport.write(b"still here")
        await far.until_received(10)
        near.transport.close()
        await far.until_told("lost")
        await server.wait_closed()

    tell(story)


def test_a_server_serves_when_it_is_told_to(tell: Tell) -> None:
    async def story() -> None:
        port, server, accepted = await serve(start_serving=False)
        assert not server.is_serving()
        async with server:
            await server.start_serving()
            assert server.is_serving()
            near = await connect(port)
            far = await accepted.get()
            near.transport.close()
            await far.until_told("lost")

    tell(story)


def test_protocols_can_be_changed_in_the_middle(tell: Tell) -> None:
    async def story() -> None:
        one, other, clean = await pair(far=NotingBuffered)
        one.transport.write(b"first")
        await other.until_received(5)
        second = Noting()
        second.events.append("made")
        other.transport.set_protocol(second)
        assert other.transport.get_protocol() is second
        one.transport.write(b"second")
        await second.until_received(6)
        assert bytes(second.received) == b"second"
        other.transport.set_protocol(other)
        await clean()

    tell(story)


def test_only_bytes_are_written(tell: Tell) -> None:
    async def story() -> None:
        one, _other, clean = await pair()
        with pytest.raises(TypeError, match="bytes"):
            one.transport.write("text")  # type: ignore[arg-type]
        one.transport.write(b"")
        await clean()

    tell(story)


def test_an_attempt_to_connect_that_is_cancelled_leaves_nothing(tell: Tell) -> None:
    async def story() -> None:
        port, server, _ = await serve()
        for turns in range(6):
            attempt = asyncio.create_task(connect(port))
            for _ in range(turns):
                await asyncio.sleep(0)
            attempt.cancel()
            outcome = (await asyncio.gather(attempt, return_exceptions=True))[0]
            if isinstance(outcome, Noting):
                outcome.transport.abort()
                await outcome.until_told("lost")
            else:
                assert isinstance(outcome, asyncio.CancelledError)
        server.close()

    tell(story)


def test_asyncio_streams(tell: Tell) -> None:
    async def story() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async for line in reader:
                writer.write(line.upper())
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(answer, HOST, 0)
        reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
        for number in range(20):
            writer.write(b"line %d\n" % number * 50)
            await writer.drain()
        writer.write_eof()
        assert await reader.read() == b"".join(b"LINE %d\n" % number * 50 for number in range(20))
        writer.close()
        await writer.wait_closed()
        server.close()

    tell(story)


def test_tls_starts_on_a_connection(tell: Tell) -> None:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(CERTIFICATES / "bookie.pem", CERTIFICATES / "bookie-key.pem")
    ours = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
    ours.check_hostname = False

    async def story() -> None:
        one, other, clean = await pair()
        loop = asyncio.get_running_loop()
        near, far = await asyncio.gather(
            loop.start_tls(one.transport, one, ours), loop.start_tls(other.transport, other, theirs, server_side=True)
        )
        assert near is not None
        assert far is not None
        near.write(b"secret" * 10_000)
        await other.until_received(60_000)
        far.write(b"answer")
        await one.until_received(6)
        assert bytes(other.received) == b"secret" * 10_000
        near.close()
        await other.until_told("lost")
        await one.until_told("lost")
        await clean()

    tell(story)
