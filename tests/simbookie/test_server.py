"""A bookie over real loopback sockets: versions, frames, connections, back-pressure, registration."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from bkclient.errors import MetadataStoreError
from bkclient.metadata.base import BookieAddress, BookieSets
from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import (
    AddRequest,
    AuthMessage,
    BatchReadRequest,
    EntryListRequest,
    ForceLedgerRequest,
    LongPoll,
    ReadLacRequest,
    ReadRequest,
    Request,
    Response,
    StartTlsRequest,
    Status,
)
from simbookie.bookie import Bookie, BookieState
from simbookie.config import BookieConfig
from simbookie.server import BookieServer, ServerConfig
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog

Outcome = tuple[Status, Response | None]


class Client:
    """A blunt client: one socket, one protocol version, whole batches of requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader = reader
        self.writer = writer
        self.wire: ClientConnection[int] = ClientConnection(version, max_frame_size=16 << 20)
        self._outcomes: dict[int, Outcome] = {}
        self._next = 0

    def send(self, *requests: Request) -> list[int]:
        tokens = []
        for request in requests:
            self.writer.writelines(self.wire.send(request, self._next))
            tokens.append(self._next)
            self._next += 1
        return tokens

    async def outcomes(self, tokens: list[int]) -> list[Outcome]:
        while not all(token in self._outcomes for token in tokens):
            data = await self.reader.read(65536)
            if not data:
                raise ConnectionResetError("closed by the bookie")
            for _, token, status, response in self.wire.receive(data):
                self._outcomes[token] = (status, response)
        return [self._outcomes[token] for token in tokens]

    async def ask(self, *requests: Request) -> list[Outcome]:
        return await self.outcomes(self.send(*requests))

    async def status(self, request: Request) -> Status:
        ((status, _),) = await self.ask(request)
        return status

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def served(
    server_config: ServerConfig | None = None,
    *,
    config: BookieConfig | None = None,
    journal: JournalConfig | None = None,
    registry: Any = None,
) -> AsyncIterator[BookieServer]:
    storage = MemoryStorage(MemoryStorageConfig(journal=journal or JournalConfig()), RecordLog())
    async with BookieServer(Bookie("b0", storage, config), config=server_config, registry=registry) as server:
        yield server


@asynccontextmanager
async def connected(server: BookieServer, version: int = 3) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection(server.host, server.port), version)
    try:
        yield client
    finally:
        await client.close()


async def until(condition: Callable[[], bool]) -> None:
    """Pass control to the loop until ``condition`` holds; the timeout of the test bounds the wait."""
    while not condition():  # noqa: ASYNC110  nobody signals what tests look for
        await asyncio.sleep(0)


versions = pytest.mark.parametrize("version", [2, 3])


@versions
async def test_a_ledger_is_written_read_fenced_and_recovered(kit: Any, version: int) -> None:
    async with served() as server, connected(server, version) as client:
        adds = [kit.add(1, entry_id, lac=entry_id - 1) for entry_id in range(200)]
        assert {status for status, _ in await client.ask(*adds)} == {Status.OK}
        ((status, read),) = await client.ask(ReadRequest(1, 17))
        assert status is Status.OK
        assert read is not None
        assert read.body == adds[17].body  # type: ignore[union-attr]
        assert await client.status(kit.fencing_read(1)) is Status.OK
        assert await client.status(kit.add(1, 200)) is Status.FENCED
        assert await client.status(kit.add(1, 200, recovery=True, high_priority=True)) is Status.OK
        assert await client.status(ReadRequest(1, 999)) is Status.NO_ENTRY
        assert await client.status(ReadRequest(2, 0)) is Status.NO_LEDGER


@versions
@pytest.mark.rule("BK-10")
async def test_a_fencing_read_of_an_unknown_ledger_creates_it_fenced(kit: Any, version: int) -> None:
    async with served() as server, connected(server, version) as client:
        assert await client.status(kit.fencing_read(1)) is Status.NO_ENTRY
        assert await client.status(kit.add(1, 0)) is Status.FENCED
        assert await client.status(kit.add(1, 0, recovery=True)) is Status.OK


@versions
@pytest.mark.rule("BK-3")
async def test_another_key_is_unauthorized(kit: Any, version: int) -> None:
    async with served() as server, connected(server, version) as client:
        assert await client.status(kit.add(1, 0)) is Status.OK
        assert await client.status(kit.add(1, 1, master_key=kit.OTHER_KEY)) is Status.UNAUTHORIZED


@pytest.mark.rule("BK-18")
async def test_the_lac_of_an_unknown_ledger_is_no_entry() -> None:
    async with served() as server, connected(server) as client:
        assert await client.status(ReadLacRequest(1)) is Status.NO_ENTRY


