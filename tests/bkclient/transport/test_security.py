"""A client's connections before they carry requests: TLS and authentication against a bookie over real sockets."""

from __future__ import annotations

import asyncio
import pickle
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bkclient.auth import AuthenticationError, AuthSession, SharedSecret
from bkclient.errors import ArgumentError, Code, SecurityError, UnauthorizedAccess, error_for
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.model import DigestType
from bkclient.observability.memory import MemoryStats
from bkclient.refusal import Refusal
from bkclient.stats import ACTIVE_CHANNELS, ACTIVE_TLS_CHANNELS, FAILED_CONNECTIONS, FAILED_TLS_HANDSHAKES
from bkclient.transport.security import AUTH_MESSAGES_MAX, UNANSWERED, Security
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire import v2, v3
from bkclient.wire.entry import EntryCodec
from bkclient.wire.errors import MalformedMessage
from bkclient.wire.framing import frame
from bkclient.wire.messages import (
    AddRequest,
    AuthMessage,
    ErrorResponse,
    ForceLedgerRequest,
    Operation,
    ReadRequest,
    ReadResponse,
    Response,
    StartTlsResponse,
    Status,
)
from bkclient.wire.server_connection import ServerConnection
from simbookie.bookie import Bookie
from simbookie.security import BookieSecurity, SharedSecretBookie
from simbookie.server import BookieServer, ServerConfig
from simbookie.storage.memory import MemoryDisk, MemoryStorage, MemoryStorageConfig
from tests.bkclient.transport.scripted_bookie import until
from tests.bkclient.transport.test_tcp import CODEC, KEY, Outcomes, add
from tests.recording_proxy import RecordingProxy
from tests.tls import MUTUAL, TRUSTING, client_security, offering, pem

SECRET = b"a secret of enough bytes"
versions = pytest.mark.parametrize("version", [2, 3])


@asynccontextmanager
async def secured(security: BookieSecurity | None) -> AsyncIterator[BookieServer]:
    """A bookie with this security."""
    bookie = Bookie("b", MemoryStorage(MemoryStorageConfig(), MemoryDisk()))
    async with BookieServer(bookie, config=ServerConfig(security=security)) as server:
        yield server


@asynccontextmanager
async def client_of(address: BookieAddress, security: Security | None, **config: Any) -> AsyncIterator[Outcomes]:
    """A transport that knows the bookie ``b``."""

    async def resolve(bookie_id: str) -> BookieAddress:
        return address

    transport = TcpTransport(resolve, TcpTransportConfig(**config), rng=random.Random(7), security=security)
    try:
        yield Outcomes(transport)
    finally:
        await transport.aclose()


async def entry_is_stored(outcomes: Outcomes) -> None:
    outcomes.submit(add(0, b"a payload"))
    assert await outcomes.wait() == [Code.OK]
    outcomes.submit(ReadRequest(1, 0))
    assert await outcomes.wait(2) == [Code.OK] * 2
    response = outcomes.all[1][3]
    assert isinstance(response, ReadResponse)
    assert CODEC.decode(response.body or b"", 0).payload == b"a payload"


def reason_of(outcomes: Outcomes) -> str:
    code = outcomes.all[-1][2]
    assert isinstance(code, Refusal), code
    return code.reason


# What works ----------------------------------------------------------------------------------------------------------


@versions
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_travel_inside_tls(version: int, newest: ssl.TLSVersion) -> None:
    async with (
        secured(offering(newest=newest, requires_tls=True)) as server,
        client_of(server.address, client_security(**TRUSTING), protocol_version=version) as outcomes,
    ):
        await entry_is_stored(outcomes)
        assert server.connections == 1


@versions
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_shows_its_certificate_to_a_bookie_that_demands_one(
    version: int, newest: ssl.TLSVersion
) -> None:
    async with (
        secured(offering(requires_certificate=True, newest=newest)) as server,
        client_of(server.address, client_security(**MUTUAL), protocol_version=version) as outcomes,
    ):
        await entry_is_stored(outcomes)


@versions
@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
async def test_a_plug_in_authenticates_before_requests_are_sent(version: int, *, tls: bool) -> None:
    auth = SharedSecretBookie(SECRET)
    security = offering(auth=auth) if tls else BookieSecurity(auth=auth)
    settings = TRUSTING if tls else {}
    async with (
        secured(security) as server,
        client_of(
            server.address, client_security(SharedSecret(SECRET), **settings), protocol_version=version
        ) as outcomes,
    ):
        await entry_is_stored(outcomes)


