"""What strangers can do to a served bookie: take time, memory and connections; each of it bounded."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkclient.security.auth import SharedSecret
from bkclient.wire.connection import ClientConnection
from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE, frame
from bkclient.wire.messages import (
    AddRequest,
    AuthMessage,
    ForceLedgerRequest,
    LongPoll,
    ReadRequest,
    Request,
    StartTlsRequest,
    Status,
    WriteLacRequest,
)
from bkclient.wire.server_connection import ServerConnection
from simbookie.config import BookieConfig
from simbookie.processes import BookieProcess
from simbookie.security import BookieSecurity, SharedSecretBookie
from simbookie.server import BookieServer, ServerConfig
from simbookie.storage.group_commit import JournalConfig
from tests.simbookie.tcp.loops import both_loops, run_on
from tests.simbookie.test_server import Client, connected, served, until, versions
from tests.tls import offering

SECRET = b"a secret of enough bytes"
#: Every deadline that is not under test is far away.
PATIENT = ServerConfig(handshake_timeout_s=1000, frame_timeout_s=1000, answers_timeout_s=1000)


# Time ----------------------------------------------------------------------------------------------------------------


@both_loops
@pytest.mark.rule("BK-30")
def test_a_client_with_much_to_do_does_not_keep_another_one_waiting(kit: Any, loop: str) -> None:
    async def story() -> None:
        async with served() as server, connected(server) as greedy, connected(server) as modest:
            await modest.ask(kit.add(1, 0))
            submit, served_to_greedy = server.bookie.submit, 0

            def costly(request: Request, *arguments: Any, **names: Any) -> None:
                nonlocal served_to_greedy
                if request.ledger_id == 2:  # type: ignore[union-attr]  # all requests here are of ledgers
                    served_to_greedy += 1
                    time.sleep(0.001)
                submit(request, *arguments, **names)

            server.bookie.submit = costly  # type: ignore[method-assign]
            greedy.send(*(ReadRequest(2, entry_id) for entry_id in range(2000)))
            await until(lambda: served_to_greedy > 0)
            before = served_to_greedy
            assert await modest.status(ReadRequest(1, 0)) is Status.OK
            assert served_to_greedy - before <= 60, "a few slices"

    run_on(loop, story())


@pytest.mark.rule("BK-30")
@versions
async def test_requests_of_many_slices_are_all_answered_in_order(kit: Any, version: int) -> None:
    async with served(ServerConfig(slice_requests=3)) as server, connected(server, version) as client:
        answers = await client.ask(*(kit.add(1, entry_id) for entry_id in range(1000)))
        assert {status for status, _ in answers} == {Status.OK}
        assert server.bookie.storage.entry_ids(1) == list(range(1000))


@both_loops
@pytest.mark.rule("BK-30")
def test_the_slice_of_a_turn_is_one_however_often_the_loop_reads(kit: Any, loop: str) -> None:
    """uvloop reads a socket up to 32 times in a turn."""

    async def story() -> None:
        async with served(ServerConfig(slice_requests=100)) as server, connected(server) as client:
            turns: dict[int, int] = {}
            add, submit = server.bookie.add, server.bookie.submit

            def count() -> None:
                turns[server.turns.current] = turns.get(server.turns.current, 0) + 1

            def counting_add(request: AddRequest, *arguments: Any) -> bool:
                is_taken = add(request, *arguments)
                if is_taken:
                    count()
                return is_taken

            def counting_submit(*arguments: Any, **names: Any) -> None:
                count()
                submit(*arguments, **names)

            server.bookie.add = counting_add  # type: ignore[method-assign, assignment]
            server.bookie.submit = counting_submit  # type: ignore[method-assign]
            await client.ask(*(kit.add(1, entry_id) for entry_id in range(5000)))
            assert sum(turns.values()) == 5000
            assert max(turns.values()) <= 100

    run_on(loop, story())


# Adds ----------------------------------------------------------------------------------------------------------------


@both_loops
@pytest.mark.rule("BK-31")
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_adds_above_the_limit_wait_unread_and_none_is_refused(kit: Any, loop: str, limit: int) -> None:
    async def story() -> None:
        journal = JournalConfig(sync_latency_s=0.001)
        config = BookieConfig(pending_adds_max=limit)
        async with (
            served(config=config, journal=journal) as server,
            connected(server) as one,
            connected(server) as two,
        ):
            sent = []
            for client, ledger_id in ((one, 1), (two, 2)):
                adds = [kit.add(ledger_id, entry_id) for entry_id in range(4 * limit + 5)]
                lac = WriteLacRequest(ledger_id, 0, kit.KEY, struct.pack(">qq", ledger_id, 0))
                sent.append((client, client.send(*adds, ForceLedgerRequest(ledger_id), lac)))
            for client, tokens in sent:
                assert {status for status, _ in await client.outcomes(tokens)} == {Status.OK}

    run_on(loop, story())


@pytest.mark.rule("BK-31")
async def test_others_are_served_while_adds_wait_for_room(kit: Any) -> None:
    journal = JournalConfig(sync_latency_s=60)
    async with served(config=BookieConfig(pending_adds_max=2), journal=journal) as server:
        async with connected(server) as writer, connected(server) as other:
            writer.send(*(kit.add(1, entry_id) for entry_id in range(10)))
            await until(lambda: server.bookie.pending_adds == 2)
            assert await other.status(ReadRequest(1, 1)) is Status.OK
            assert await other.status(ReadRequest(1, 2)) is Status.NO_ENTRY, "the third add waits"
        server.kill()
        await until(lambda: server.connections == 0)
        assert server.bookie.add_room.waiters == 0


@pytest.mark.rule("BK-31")
async def test_a_bookie_that_takes_no_adds_at_all_says_so(kit: Any) -> None:
    async with served(config=BookieConfig(pending_adds_max=0)) as server, connected(server) as client:
        assert await client.status(kit.add(1, 0)) is Status.TOO_MANY_REQUESTS


@pytest.mark.parametrize("loop", ["--uvloop", "--no-uvloop"])
@pytest.mark.rule("BK-31")
def test_a_bookie_that_stood_still_for_a_second_refuses_none_of_the_adds_that_came(
    kit: Any, tmp_path: Path, loop: str
) -> None:
    if loop == "--uvloop":
        pytest.importorskip("uvloop")
    connections, adds = 40, 1_000
    bookie = BookieProcess("bookie-0", "mem://alone", tmp_path, options=[loop])
    bookie.start()
    statuses: dict[Status, int] = {}
    with ExitStack() as stack:
        stack.callback(bookie.kill)
        address = (bookie.address.host, bookie.address.port)
        sockets = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(connections)]
        wires: list[ClientConnection[int]] = [ClientConnection(3) for _ in sockets]
        bookie.pause()
        for ledger_id, (sock, wire) in enumerate(zip(sockets, wires, strict=True)):
            sock.sendall(
                b"".join(part for entry_id in range(adds) for part in wire.send(kit.add(ledger_id, entry_id), 0))
            )
        time.sleep(1)
        bookie.resume()
        for sock, wire in zip(sockets, wires, strict=True):
            while wire.outstanding_requests:
                for _, _, status, _ in wire.receive(sock.recv(1 << 16)):
                    statuses[status] = statuses.get(status, 0) + 1
    assert statuses == {Status.OK: connections * adds}


# Answers -------------------------------------------------------------------------------------------------------------


@both_loops
def test_answers_that_are_not_taken_wait_unencoded(kit: Any, monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    """Fencing reads that wait for a slow journal are all answered at once; what they pin is what was stored, once."""
    reads, size = 100, 1_000_000
    encoded = 0
    encode = ServerConnection.encode_response

    def counting(self: ServerConnection, *arguments: Any) -> bytes:
        nonlocal encoded
        answer = encode(self, *arguments)
        encoded += len(answer)
        return answer

    async def story() -> None:
        nonlocal encoded
        async with served(journal=JournalConfig(sync_latency_s=0.05)) as server, connected(server) as client:
            await client.ask(kit.add(1, 0, payload=bytes(size)))
            encoded = 0
            tokens = client.send(*(kit.fencing_read(1, 0) for _ in range(reads)))
            await until(lambda: encoded > 0)
            for _ in range(100):
                await asyncio.sleep(0)
            assert encoded < 20 * size, "what sockets hold, the mark, and one more"
            assert [status for status, _ in await client.outcomes(tokens)] == [Status.OK] * reads
            assert encoded >= reads * size

    monkeypatch.setattr(ServerConnection, "encode_response", counting)
    run_on(loop, story())


async def test_an_orderly_stop_sends_answers_that_were_kept_back(kit: Any) -> None:
    async with served(ServerConfig(close_timeout_s=30)) as server, connected(server) as client:
        await client.ask(kit.add(1, 0, payload=bytes(1_000_000)))
        polls = [ReadRequest(1, -1, long_poll=LongPoll(-1, 60_000, piggyback=True)) for _ in range(50)]
        tokens = client.send(*polls)
        await until(lambda: server.bookie.waiting_polls == 50)
        async with connected(server) as writer:
            await writer.ask(kit.add(1, 1, lac=0))
        stopping = asyncio.create_task(server.aclose())
        await asyncio.sleep(0.01)
        assert {status for status, _ in await client.outcomes(tokens)} == {Status.OK}
        assert await client.is_closed()
        await stopping


@both_loops
def test_a_transport_that_does_not_tell_that_it_is_full_is_asked(
    kit: Any, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """asyncio of CPython 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 does not tell of ``writelines``."""
    for name in ("pause_writing", "resume_writing"):
        monkeypatch.setattr(f"simbookie.tcp.connection.ServedConnection.{name}", lambda _self: None)
    reads = 200

    async def story() -> None:
        async with served() as server, connected(server) as client:
            await client.ask(kit.add(1, 0, payload=bytes(200_000)))
            submit, submitted = server.bookie.submit, 0

            def counting(*arguments: Any, **names: Any) -> None:
                nonlocal submitted
                submitted += 1
                submit(*arguments, **names)

            server.bookie.submit = counting  # type: ignore[method-assign]
            tokens = client.send(*(ReadRequest(1, 0) for _ in range(reads)))
            await until(lambda: submitted > 0)
            for _ in range(200):
                await asyncio.sleep(0)
            assert submitted < reads
            assert [status for status, _ in await client.outcomes(tokens)] == [Status.OK] * reads

    run_on(loop, story())


# Long polls ----------------------------------------------------------------------------------------------------------


@both_loops
@pytest.mark.rule("BK-16")
def test_long_polls_end_with_their_connection(kit: Any, loop: str) -> None:
    async def story() -> None:
        async with served(config=BookieConfig(long_polls_max=200)) as server, connected(server) as other:
            await other.ask(kit.add(1, 0))
            async with connected(server) as client:
                client.send(*(ReadRequest(1, -1, long_poll=LongPoll(5, 1 << 62)) for _ in range(200)))
                await until(lambda: server.bookie.waiting_polls == 200)
            await until(lambda: server.bookie.waiting_polls == 0)
            assert await other.status(ReadRequest(1, -1, long_poll=LongPoll(5, 1))) is Status.OK

    run_on(loop, story())


# Deadlines -----------------------------------------------------------------------------------------------------------


async def ends(server: BookieServer, client: Client) -> None:
    async with asyncio.timeout(30):
        assert await client.is_closed()
        await until(lambda: server.connections == 0)


@pytest.mark.rule("BK-32")
@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\x10\0", b"\0\0\x10\0half"])
async def test_a_client_that_sends_no_request_is_cut(data: bytes) -> None:
    async with served(replace(PATIENT, handshake_timeout_s=0.1)) as server, connected(server) as client:
        client.writer.write(data)
        await ends(server, client)


@pytest.mark.rule("BK-32")
@pytest.mark.parametrize("says", ["nothing", "half", "requests"])
async def test_a_client_that_does_not_authenticate_is_cut(kit: Any, says: str) -> None:
    security = BookieSecurity(auth=SharedSecretBookie(SECRET))
    config = replace(PATIENT, handshake_timeout_s=0.1, security=security)
    async with served(config) as server, connected(server) as client:
        if says == "half":
            payload = SharedSecret(SECRET).session("b0").begin()
            await client.ask(AuthMessage(SharedSecret.plugin_name, payload or b""))
        elif says == "requests":
            assert await client.status(kit.add(1, 0)) is Status.UNAUTHORIZED
        await ends(server, client)


@pytest.mark.rule("BK-32")
async def test_a_client_that_does_not_go_on_to_tls_where_it_must_is_cut(kit: Any) -> None:
    security = offering(requires_tls=True)
    async with served(replace(PATIENT, handshake_timeout_s=0.1, security=security)) as server:
        async with connected(server) as client:
            assert await client.status(ReadRequest(1, 0)) is Status.UNAUTHORIZED
            await ends(server, client)
        async with connected(server) as client:
            assert await client.status(StartTlsRequest()) is Status.OK
            await ends(server, client)


@pytest.mark.rule("BK-32")
@versions
async def test_an_idle_client_that_has_sent_a_request_or_authenticated_stays(kit: Any, version: int) -> None:
    # The handshake is in time on a busy machine too.
    config = ServerConfig(handshake_timeout_s=0.8, frame_timeout_s=0.05, answers_timeout_s=0.05)
    async with served(config) as server, connected(server, version) as client:
        assert await client.status(kit.add(1, 0)) is Status.OK
        await asyncio.sleep(1.0)
        assert await client.status(ReadRequest(1, 0)) is Status.OK
    security = BookieSecurity(auth=SharedSecretBookie(SECRET))
    async with served(replace(config, security=security)) as server, connected(server, version) as client:
        session = SharedSecret(SECRET).session("b0")
        payload = session.begin()
        while payload is not None:
            ((_, answer),) = await client.ask(AuthMessage(SharedSecret.plugin_name, payload))
            payload = session.on_challenge(answer.payload)  # type: ignore[union-attr]
        await asyncio.sleep(1.0)
        assert await client.status(kit.add(1, 0)) is Status.OK


@pytest.mark.rule("BK-32")
async def test_a_frame_that_is_not_completed_is_cut_however_slowly_it_comes(kit: Any) -> None:
    async with served(replace(PATIENT, frame_timeout_s=0.2)) as server, connected(server) as client:
        assert await client.status(kit.add(1, 0)) is Status.OK
        client.writer.write((100_000).to_bytes(4, "big"))

        async def drip() -> None:
            while True:
                client.writer.write(b"x")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        await ends(server, client)
        dripping.cancel()


@pytest.mark.rule("BK-32")
async def test_a_client_that_always_has_half_a_frame_under_way_stays_as_long_as_frames_are_completed(kit: Any) -> None:
    async with served(replace(PATIENT, frame_timeout_s=0.1)) as server, connected(server) as client:
        wire: ClientConnection[int] = ClientConnection(3)
        data = b"".join(part for entry_id in range(60) for part in wire.send(kit.add(1, entry_id), entry_id))
        size, answered = len(data) // 60, 0
        for position in range(0, len(data) - size, size):
            client.writer.write(data[position + (0 if position == 0 else size // 2) : position + size + size // 2])
            await asyncio.sleep(0.01)
        client.writer.write(data[-(size - size // 2) :])
        while answered < 60:
            answered += len(list(wire.receive(await client.reader.read(1000))))


@pytest.mark.rule("BK-32")
async def test_a_client_that_takes_none_of_its_answers_is_cut(kit: Any) -> None:
    async with served(replace(PATIENT, answers_timeout_s=0.2)) as server, connected(server) as client:
        await client.ask(kit.add(1, 0, payload=bytes(4_000_000)))
        client.send(*(ReadRequest(1, 0) for _ in range(10)))
        async with asyncio.timeout(30):
            await until(lambda: server.connections == 0)


async def test_the_system_asks_whether_a_silent_client_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    leave = socket.socket.setsockopt

    def noting(sock: socket.socket, level: int, option: int, value: Any) -> None:
        leave(sock, level, option, value)
        found.append(sock.getsockopt(level, option))

    async with served(ServerConfig(keepalive_idle_s=77, keepalive_interval_s=7)) as server:
        monkeypatch.setattr("socket.socket.setsockopt", noting)
        async with connected(server):
            await until(lambda: server.connections == 1)
    assert {1, 77, 7} <= set(found)


# Memory and connections ----------------------------------------------------------------------------------------------


async def test_memory_of_an_idle_connection_is_given_back(kit: Any) -> None:
    async with served(replace(PATIENT, frame_timeout_s=0.2)) as server, connected(server) as client:
        await client.ask(kit.add(1, 0, payload=bytes(3_000_000)))
        (connection,) = server._connections
        frames = connection._wire._frames
        await client.ask(*(kit.add(1, entry_id) for entry_id in range(1, 2000)))
        assert frames.capacity > 4096
        async with asyncio.timeout(30):
            await until(lambda: frames.capacity == 4096)
        assert await client.status(kit.add(1, 1)) is Status.OK


@pytest.mark.rule("BK-27")
async def test_one_source_cannot_take_all_connections(kit: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with served(ServerConfig(connections_max=4)) as server:
        clients = [await asyncio.open_connection(server.host, server.port) for _ in range(20)]
        await until(lambda: server.connections == 2)
        local = await asyncio.open_connection(server.host, server.port, local_addr=("127.0.0.2", 0))
        honest = Client(*local, 3)
        assert await honest.status(kit.add(1, 0)) is Status.OK
        assert [record.message for record in caplog.records if "is refused" in record.message] == [
            "a connection from 127.0.0.1 is refused: there are 2 connections from 127.0.0.1 already"
        ]
        for _, writer in clients:
            writer.close()
        await until(lambda: server.connections == 1)
        async with connected(server) as again:
            assert await again.status(ReadRequest(1, 0)) is Status.OK
        await honest.close()


@both_loops
def test_running_out_of_descriptors_is_said_once_and_lived_through(
    kit: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr("simbookie.tcp.listener._REST_S", 0.05)
    accept, attempts = socket.socket.accept, 0

    def failing(sock: socket.socket) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts <= 5:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    async def story() -> None:
        async with served() as server:
            monkeypatch.setattr("socket.socket.accept", failing)
            async with connected(server) as client:
                assert await client.status(kit.add(1, 0)) is Status.OK
            monkeypatch.undo()

    run_on(loop, story())
    assert 6 <= attempts <= 12, "one attempt in a while"
    assert len(caplog.records) == 1
    assert "Too many open files; raise the limit of open files (ulimit -n)" in caplog.text


async def test_a_server_that_ends_while_it_rests_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(sock: socket.socket) -> Any:
        raise OSError(errno.ENFILE, "Too many open files in system")

    async with served() as server:
        monkeypatch.setattr("socket.socket.accept", failing)
        with socket.create_connection((server.host, server.port), 5):
            await until(lambda: server._listener is not None and server._listener._rest is not None)
            await server.aclose()
    assert server.connections == 0


@pytest.mark.rule("BK-26")
async def test_a_frame_over_the_limit_is_warned_of_once_per_source_with_size_and_remedy(
    kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    pulsar = 5_242_972
    async with served() as server:
        for _ in range(3):
            async with connected(server) as client:
                client.writer.write((pulsar - 4).to_bytes(4, "big"))
                assert await client.is_closed()
    (message,) = caplog.messages
    assert f"a frame of {pulsar} bytes is above the limit of {DEFAULT_MAX_FRAME_SIZE}" in message
    assert "--max-frame-size (nettyMaxFrameSizeBytes" in message
    assert "127.0.0.1:" in message


async def test_other_bytes_that_close_a_connection_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with served() as server, connected(server) as client:
        client.writer.write(frame(b"hello"))
        assert await client.is_closed()
    assert caplog.messages == []


def test_a_stopped_process_closes_in_order_with_clients_of_every_kind(kit: Any, tmp_path: Path) -> None:
    bookie = BookieProcess("bookie-0", "mem://alone", tmp_path)
    bookie.start()
    address = (bookie.address.host, bookie.address.port)
    sockets = [socket.create_connection(address, 10) for _ in range(3)]
    sockets[1].sendall(b"\0\0\1\0half")
    assert bookie.terminate() == 0
    for sock in sockets:
        sock.close()