@pytest.mark.rule("BK-20")
async def test_a_batch_read_returns_its_first_entry_however_large(kit: Any) -> None:
    async with served() as server, connected(server, 2) as client:
        await client.ask(kit.add(1, 0, payload=bytes(1000)), kit.add(1, 1))
        ((status, response),) = await client.ask(BatchReadRequest(1, 0, 10, 100))
        assert status is Status.OK
        assert [len(body) for body in response.bodies] == [1032]  # type: ignore[union-attr]


@versions
@pytest.mark.rule("BK-26")
async def test_a_frame_of_exactly_the_limit_is_accepted_and_one_byte_more_closes(kit: Any, version: int) -> None:
    limit = 4096
    async with served(ServerConfig(max_frame_size=limit)) as server:

        def frame_size(payload_size: int) -> int:
            probe: ClientConnection[None] = ClientConnection(version)
            return sum(map(len, probe.send(kit.add(1, 0, payload=bytes(payload_size)), None)))

        fitting = next(size for size in range(limit, 0, -1) if frame_size(size) <= limit)
        assert frame_size(fitting) == limit
        async with connected(server, version) as client:
            assert await client.status(kit.add(1, 0, payload=bytes(fitting))) is Status.OK
        async with connected(server, version) as client:
            client.send(kit.add(1, 1, payload=bytes(fitting + 1)))
            assert await client.is_closed()
        async with connected(server) as client:
            assert await client.status(ReadRequest(1, 1)) is Status.NO_ENTRY


@pytest.mark.rule("BK-26")
async def test_version_3_may_precede_version_2_and_never_follows_it(kit: Any) -> None:
    async with served() as server, connected(server) as client:
        assert await client.status(kit.add(1, 0)) is Status.OK
        client.wire = ClientConnection(2)
        assert await client.status(ReadRequest(1, 0)) is Status.OK
        client.wire = ClientConnection(3)
        client.send(ReadRequest(1, 0))
        assert await client.is_closed()


@pytest.mark.rule("BK-26")
async def test_bytes_that_are_no_protocol_close_the_connection_after_earlier_answers(kit: Any) -> None:
    async with served() as server:
        async with connected(server) as client:
            tokens = client.send(ReadRequest(1, 0))
            client.writer.write(b"\0\0\0\x05hello")
            ((status, _),) = await client.outcomes(tokens)
            assert status is Status.NO_LEDGER
            assert await client.is_closed()
        async with connected(server) as client:
            assert await client.status(kit.add(1, 0)) is Status.OK, "others are not affected"


@versions
async def test_requests_may_arrive_in_any_pieces(kit: Any, version: int) -> None:
    async with served() as server, connected(server, version) as client:
        wire: ClientConnection[int] = ClientConnection(version)
        data = b"".join(part for entry_id in range(3) for part in wire.send(kit.add(1, entry_id), entry_id))
        answered = 0
        for position in range(0, len(data), 7):
            client.writer.write(data[position : position + 7])
            await asyncio.sleep(0)
        while answered < 3:
            answered += len(list(wire.receive(await client.reader.read(5))))


@pytest.mark.rule("BK-22")
async def test_the_operations_of_version_3_only(kit: Any) -> None:
    async with served() as server, connected(server) as client:
        await client.ask(kit.add(1, 0))
        requests: list[Request] = [
            ForceLedgerRequest(1),
            EntryListRequest(1),
            AuthMessage("Some", b"x"),
            ReadLacRequest(1),
        ]
        assert [status for status, _ in await client.ask(*requests)] == [Status.OK] * 4
        assert await client.status(StartTlsRequest()) is Status.BAD_REQUEST
        assert await client.status(kit.add(1, 1)) is Status.OK, "the connection goes on in clear"


@pytest.mark.rule("BK-22")
async def test_any_authentication_succeeds_in_version_2() -> None:
    async with served() as server, connected(server, 2) as client:
        ((status, answer),) = await client.ask(AuthMessage("Some", b"x"))
        assert status is Status.OK
        assert isinstance(answer, AuthMessage)
        assert answer.plugin_name == "AuthDisabledPlugin"


@versions
@pytest.mark.rule("BK-26")
async def test_a_foreign_packet_version_is_refused(kit: Any, version: int) -> None:
    async with served() as server, connected(server, version) as client:
        data = bytearray(b"".join(client.wire.send(ReadRequest(1, 0), 0)))
        position = 4 if version == 2 else data.index(b"\x08\x03") + 1
        data[position] = 9 if version == 2 else 1
        client.writer.write(bytes(data))
        ((status, _),) = await client.outcomes([0])
        assert status is Status.BAD_VERSION


