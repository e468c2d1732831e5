"""Whatever ends a handshake, the error tells of it in full: its kind, the bookie, the reason, and what was behind it."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import ssl
import struct
from typing import Any

import pytest

from bkclient._refusal import Refusal
from bkclient.errors import BookieNotAvailable, BookKeeperError, Code, SecurityError, UnauthorizedAccess
from bkclient.metadata.base import BookieAddress
from bkclient.security.auth import AuthSession, SharedSecret
from bkclient.transport.handshake import UNANSWERED, Handshake, Security, refusal_in
from bkclient.wire import v3
from bkclient.wire.errors import MalformedMessage, WireError
from bkclient.wire.framing import frame
from bkclient.wire.messages import AuthMessage, ErrorResponse, Operation, StartTlsRequest, StartTlsResponse, Status
from tests.bkclient.transport.test_handshake import SECRET
from tests.bkclient.transport.test_handshake_hostile import Endless, Play, agree, playing, received_by, start_tls
from tests.tls import TRUSTING, client_security

KILO = 1024


async def error_of(
    play: Play, security: Security, *, version: int = 3, host: str | None = None
) -> tuple[BookKeeperError, int]:
    """What a handshake with a server that plays so ends with, and how many connections that left open."""
    async with playing(play) as (address, connections):
        handshake = Handshake(security, "b", version, 100 * KILO, itertools.count(1))
        async with asyncio.timeout(30):
            await handshake.connect(BookieAddress(host or address.host, address.port))
            with pytest.raises(BookKeeperError) as caught:
                await handshake.complete()
        async with asyncio.timeout(5):
            while not all(connection.is_closing() for connection in connections):  # noqa: ASYNC110 - it is the server's
                await asyncio.sleep(0.001)
        return caught.value, len(connections)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await received_by(reader)


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await received_by(reader)
    writer.close()


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await received_by(reader)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    wire, received = await received_by(reader)
    writer.write(wire.encode_response(received, ErrorResponse(received.request.operation, Status.UNAUTHORIZED)))


async def adding_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await agree(reader, writer, b"\0")


async def babbling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await received_by(reader)
    writer.write(frame(b"nonsense, with a frame around it"))


async def announcing_too_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await received_by(reader)
    writer.write((100 * KILO - 3).to_bytes(4, "big"))


def answers_to_somebody_else(count: int) -> bytes:
    answers = []
    for number in range(count):
        asked = v3.decode_request(b"".join(v3.encode_request(StartTlsRequest(), 1000 + number).buffers)[4:])
        answers.append(v3.encode_response(asked, StartTlsResponse(Status.OK)))
    return b"".join(answers)


async def answering_others(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await received_by(reader)
    writer.write(answers_to_somebody_else(4))


async def answering_and_going_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    wire, received = await received_by(reader)
    writer.write(wire.encode_response(received, AuthMessage("endless", b"go on")) + answers_to_somebody_else(4))


TLS = client_security(timeout_s=20, **TRUSTING)
PLUG_IN = client_security(SharedSecret(SECRET), timeout_s=20)
CLOSED_BY_A_PLUG_IN = (
    "the bookie closed the connection instead of answering the authentication plug-in, which is how it refuses one in "
    "protocol version 2"
)
NOT_THE_PROTOCOL = r"it does not keep to the protocol \({}\)"
CASES: list[tuple[str, Play, Security, int, type[BookKeeperError], str, type[BaseException] | None]] = [
    (
        "no agreement in time",
        silent,
        client_security(timeout_s=0.05, **TRUSTING),
        3,
        BookieNotAvailable,
        r"TLS took longer than 0\.05 s",
        None,
    ),
    (
        "no challenge in time",
        silent,
        client_security(SharedSecret(SECRET), timeout_s=0.05),
        3,
        BookieNotAvailable,
        r"authentication took longer than 0\.05 s",
        None,
    ),
    ("closed", closing, TLS, 3, BookieNotAvailable, "the bookie closed the connection before it could be used", None),
    ("closed-2", closing, TLS, 2, BookieNotAvailable, "the bookie closed the connection before it could be used", None),
    ("reset", resetting, TLS, 3, BookieNotAvailable, ".*[Rr]eset.* before it could be used", None),
    (
        "closed by a plug-in",
        closing,
        PLUG_IN,
        2,
        UnauthorizedAccess,
        CLOSED_BY_A_PLUG_IN,
        None,
    ),
    (
        "refused by a plug-in",
        refusing,
        PLUG_IN,
        3,
        UnauthorizedAccess,
        r"the bookie refuses authentication by plug-in bkclient-shared-secret \(UNAUTHORIZED\)",
        None,
    ),
    (
        "refused",
        refusing,
        TLS,
        3,
        SecurityError,
        r"the bookie refuses TLS \(UNAUTHORIZED\); it may not be configured for it",
        None,
    ),
    ("bytes in clear", adding_bytes, TLS, 3, SecurityError, "there are bytes in clear where TLS should begin", None),
    ("nonsense", babbling, TLS, 3, BookieNotAvailable, NOT_THE_PROTOCOL.format(".+"), MalformedMessage),
    (
        "a frame over the limit",
        announcing_too_much,
        TLS,
        3,
        BookieNotAvailable,
        NOT_THE_PROTOCOL.format("a frame of 102401 bytes, its length prefix included, exceeds the limit of 102400"),
        WireError,
    ),
    (
        "others' answers",
        answering_others,
        TLS,
        3,
        BookieNotAvailable,
        NOT_THE_PROTOCOL.format("no answer to START_TLS among 4 messages"),
        MalformedMessage,
    ),
    (
        "too many answers",
        answering_and_going_on,
        client_security(Endless(), timeout_s=20),
        3,
        BookieNotAvailable,
        NOT_THE_PROTOCOL.format("more frames than were asked for"),
        MalformedMessage,
    ),
]


@pytest.mark.parametrize(
    ("play", "security", "version", "kind", "reason", "cause"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
async def test_a_handshake_that_fails_tells_why(
    play: Play,
    security: Security,
    version: int,
    kind: type[BookKeeperError],
    reason: str,
    cause: type[BaseException] | None,
) -> None:
    error, connections = await error_of(play, security, version=version)

    assert type(error) is kind
    assert re.fullmatch(reason, error.message)
    assert error.bookie_id == "b"
    assert isinstance(error.__cause__, cause) if cause else error.__cause__ is None
    assert connections == 1


async def test_a_host_that_no_certificate_can_name_is_a_matter_of_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def anywhere(host: str, port: int, **options: Any) -> Any:
        return await resolve("127.0.0.1", port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", anywhere)

    async def agreeing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await agree(reader, writer)

    error, _ = await error_of(agreeing, TLS, host=".bookies")

    assert type(error) is SecurityError
    assert error.message.startswith("'.bookies' is no name to verify (")
    assert error.bookie_id == "b"
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) in error.message


async def test_what_a_bookie_said_inside_tls_makes_its_end_a_matter_of_the_connection() -> None:
    """Only an end before anything came looks like one over the client's certificate."""

    async def speak_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        started = await start_tls(reader, writer)
        writer.write(v3.encode_response(started, ErrorResponse(Operation.START_TLS, Status.IO_ERROR)))
        await received_by(reader)
        writer.close()

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await start_tls(reader, writer)
        await received_by(reader)
        writer.close()

    security = client_security(SharedSecret(SECRET), timeout_s=20, **TRUSTING)
    error, _ = await error_of(speak_and_close, security)
    assert type(error) is BookieNotAvailable
    assert error.message == "the bookie closed the connection before it could be used"
    error, _ = await error_of(close, security)
    assert type(error) is SecurityError
    assert error.message == UNANSWERED


