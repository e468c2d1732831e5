"""A client's connections before they carry requests: TLS and authentication against a bookie over real sockets."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bkclient.errors import Code, Refusal, SecurityError, UnauthorizedAccess, error_for
from bkclient.ledger import DigestType
from bkclient.metadata.base import BookieAddress
from bkclient.observability.memory_stats import MemoryStats
from bkclient.observability.stats import ACTIVE_CHANNELS, ACTIVE_TLS_CHANNELS, FAILED_CONNECTIONS, FAILED_TLS_HANDSHAKES
from bkclient.security.auth import AuthSession, SharedSecret
from bkclient.transport.handshake import UNANSWERED, Security
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire import v3
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import (
    AddRequest,
    ForceLedgerRequest,
    Operation,
    ReadRequest,
    ReadResponse,
    StartTlsResponse,
    Status,
)
from bkclient.wire.server_connection import ServerConnection
from simbookie.bookie import Bookie
from simbookie.security import BookieSecurity, SharedSecretBookie
from simbookie.server import BookieServer, ServerConfig
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog
from tests.bkclient.transport.scripted_bookie import until
from tests.bkclient.transport.test_tcp import CODEC, KEY, Outcomes, add
from tests.proxy import Direction, RecordingProxy
from tests.tls import MUTUAL, TRUSTING, client_security, offering, pem

SECRET = b"a secret of enough bytes"
versions = pytest.mark.parametrize("version", [2, 3])


@asynccontextmanager
async def secured(security: BookieSecurity | None) -> AsyncIterator[BookieServer]:
    """A bookie with this security."""
    bookie = Bookie("b", MemoryStorage(MemoryStorageConfig(), RecordLog()))
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
        (requests,), (answers,) = (proxy.heard(direction) for direction in Direction)
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
        (requests,) = proxy.heard(Direction.REQUESTS)
        assert b"a payload to be found" in requests
        assert KEY in requests


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
            {**MUTUAL, "certificate_file": pem("stranger"), "key_file": pem("stranger-key")},
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
    settings = {**TRUSTING, "verify_hostname": False}
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


async def test_a_further_connection_over_version_2_is_secured_before_it_carries_requests() -> None:
    counts = MemoryStats()

    async def resolve(bookie_id: str) -> BookieAddress:
        return server.address

    security = client_security(SharedSecret(SECRET), **TRUSTING)
    async with secured(offering(auth=SharedSecretBookie(SECRET))) as server:
        config = TcpTransportConfig(protocol_version=2)
        transport = TcpTransport(resolve, config, rng=random.Random(1), stats=counts, security=security)
        outcomes = Outcomes(transport)
        outcomes.submit(add(0))
        await outcomes.wait(1)
        outcomes.submit(ReadRequest(1, 0))
        outcomes.submit(ReadRequest(1, 0, fence_key=KEY))
        assert await outcomes.wait(3) == [Code.OK] * 3
        assert counts.level_of(ACTIVE_TLS_CHANNELS, "b") == 2
        await transport.aclose()
        assert counts.level_of(ACTIVE_TLS_CHANNELS, "b") == 0