@versions
async def test_a_plug_in_is_content_with_a_bookie_that_demands_nothing(version: int) -> None:
    async with (
        secured(None) as server,
        client_of(server.address, client_security(SharedSecret(SECRET)), protocol_version=version) as outcomes,
    ):
        await entry_is_stored(outcomes)


def test_it_runs_on_uvloop_too() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def everything() -> None:
        for version in (2, 3):
            security = offering(requires_certificate=True, auth=SharedSecretBookie(SECRET))
            async with (
                secured(security) as server,
                client_of(
                    server.address, client_security(SharedSecret(SECRET), **MUTUAL), protocol_version=version
                ) as outcomes,
            ):
                await entry_is_stored(outcomes)
        async with (
            secured(offering("expired")) as server,
            client_of(server.address, client_security(**TRUSTING)) as outcomes,
        ):
            outcomes.submit(add(0))
            assert await outcomes.wait() == [Code.SECURITY]
            assert "expired" in reason_of(outcomes)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(everything())


async def test_many_requests_and_large_ones_wait_for_the_handshake_and_go_through() -> None:
    async with (
        secured(offering()) as server,
        client_of(server.address, client_security(**TRUSTING)) as outcomes,
    ):
        for entry_id in range(300):
            outcomes.submit(add(entry_id, bytes(20_000)))
        assert set(await outcomes.wait(300)) == {Code.OK}
        for entry_id in range(300):
            outcomes.submit(ReadRequest(1, entry_id))
        assert set(await outcomes.wait(600)) == {Code.OK}


# What an eavesdropper sees -------------------------------------------------------------------------------------------


def tls_records(stream: bytes) -> list[int]:
    """The types of the TLS records that ``stream`` consists of, to its last byte."""
    types, position = [], 0
    while position < len(stream):
        kind, major, _, size = struct.unpack_from(">BBBH", stream, position)
        assert 20 <= kind <= 23, f"no TLS record at {position}"
        assert major == 3
        types.append(kind)
        position += 5 + size
    assert position == len(stream)
    return types


@versions
async def test_nothing_but_the_wish_for_tls_is_ever_sent_in_clear(version: int) -> None:
    class Nonces:
        def __call__(self, size: int) -> bytes:
            return b"N" * size

    ledger_id = 0x1122334455667788
    codec = EntryCodec(ledger_id, DigestType.CRC32C, b"a password")
    security = offering(auth=SharedSecretBookie(SECRET, random_bytes=Nonces()))
    provider = SharedSecret(SECRET, random_bytes=Nonces())
    async with (
        secured(security) as server,
        RecordingProxy(server.address) as proxy,
        client_of(proxy.address, client_security(provider, **TRUSTING), protocol_version=version) as outcomes,
    ):
        header = codec.encode_header(0, -1, 0, b"a payload to be found")
        outcomes.submit(AddRequest(ledger_id, 0, codec.master_key, header, b"a payload to be found"))
        assert await outcomes.wait() == [Code.OK]
        outcomes.submit(ReadRequest(ledger_id, 0))
        assert await outcomes.wait(2) == [Code.OK] * 2
        requests, answers = bytes(proxy.requests), bytes(proxy.answers)
    secrets = [b"a payload to be found", b"a password", codec.master_key, SECRET, b"N" * 16, b"bkclient-shared-secret"]
    secrets += [struct.pack(order + "q", ledger_id) for order in "<>"]
    for stream in (requests, answers):
        assert not any(secret in stream for secret in secrets)
        (size,) = struct.unpack_from(">I", stream)
        assert 23 in tls_records(stream[4 + size :])
    (size,) = struct.unpack_from(">I", requests)
    (asked,) = ServerConnection().receive(requests[: 4 + size])
    assert (asked.protocol_version, asked.operation) == (3, Operation.START_TLS)
    (size,) = struct.unpack_from(">I", answers)
    assert v3.decode_response(answers[4 : 4 + size])[1] == StartTlsResponse(Status.OK)


async def test_without_tls_the_same_proxy_sees_everything() -> None:
    async with (
        secured(None) as server,
        RecordingProxy(server.address) as proxy,
        client_of(proxy.address, None) as outcomes,
    ):
        outcomes.submit(add(0, b"a payload to be found"))
        assert await outcomes.wait() == [Code.OK]
        assert b"a payload to be found" in proxy.requests
        assert KEY in proxy.requests


# What is refused -----------------------------------------------------------------------------------------------------