async def test_a_plug_in_learns_which_bookie_it_is_asked_for() -> None:
    asked: list[str] = []

    class Provider:
        plugin_name = "silent"

        def session(self, bookie_id: str) -> AuthSession:
            asked.append(bookie_id)
            return Session()

    class Session:
        def begin(self) -> bytes | None:
            return b"hello"

        def on_challenge(self, payload: bytes) -> bytes | None:
            raise AssertionError("the bookie closed the connection")

    await error_of(closing, Security(auth=Provider(), timeout_s=20))
    assert asked == ["b"]


def certificate_error(words: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "verification failed")
    error.verify_message = words
    return error


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (SecurityError("no TLS", bookie_id="b"), (Code.SECURITY, "no TLS")),
        (UnauthorizedAccess("wrong secret"), (Code.UNAUTHORIZED, "wrong secret")),
        (
            certificate_error("certificate has expired..."),
            (Code.SECURITY, "the bookie's certificate is not accepted: certificate has expired"),
        ),
        (ssl.SSLError(1, "a broken record"), (Code.SECURITY, "TLS failed: a broken record")),
        (BookieNotAvailable("gone"), None),
        (ConnectionResetError("reset"), None),
        (TimeoutError(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_what_is_not_secure_is_a_refusal_and_it_has_the_reason(
    error: BaseException, refusal: tuple[Code, str] | None
) -> None:
    found = refusal_in(error)
    if refusal is None:
        assert found is None
    else:
        assert isinstance(found, Refusal)
        assert (int(found), found.reason) == refusal
