"""What a bookie demands of connections, request by request, over real loopback sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from bkclient import TlsSettings
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.security.auth import AuthSession, SharedSecret
from bkclient.security.tls import client_context
from bkclient.wire import v3
from bkclient.wire.connection import ClientConnection
from bkclient.wire.framing import frame
from bkclient.wire.messages import (
    AuthMessage,
    BatchReadRequest,
    BookieInfoRequest,
    ErrorResponse,
    ForceLedgerRequest,
    Operation,
    ReadRequest,
    StartTlsRequest,
    Status,
)
from simbookie.security import AUTH_MESSAGES_MAX, BookieSecurity, SharedSecretBookie, server_context
from simbookie.server import BookieServer, ServerConfig
from tests.simbookie.test_server import Client, connected, served, until, versions
from tests.tls import MUTUAL, TRUSTING, offering, pem

SECRET = b"a secret of enough bytes"
DEMANDING = BookieSecurity(auth=SharedSecretBookie(SECRET))


@asynccontextmanager
async def guarded(security: BookieSecurity) -> AsyncIterator[BookieServer]:
    async with served(ServerConfig(security=security)) as server:
        yield server


async def start_tls(client: Client, settings: dict[str, Any] = TRUSTING) -> None:
    """Ask for TLS in version 3 and start it; the client goes on in the version it has."""
    asking = Client(client.reader, client.writer, 3)
    assert await asking.status(StartTlsRequest()) is Status.OK
    context = client_context(TlsSettings(**settings))
    assert context is not None
    await client.writer.start_tls(context, server_hostname="127.0.0.1")


async def authenticate(client: Client, session: AuthSession | None = None) -> None:
    session = session or SharedSecret(SECRET).session("b0")
    payload = session.begin()
    while payload is not None:
        ((status, response),) = await client.ask(AuthMessage(SharedSecret.plugin_name, payload))
        assert status is Status.OK
        assert isinstance(response, AuthMessage)
        assert response.plugin_name == SharedSecret.plugin_name
        payload = session.on_challenge(response.payload)


# TLS -----------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BK-29")
@versions
async def test_tls_is_offered_and_requests_go_on_inside(kit: Any, version: int) -> None:
    async with guarded(offering()) as server, connected(server, version) as client:
        if version == 3:  # a connection that has turned to version 2 cannot ask for TLS any more
            assert await client.status(kit.add(1, 0)) is Status.OK, "it is not demanded"
        await start_tls(client)
        assert await client.status(kit.add(1, 0)) is Status.OK
        assert await client.status(ReadRequest(1, 0)) is Status.OK


async def test_tls_starts_once(kit: Any) -> None:
    async with guarded(offering()) as server, connected(server) as client:
        await start_tls(client)
        assert await client.status(StartTlsRequest()) is Status.BAD_REQUEST
        assert await client.status(kit.add(1, 0)) is Status.OK


async def test_a_bookie_with_authentication_only_refuses_tls(kit: Any) -> None:
    async with guarded(DEMANDING) as server, connected(server) as client:
        assert await client.status(StartTlsRequest()) is Status.BAD_REQUEST


@versions
async def test_a_bookie_that_demands_tls_serves_nothing_in_clear(kit: Any, version: int) -> None:
    async with guarded(offering(requires_tls=True)) as server, connected(server, version) as client:
        assert await client.status(kit.add(1, 0)) is Status.UNAUTHORIZED
        assert await client.status(ReadRequest(1, 0)) is Status.UNAUTHORIZED
        async with connected(server, version) as inside:
            await start_tls(inside)
            assert await inside.status(ReadRequest(1, 0)) is Status.NO_LEDGER, "nothing was stored"
            assert await inside.status(kit.add(1, 0)) is Status.OK


@pytest.mark.rule("BK-29")
@pytest.mark.parametrize("more", [b"\0", frame(b"more"), b"request"])
async def test_bytes_in_clear_behind_the_request_for_tls_close_the_connection(kit: Any, more: bytes) -> None:
    async with guarded(offering()) as server, connected(server) as client:
        if more == b"request":
            more = b"".join(client.wire.send(kit.add(1, 0), 7))
        client.writer.write(b"".join((*client.wire.send(StartTlsRequest(), 0), more)))
        assert await client.is_closed()
        await until(lambda: server.connections == 0)
        async with connected(server) as other:
            await start_tls(other)
            assert await other.status(ReadRequest(1, 0)) is Status.NO_LEDGER, "what was smuggled in is not stored"


async def is_refused(client: Client, settings: dict[str, Any]) -> bool:
    """Whether the bookie ends the connection: in TLS 1.3 that is seen once the client thinks that all is well."""
    try:
        await start_tls(client, settings)
    except OSError:
        return True
    return await client.is_closed()


@pytest.mark.parametrize("settings", [TRUSTING, {**MUTUAL, "certificate_file": pem("stranger")}])
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_certificate_of_the_client_can_be_demanded(
    kit: Any, settings: dict[str, Any], newest: ssl.TLSVersion
) -> None:
    if "certificate_file" in settings:
        settings = {**settings, "key_file": pem("stranger-key")}
    async with guarded(offering(requires_certificate=True, newest=newest)) as server:
        async with connected(server) as client:
            assert await is_refused(client, settings)
        await until(lambda: server.connections == 0)
        async with connected(server) as client:
            await start_tls(client, MUTUAL)
            assert await client.status(kit.add(1, 0)) is Status.OK


async def test_a_client_that_falls_silent_in_the_handshake_is_given_up() -> None:
    security = BookieSecurity(offering().tls, handshake_timeout_s=0.05)
    async with guarded(security) as server, connected(server) as client:
        assert await client.status(StartTlsRequest()) is Status.OK
        await until(lambda: server.connections == 0)
        assert await client.is_closed()


@pytest.mark.parametrize("how", ["close", "kill", "client"])
async def test_an_end_in_the_middle_of_the_handshake_leaves_nothing(how: str) -> None:
    async with guarded(offering()) as server, connected(server) as client:
        assert await client.status(StartTlsRequest()) is Status.OK
        client.writer.write(b"\x16\x03\x01")
        await until(lambda: server.connections == 1)
        if how == "close":
            await server.aclose()
        elif how == "kill":
            server.kill()
        else:
            await client.close()
        await until(lambda: server.connections == 0)
        await until(lambda: not any("TLS with" in task.get_name() for task in asyncio.all_tasks()))


async def test_uploads_are_held_back_inside_tls_too(kit: Any) -> None:
    async with served(ServerConfig(security=offering())) as server, connected(server) as client:
        await start_tls(client)
        assert {
            status for status, _ in await client.ask(*(kit.add(1, n, payload=bytes(50_000)) for n in range(40)))
        } == {Status.OK}
        assert {status for status, _ in await client.ask(*(ReadRequest(1, n) for n in range(40)))} == {Status.OK}


# Authentication: the table -------------------------------------------------------------------------------------------


@versions
async def test_an_authenticated_client_is_served(kit: Any, version: int) -> None:
    async with guarded(DEMANDING) as server, connected(server, version) as client:
        await authenticate(client)
        assert await client.status(kit.add(1, 0)) is Status.OK
        ((status, response),) = await client.ask(AuthMessage("any", b"again"))
        assert (status, response) == (Status.OK, response)
        assert isinstance(response, AuthMessage)
        assert response.plugin_name == "AuthDisabledPlugin", "as bookies answer who is authenticated"


@pytest.mark.rule("BK-28")
@versions
async def test_until_then_adds_and_reads_are_refused_and_not_carried_out(kit: Any, version: int) -> None:
    async with guarded(DEMANDING) as server, connected(server, version) as client:
        outcomes = await client.ask(kit.add(1, 0), ReadRequest(1, 0), kit.fencing_read(1))
        assert [status for status, _ in outcomes] == [Status.UNAUTHORIZED] * 3
        await authenticate(client)
        assert await client.status(ReadRequest(1, 0)) is Status.NO_LEDGER


@pytest.mark.rule("BK-28")
async def test_version_3_is_refused_without_a_message_of_the_operation(kit: Any) -> None:
    async with guarded(DEMANDING) as server, connected(server) as client:
        for request in (ForceLedgerRequest(1), BookieInfoRequest(1), ReadRequest(1, 0)):
            ((status, response),) = await client.ask(request)
            assert status is Status.UNAUTHORIZED
            assert response == ErrorResponse(request.operation, Status.UNAUTHORIZED)
        # Neither TLS nor the connection is denied to it.
        await authenticate(client)
        assert await client.status(ForceLedgerRequest(1)) is Status.OK


async def test_an_unknown_operation_is_refused_likewise() -> None:
    async with guarded(DEMANDING) as server, connected(server) as client:
        (known,) = client.wire.send(ForceLedgerRequest(1), 0)
        header = known[4:].split(b"\xa2\x06")[0]
        client.writer.write(frame(header.replace(bytes((0x10, Operation.FORCE_LEDGER)), b"\x10\x05")))
        answer = await client.reader.read(100)
        assert v3.decode_response(answer[4:])[1].status is Status.UNAUTHORIZED


@pytest.mark.rule("BK-28")
async def test_what_version_2_cannot_refuse_closes_the_connection() -> None:
    async with guarded(DEMANDING) as server, connected(server, 2) as client:
        client.send(BatchReadRequest(1, 0, max_count=1, max_size=0))
        assert await client.is_closed()


@pytest.mark.rule("BK-28")
@versions
async def test_another_plug_in_is_refused(kit: Any, version: int) -> None:
    async with guarded(DEMANDING) as server, connected(server, version) as client:
        if version == 2:
            client.send(AuthMessage("other", b""))
            assert await client.is_closed()
            return
        ((status, response),) = await client.ask(AuthMessage("other", b""))
        assert (status, response) == (Status.UNAUTHORIZED, ErrorResponse(Operation.AUTH, Status.UNAUTHORIZED))
        await authenticate(client)  # the connection stands
        assert await client.status(kit.add(1, 0)) is Status.OK


@pytest.mark.rule("BK-28")
@versions
async def test_a_plug_in_that_fails_closes_the_connection(version: int) -> None:
    async with guarded(DEMANDING) as server, connected(server, version) as client:
        await client.ask(AuthMessage(SharedSecret.plugin_name, b"n" * 16))
        tokens = client.send(AuthMessage(SharedSecret.plugin_name, b"no proof"))
        if version == 3:
            ((status, _),) = await client.outcomes(tokens)
            assert status is Status.UNAUTHORIZED
        else:
            with pytest.raises(ConnectionError):
                await client.outcomes(tokens)
        assert await client.is_closed()
        await until(lambda: server.connections == 0)


async def test_a_plug_in_that_never_ends_is_ended() -> None:
    class Endless:
        plugin_name = "endless"
        is_authenticated = False

        def session(self, source: str) -> Endless:
            return self

        def respond(self, payload: bytes) -> bytes:
            return b"go on"

    async with guarded(BookieSecurity(auth=Endless())) as server, connected(server) as client:
        outcomes = await client.ask(*(AuthMessage("endless", b"") for _ in range(AUTH_MESSAGES_MAX + 1)))
        statuses = [status for status, _ in outcomes]
        assert statuses == [Status.OK] * AUTH_MESSAGES_MAX + [Status.UNAUTHORIZED]
        assert await client.is_closed()


@pytest.mark.parametrize("order", ["tls first", "authentication first"])
@versions
async def test_tls_and_authentication_come_in_either_order(kit: Any, order: str, version: int) -> None:
    security = offering(requires_tls=True, auth=SharedSecretBookie(SECRET))
    async with guarded(security) as server, connected(server, 3) as asking:
        if order == "tls first":
            await start_tls(asking)
        client = Client(asking.reader, asking.writer, version if order == "tls first" else 3)
        await authenticate(client)
        if order == "authentication first":
            assert await client.status(kit.add(1, 0)) is Status.UNAUTHORIZED, "there is no TLS yet"
            await start_tls(client)
            client = Client(asking.reader, asking.writer, version)
        assert await client.status(kit.add(1, 0)) is Status.OK


# Around it -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BK-29")
async def test_the_registration_says_that_tls_is_offered() -> None:
    service = MemoryMetadataService()
    store = service.session(rng=Random(1))
    try:
        async with served(ServerConfig(security=offering()), registry=store) as server:
            assert (await store.bookie_address("b0")).extensions == ("tls",)
            assert server.address.extensions == ("tls",)
        async with served(ServerConfig(security=DEMANDING), registry=store):
            assert (await store.bookie_address("b0")).extensions == ()
    finally:
        await store.aclose()


def test_demands_that_nobody_could_satisfy_are_refused() -> None:
    with pytest.raises(ValueError, match="TLS is required but not offered"):
        BookieSecurity(requires_tls=True)
    with pytest.raises(ValueError, match="requiring client certificates needs a trust file"):
        server_context(pem("bookie"), pem("bookie-key"), requires_certificate=True)


def test_the_wire_of_a_client_sees_no_difference() -> None:
    """Authentication has the same shape in both versions, so one plug-in serves both."""
    for version in (2, 3):
        wire: ClientConnection[int] = ClientConnection(version)
        assert wire.send(AuthMessage("a", b"b"), 1)