@pytest.mark.rule("BK-22")
async def test_an_operation_without_a_message_is_refused(kit: Any) -> None:
    async with served() as server, connected(server) as client:
        client.writer.write(b"\0\0\0\x08\x0a\x06\x08\x03\x10\x03\x18\x07")  # RANGE_READ_ENTRY, transaction 7
        frame = await client.reader.readexactly(4 + 11)
        assert frame[4:] == b"\x0a\x06\x08\x03\x10\x03\x18\x07\x10\x94\x03"  # the header and status 404


@pytest.mark.rule("D11")
@versions
async def test_a_ledger_in_limbo_is_an_io_error_to_version_2_which_java_cannot_read_otherwise(
    kit: Any, version: int
) -> None:
    async with served() as server, connected(server, version) as client:
        server.bookie.set_limbo(1, in_limbo=True)
        expected = Status.UNKNOWN_LEDGER_STATE if version == 3 else Status.IO_ERROR
        assert await client.status(ReadRequest(1, 0)) is expected


async def test_a_long_poll_over_tcp_wakes_with_the_entry(kit: Any) -> None:
    async with served() as server, connected(server) as reader, connected(server) as writer:
        await writer.ask(kit.add(1, 0))
        tokens = reader.send(ReadRequest(1, -1, long_poll=LongPoll(-1, 60_000, piggyback=True)))
        await reader.writer.drain()
        await until(lambda: server.bookie.waiting_polls > 0)
        await writer.ask(kit.add(1, 1, lac=0))
        ((status, response),) = await reader.outcomes(tokens)
        assert status is Status.OK
        assert (response.entry_id, response.max_lac) == (0, 0)  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.rule("BK-27")
async def test_connections_above_the_limit_are_closed_at_once(kit: Any) -> None:
    async with served(ServerConfig(connections_max=2, connections_per_source_max=2)) as server:
        async with connected(server) as first, connected(server) as second:
            await first.ask(ReadRequest(1, 0))
            await second.ask(ReadRequest(1, 0))
            assert server.connections == 2
            async with connected(server) as third:
                assert await third.is_closed()
        await until(lambda: server.connections == 0)
        async with connected(server) as client:
            assert await client.status(kit.add(1, 0)) is Status.OK


@versions
@pytest.mark.rule("BK-27")
async def test_a_client_that_does_not_take_its_answers_is_not_served_meanwhile(kit: Any, version: int) -> None:
    entry, reads = 200_000, 200
    async with served() as server:
        submitted = 0
        submit = server.bookie.submit

        def counting(request: Request, *arguments: Any, **names: Any) -> None:
            nonlocal submitted
            submitted += 1
            submit(request, *arguments, **names)

        server.bookie.submit = counting  # type: ignore[method-assign]
        async with connected(server, version) as lazy, connected(server, version) as other:
            for entry_id in range(reads):
                await lazy.ask(kit.add(1, entry_id, payload=bytes(entry)))
            submitted = 0
            tokens = lazy.send(*(ReadRequest(1, entry_id) for entry_id in range(reads)))
            await lazy.writer.drain()
            for _ in range(200):
                await asyncio.sleep(0)
            stalled_at = submitted
            assert stalled_at < reads, "200 answers are 40 MB, which no socket buffer of ours takes"
            assert await other.status(kit.add(2, 0)) is Status.OK, "others are served"
            assert submitted == stalled_at + 1
            outcomes = await lazy.outcomes(tokens)
            assert [status for status, _ in outcomes] == [Status.OK] * reads
            assert await lazy.status(kit.add(1, reads)) is Status.OK


@pytest.mark.parametrize(
    "settings", [{"unsent_bytes_max": 5_242_879}, {"unsent_bytes_max": -1}, {"connections_max": 0}]
)
def test_impossible_limits_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="server"):
        ServerConfig(**settings)


# ------------------------------------------------------------------------------------------------------------ life


async def test_it_listens_before_it_is_announced_and_is_withdrawn_before_it_stops() -> None:
    class Registry(MemoryMetadataStore):
        async def register_bookie(self, bookie_id: str, address: BookieAddress, *, read_only: bool = False) -> None:
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            await super().register_bookie(bookie_id, address, read_only=read_only)

        async def unregister_bookie(self, bookie_id: str) -> None:
            address = await self.bookie_address(bookie_id)
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            await super().unregister_bookie(bookie_id)

    registry = Registry(MemoryMetadataService(), rng=Random(1))
    async with served(registry=registry) as server:
        assert await registry.bookies() == BookieSets(writable=("b0",))
        assert await registry.bookie_address("b0") == BookieAddress("127.0.0.1", server.port)
    assert await registry.bookies() == BookieSets()
    assert server.bookie.state is BookieState.STOPPED
    await server.aclose()
    await registry.aclose()