@versions
@pytest.mark.rule("R-17")
@pytest.mark.parametrize(
    ("security", "settings", "reason"),
    [
        (lambda: offering("stranger"), TRUSTING, "certificate is not accepted: unable to get local issuer"),
        (lambda: offering("expired"), TRUSTING, "certificate is not accepted: certificate has expired"),
        (lambda: offering("elsewhere"), TRUSTING, "certificate is not accepted: IP address mismatch"),
        (lambda: None, TRUSTING, "the bookie refuses TLS (BAD_REQUEST); it may not be configured for it"),
        (lambda: offering(requires_certificate=True), TRUSTING, UNANSWERED),
        (
            lambda: offering(requires_certificate=True),
            {**MUTUAL, "tls_certificate_file": pem("stranger"), "tls_key_file": pem("stranger-key")},
            UNANSWERED,
        ),
        (
            lambda: offering(requires_certificate=True, newest=ssl.TLSVersion.TLSv1_2),
            TRUSTING,
            UNANSWERED,
        ),
    ],
    ids=["stranger", "expired", "elsewhere", "no TLS", "no certificate", "wrong certificate", "no certificate in 1.2"],
)
async def test_a_connection_that_cannot_be_trusted_fails_requests_with_the_reason(
    version: int, security: Callable[[], BookieSecurity | None], settings: dict[str, Any], reason: str
) -> None:
    async with (
        secured(security()) as server,
        client_of(server.address, client_security(**settings), protocol_version=version) as outcomes,
    ):
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.SECURITY]
        assert reason in reason_of(outcomes)
        error = error_for(outcomes.all[0][2], "it failed", ledger_id=1)
        assert isinstance(error, SecurityError)
        assert error.message.startswith("it failed: ")
        assert reason in error.message
        # Backed off as from a bookie that cannot be reached: no further attempt, and the same outcome.
        outcomes.submit(add(1))
        assert await outcomes.wait(2) == [Code.SECURITY] * 2
        assert reason in reason_of(outcomes)
        await until(lambda: server.connections == 0)


async def test_host_names_are_verified_unless_that_is_switched_off() -> None:
    settings = {**TRUSTING, "tls_verify_hostname": False}
    async with (
        secured(offering("elsewhere")) as server,
        client_of(server.address, client_security(**settings)) as outcomes,
    ):
        await entry_is_stored(outcomes)


@versions
async def test_a_wrong_secret_is_refused_by_the_bookie_and_by_the_client(version: int) -> None:
    class Deaf(SharedSecret):
        """Does not check the bookie, so that the bookie's check is seen."""

        def session(self, bookie_id: str) -> AuthSession:
            return DeafSession(super().session(bookie_id))

    class DeafSession:
        def __init__(self, inner: AuthSession) -> None:
            self.inner = inner

        def begin(self) -> bytes | None:
            return self.inner.begin()

        def on_challenge(self, payload: bytes) -> bytes | None:
            return b"not a proof"

    async with secured(BookieSecurity(auth=SharedSecretBookie(SECRET))) as server:
        for provider, reason in (
            (SharedSecret(SECRET[::-1]), "the bookie does not know the shared secret"),
            (Deaf(SECRET), "refuses"),
        ):
            security = client_security(provider)
            async with client_of(server.address, security, protocol_version=version) as outcomes:
                outcomes.submit(add(0))
                assert await outcomes.wait() == [Code.UNAUTHORIZED]
                assert reason in reason_of(outcomes)
                error = error_for(outcomes.all[0][2])
                assert isinstance(error, UnauthorizedAccess)
                assert reason in str(error)
        await until(lambda: server.connections == 0)


@versions
async def test_both_sides_must_name_the_same_plug_in(version: int) -> None:
    class Other(SharedSecret):
        plugin_name = "another"  # type: ignore[misc]

    async with (
        secured(BookieSecurity(auth=SharedSecretBookie(SECRET))) as server,
        client_of(server.address, client_security(Other(SECRET)), protocol_version=version) as outcomes,
    ):
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.UNAUTHORIZED]
        assert "refuses" in reason_of(outcomes)


@versions
async def test_a_bookie_that_demands_authentication_refuses_a_client_that_has_none(version: int) -> None:
    async with (
        secured(BookieSecurity(auth=SharedSecretBookie(SECRET))) as server,
        client_of(server.address, None, protocol_version=version) as outcomes,
    ):
        outcomes.submit(add(0))
        outcomes.submit(ReadRequest(1, 0))
        assert await outcomes.wait(2) == [Code.UNAUTHORIZED] * 2
        outcomes.submit(ForceLedgerRequest(1) if version == 3 else ReadRequest(1, 0))
        assert (await outcomes.wait(3))[-1] == Code.UNAUTHORIZED


# A bookie that does not keep to the rules ----------------------------------------------------------------------------

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


