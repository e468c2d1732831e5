"""Bookies that misbehave, or end, while a client makes a connection secure."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.metadata.base import BookieAddress
from bkclient.security.auth import AuthSession, SharedSecret
from bkclient.transport.handshake import AUTH_MESSAGES_MAX, UNANSWERED
from bkclient.wire import v3
from bkclient.wire.framing import frame
from bkclient.wire.messages import (
    AuthMessage,
    ErrorResponse,
    Operation,
    Response,
    StartTlsResponse,
    Status,
)
from bkclient.wire.server_connection import ServerConnection
from simbookie.security import SharedSecretBookie
from tests.bkclient.transport.scripted_bookie import until
from tests.bkclient.transport.test_handshake import SECRET, client_of, reason_of, versions
from tests.bkclient.transport.test_tcp import add
from tests.tls import MUTUAL, TRUSTING, client_security, offering

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def playing(play: Play) -> AsyncIterator[tuple[BookieAddress, list[asyncio.StreamWriter]]]:
    """A server that does what ``play`` says; its connections, as they come."""
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            await play(reader, writer)
            while await reader.read(65536):
                pass
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield BookieAddress(*server.sockets[0].getsockname()[:2]), connections
    finally:
        server.close()
        await asyncio.sleep(0.005)


async def received_by(reader: asyncio.StreamReader) -> tuple[ServerConnection, Any]:
    """One request, with the connection that can answer it."""
    prefix = await reader.readexactly(4)
    content = await reader.readexactly(int.from_bytes(prefix))
    wire = ServerConnection()
    (received,) = wire.receive(prefix + content)
    return wire, received


async def agree(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, more: bytes = b"") -> Any:
    """Answer the request for TLS, in one piece with ``more``; returns the request."""
    wire, received = await received_by(reader)
    writer.write(wire.encode_response(received, StartTlsResponse(Status.OK)) + more)
    return received


async def start_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    received = await agree(reader, writer)
    context = offering().tls
    assert context is not None
    await writer.start_tls(context)
    return received


@pytest.mark.parametrize("more", [frame(b"injected"), b"\0", b"\x16\x03\x01"])
async def test_bytes_in_clear_behind_the_agreement_are_never_taken_for_protected_ones(more: bytes) -> None:
    async def inject(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agree(reader, writer, more)

    async with (
        playing(inject) as (address, connections),
        client_of(address, client_security(**TRUSTING)) as outcomes,
    ):
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.SECURITY]
        assert "bytes in clear" in reason_of(outcomes)
        await until(connections[0].is_closing)


@pytest.mark.parametrize("stage", ["question", "handshake", "authentication"])
async def test_a_bookie_that_falls_silent_costs_the_time_limit_and_no_more(stage: str) -> None:
    async def fall_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if stage == "handshake":
            await agree(reader, writer)
        elif stage == "authentication":
            await start_tls(reader, writer)

    security = client_security(SharedSecret(SECRET), timeout_s=0.1, **TRUSTING)
    async with playing(fall_silent) as (address, connections), client_of(address, security) as outcomes:
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.BOOKIE_NOT_AVAILABLE]
        await until(connections[0].is_closing)


@pytest.mark.parametrize("stage", ["question", "handshake", "authentication"])
async def test_closing_the_client_in_the_middle_leaves_no_socket_and_no_task(stage: str) -> None:
    reached, ended = asyncio.Event(), asyncio.Event()

    async def stop_there(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if stage == "question":
            await received_by(reader)
        elif stage == "handshake":
            await agree(reader, writer)
            await reader.readexactly(5)
        else:
            await start_tls(reader, writer)
            await received_by(reader)
        reached.set()
        try:
            while await reader.read(65536):
                pass
        finally:
            ended.set()

    security = client_security(SharedSecret(SECRET), **TRUSTING)
    async with playing(stop_there) as (address, _):
        async with client_of(address, security) as outcomes:
            outcomes.submit(add(0))
            await reached.wait()
            before = asyncio.all_tasks()
            await outcomes.transport.aclose()
            assert await outcomes.wait() == [Code.CLIENT_CLOSED]
            left = {task for task in asyncio.all_tasks() - {asyncio.current_task()} if "connect to" in task.get_name()}
            assert not left
            assert any("connect to" in task.get_name() for task in before), "there was one to be ended"
        async with asyncio.timeout(5):
            await ended.wait()


@versions
async def test_the_complaint_that_tls_came_before_authentication_is_passed_over(version: int) -> None:
    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        started = await start_tls(reader, writer)
        writer.write(v3.encode_response(started, ErrorResponse(Operation.START_TLS, Status.IO_ERROR)))
        bookie = SharedSecretBookie(SECRET).session("")
        while not bookie.is_authenticated:
            wire, received = await received_by(reader)
            answer = AuthMessage(SharedSecret.plugin_name, bookie.respond(received.request.payload))
            writer.write(wire.encode_response(received, answer))
        wire, received = await received_by(reader)
        writer.write(wire.refuse(received, Status.READ_ONLY))

    security = client_security(SharedSecret(SECRET), **TRUSTING)
    async with playing(complain) as (address, _), client_of(address, security, protocol_version=version) as outcomes:
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.WRITE_ON_READ_ONLY_BOOKIE]


def answering(*answers: Response) -> Play:
    """Answers the messages of a plug-in in turn, and then with the last of them for ever."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turns = list(answers)
        while True:
            wire, received = await received_by(reader)
            writer.write(wire.encode_response(received, turns.pop(0) if len(turns) > 1 else turns[0]))

    return play