@pytest.mark.rule("BK-8")
async def test_the_announcement_follows_read_only_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simbookie.tcp.registration._RETRY_S", 0.0)
    registry = MemoryMetadataService().session(rng=Random(1))
    register, failures = registry.register_bookie, [MetadataStoreError("injected")]

    async def flaky(bookie_id: str, address: BookieAddress, *, read_only: bool = False) -> None:
        if read_only and failures:
            raise failures.pop()
        await register(bookie_id, address, read_only=read_only)

    monkeypatch.setattr(registry, "register_bookie", flaky)
    async with served(registry=registry) as server:
        server.bookie.set_read_only(True)
        for _ in range(50):
            await asyncio.sleep(0)
        assert await registry.bookies() == BookieSets(read_only=("b0",))
        assert failures == []
        server.bookie.set_read_only(False)
        for _ in range(50):
            await asyncio.sleep(0)
        assert await registry.bookies() == BookieSets(writable=("b0",))
    await registry.aclose()


async def test_a_registry_that_fails_leaves_nothing_running() -> None:
    class Registry(MemoryMetadataStore):
        async def register_bookie(self, bookie_id: str, address: BookieAddress, *, read_only: bool = False) -> None:
            raise MetadataStoreError("injected")

    registry = Registry(MemoryMetadataService(), rng=Random(1))
    server = BookieServer(Bookie("b0", MemoryStorage()), registry=registry)
    with pytest.raises(MetadataStoreError):
        await server.start()
    assert server.bookie.state is BookieState.STOPPED
    with pytest.raises(OSError, match=r"refused|Connect"):
        await asyncio.open_connection(server.host, server.port)
    await registry.aclose()


async def test_a_taken_port_is_an_os_error_and_leaves_nothing_running() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = BookieServer(Bookie("b0", MemoryStorage()), port=taken.getsockname()[1])
        with pytest.raises(OSError, match="is taken by another program"):
            await server.start()
        assert server.bookie.state is BookieState.STOPPED


@pytest.mark.rule("BK-24")
async def test_a_kill_breaks_connections_without_answers_and_a_restart_serves_what_was_durable(kit: Any) -> None:
    async with served(journal=JournalConfig(sync_latency_s=0.02)) as server:
        async with connected(server) as client:
            assert await client.status(kit.add(1, 0)) is Status.OK
            client.send(kit.add(1, 1))
            await client.writer.drain()
            await until(lambda: server.bookie.pending_adds > 0)
            server.kill()
            server.kill()
            assert await client.is_closed()
        port = server.port
        await server.start()
        assert server.port == port
        async with connected(server) as client:
            assert await client.status(ReadRequest(1, 0)) is Status.OK


async def test_an_orderly_stop_answers_what_waits(kit: Any) -> None:
    async with served(journal=JournalConfig(group_wait_max_s=30)) as server, connected(server) as client:
        tokens = client.send(kit.add(1, 0), ReadRequest(1, -1, long_poll=LongPoll(5, 60_000)))
        await client.writer.drain()
        await until(lambda: server.bookie.waiting_polls > 0)
        stopping = asyncio.create_task(server.aclose())
        outcomes = await client.outcomes(tokens)
        assert [status for status, _ in outcomes] == [Status.OK, Status.OK]
        assert await client.is_closed()
        await stopping


async def test_a_client_that_never_reads_does_not_hold_up_an_orderly_stop(kit: Any) -> None:
    async with served(ServerConfig(close_timeout_s=0.05)) as server, connected(server) as client:
        await client.ask(kit.add(1, 0, payload=bytes(4_000_000)))
        client.send(*(ReadRequest(1, 0) for _ in range(10)))
        await client.writer.drain()
        await asyncio.sleep(0.01)
        await server.aclose()
        assert server.connections == 0


async def test_a_bookie_that_does_not_run_closes_connections_at_once() -> None:
    async with served() as server:
        server.bookie.crash()
        async with connected(server) as client:
            assert await client.is_closed()
        server.kill()


@pytest.mark.rule("BK-2")
async def test_an_add_whose_ids_differ_from_its_body_is_stored_by_its_body(kit: Any) -> None:
    async with served() as server, connected(server) as client:
        body = kit.entry_body(7, 3)
        assert await client.status(AddRequest(1, 0, kit.KEY, body[:32], body[32:])) is Status.OK
        assert await client.status(ReadRequest(7, 3)) is Status.OK


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("way", ["killed", "closed"])
async def test_a_connection_that_comes_while_the_server_ends_is_broken_not_forgotten(turns: int, way: str) -> None:
    loop = asyncio.get_running_loop()
    server = BookieServer(Bookie("b0", MemoryStorage(None, RecordLog())))
    await server.start()
    with socket.create_connection((server.host, server.port), 5) as connection:
        connection.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        if way == "killed":
            server.kill()
        else:
            await server.aclose()
        try:
            async with asyncio.timeout(5):
                assert await loop.sock_recv(connection, 1) == b""
        except ConnectionResetError:
            pass
    await server.start()
    await server.aclose()