async def test_a_plug_in_with_nothing_to_prove_sends_nothing() -> None:
    class Silent:
        plugin_name = "silent"

        def session(self, bookie_id: str) -> AuthSession:
            return self

        def begin(self) -> bytes | None:
            return None

        def on_challenge(self, payload: bytes) -> bytes | None:
            raise AssertionError

    async with secured(None) as server, client_of(server.address, client_security(Silent())) as outcomes:
        await entry_is_stored(outcomes)


async def test_connections_and_handshakes_are_counted() -> None:
    counts = MemoryStats()

    async def resolve(bookie_id: str) -> BookieAddress:
        return servers[bookie_id].address

    async with secured(offering()) as good, secured(offering("expired")) as bad:
        servers = {"good": good, "bad": bad}
        transport = TcpTransport(resolve, rng=random.Random(1), stats=counts, security=client_security(**TRUSTING))
        outcomes = Outcomes(transport)
        outcomes.submit(add(0), "good")
        outcomes.submit(add(0), "bad")
        assert sorted(await outcomes.wait(2)) == [Code.SECURITY, Code.OK]
        assert counts.level_of(ACTIVE_TLS_CHANNELS, "good") == 1
        assert counts.level_of(ACTIVE_CHANNELS, "good") == 0
        assert counts.total_of(FAILED_TLS_HANDSHAKES, "bad") == counts.total_of(FAILED_CONNECTIONS, "bad") == 1
        await transport.aclose()
        assert counts.level_of(ACTIVE_TLS_CHANNELS, "good") == 0


# Parts ---------------------------------------------------------------------------------------------------------------


def test_a_refusal_is_its_code_and_survives_pickling() -> None:
    refusal = pickle.loads(pickle.dumps(Refusal(Code.SECURITY, "because")))
    assert refusal == Code.SECURITY
    assert refusal in {Code.SECURITY: None}
    assert refusal.reason == "because"
    assert error_for(refusal).message == "because"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tls_trust_file": "absent.pem"}, "absent.pem: it cannot be read"),
        ({"tls_trust_file": pem("password")}, "no certificates to trust"),
        ({"tls_client_authentication": True}, "needs tls_certificate_file and tls_key_file"),
        ({**MUTUAL, "tls_key_file": pem("bookie-key")}, "not a certificate and its key"),
        ({**MUTUAL, "tls_key_file": pem("client-key-encrypted")}, "the key is encrypted; name the file"),
        *(
            (
                {**MUTUAL, "tls_key_file": pem("client-key-encrypted"), "tls_key_password_file": pem(wrong)},
                "password is wrong",
            )
            for wrong in ("authority", "make.sh")  # the second is too long for any password
        ),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        client_security(**{**TRUSTING, **settings})
    assert message in str(caught.value)


def test_the_password_of_a_key_is_read_from_its_file() -> None:
    encrypted = {"tls_key_file": pem("client-key-encrypted"), "tls_key_password_file": pem("password")}
    assert client_security(**{**MUTUAL, **encrypted}).tls is not None


@pytest.mark.parametrize(
    ("content", "message"),
    [(bytes.fromhex("feedfeed00000002"), "keytool -importkeystore"), (bytes.fromhex("308209c3"), "openssl pkcs12")],
)
def test_key_stores_of_java_are_recognised_and_the_error_says_how_to_convert_them(
    tmp_path: Any, content: bytes, message: str
) -> None:
    store = tmp_path / "store"
    store.write_bytes(content)
    for settings in ({"tls_trust_file": str(store)}, {**MUTUAL, "tls_key_file": str(store)}):
        with pytest.raises(ArgumentError, match="store") as caught:
            client_security(**{**TRUSTING, **settings})
        assert message in str(caught.value)


def test_a_secret_that_can_be_guessed_is_refused_and_none_is_shown() -> None:
    with pytest.raises(ArgumentError, match="at least 16 bytes"):
        SharedSecret(b"short")
    assert repr(SharedSecret(SECRET)) == "SharedSecret(...)"


def test_a_session_ends_where_it_should() -> None:
    session = SharedSecret(SECRET).session("b")
    bookie = SharedSecretBookie(SECRET).session("c")
    nonce = session.begin()
    assert nonce is not None
    proof = session.on_challenge(bookie.respond(nonce))
    assert proof is not None
    assert bookie.respond(proof) == b""
    assert bookie.is_authenticated
    assert session.on_challenge(b"") is None
    with pytest.raises(AuthenticationError, match="went on"):
        session.on_challenge(b"more")


def test_a_plug_in_s_message_of_version_2_is_no_complaint_about_tls() -> None:
    content = b"".join(v2.encode_request(AuthMessage("endless", b"x"), 1).buffers)[4:]
    with pytest.raises(MalformedMessage):
        v3.decode_response(content)