class Endless:
    """A plug-in that always has something to say."""

    plugin_name = "endless"

    def __init__(self) -> None:
        self.said = 0

    def session(self, bookie_id: str) -> AuthSession:
        return self

    def begin(self) -> bytes | None:
        return self.on_challenge(b"")

    def on_challenge(self, payload: bytes) -> bytes | None:
        self.said += 1
        return b"and another thing"


async def test_a_plug_in_that_never_ends_is_ended() -> None:
    provider = Endless()
    async with (
        playing(answering(AuthMessage("endless", b"go on"))) as (address, _),
        client_of(address, client_security(provider)) as outcomes,
    ):
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.UNAUTHORIZED]
        assert f"more than {AUTH_MESSAGES_MAX} messages" in reason_of(outcomes)
        assert provider.said == AUTH_MESSAGES_MAX + 1


async def test_a_bookie_that_answers_for_another_plug_in_is_refused() -> None:
    async with (
        playing(answering(AuthMessage("other"))) as (address, _),
        client_of(address, client_security(SharedSecret(SECRET))) as outcomes,
    ):
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.UNAUTHORIZED]
        assert "by plug-in 'other', this client by 'bkclient-shared-secret'" in reason_of(outcomes)


@versions
async def test_a_bookie_that_closes_instead_of_answering_refuses_in_version_2_only(version: int) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received_by(reader)
        writer.close()

    security = client_security(SharedSecret(SECRET))
    async with playing(close) as (address, _), client_of(address, security, protocol_version=version) as outcomes:
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.UNAUTHORIZED if version == 2 else Code.BOOKIE_NOT_AVAILABLE]


@versions
@pytest.mark.parametrize("has_plug_in", [False, True], ids=["no plug-in", "plug-in"])
async def test_a_connection_reset_before_anything_came_inside_tls_is_a_matter_of_tls(
    version: int, *, has_plug_in: bool
) -> None:
    """So it looks when the alert about a client's certificate is overtaken by the end of the connection."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await start_tls(reader, writer)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    security = client_security(SharedSecret(SECRET) if has_plug_in else None, **MUTUAL)
    async with playing(reset) as (address, _), client_of(address, security, protocol_version=version) as outcomes:
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.SECURITY]
        assert reason_of(outcomes) == UNANSWERED


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", frame(b"nonsense"), frame(b"longer nonsense, with a frame around it")], ids=len
)
async def test_nonsense_in_place_of_an_answer_ends_the_attempt(data: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    async with playing(talk) as (address, connections), client_of(address, client_security(**TRUSTING)) as outcomes:
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.BOOKIE_NOT_AVAILABLE]
        await until(connections[0].is_closing)
