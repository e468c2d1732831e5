"""Frames that a socket does not take: kept in order, given out in parts, never more handed over than can be sent soon."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import Code
from bkclient.transport.outgoing import CHUNK_BYTES, LARGE_CHUNK_BYTES, Outgoing, chunk_bytes_for
from bkclient.transport.request_stream import StreamOwner
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.transport.tcp_stream import Stream
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import AddRequest, Request, Response
from bkclient.wire.outstanding import Load
from tests.bkclient.inside import stream_to, waiting_bytes
from tests.bkclient.transport.scripted_bookie import running, until
from tests.bkclient.transport.test_tcp import add, transport_to

HIGH, LOW = 512 * 1024, 384 * 1024


@given(
    steps=st.lists(
        st.one_of(st.none(), st.lists(st.sampled_from([0, 1, 70_000, CHUNK_BYTES, 3 * CHUNK_BYTES]), max_size=9))
    )
)
def test_everything_comes_out_once_and_in_order(steps: list[list[int] | None]) -> None:
    outgoing = Outgoing()
    put, taken = b"", b""
    for step in steps:
        if step is None:
            chunk = outgoing.take()
            assert sum(map(len, chunk)) == min(CHUNK_BYTES, len(put) - len(taken))
            taken += b"".join(chunk)
        else:
            buffers = [bytes([len(put) % 251]) * size for size in step]
            outgoing.add(buffers)
            put += b"".join(buffers)
        assert outgoing.size == len(put) - len(taken)
    while outgoing.size:
        taken += b"".join(outgoing.take())
    assert taken == put


def test_large_buffers_are_given_out_in_parts_of_themselves() -> None:
    outgoing = Outgoing()
    large = bytes(3 * CHUNK_BYTES)
    outgoing.add([large])
    parts = [outgoing.take() for _ in range(3)]
    assert all(cast("memoryview", part).obj is large for (part,) in parts), "a part is no copy"


def test_parts_are_small_where_the_event_loop_copies_what_it_keeps() -> None:
    copies = sys.version_info < (3, 12)
    assert chunk_bytes_for(asyncio.Transport()) == (CHUNK_BYTES if copies else LARGE_CHUNK_BYTES)
    assert chunk_bytes_for(object()) == LARGE_CHUNK_BYTES


class Slow:
    """A transport that keeps all it is given until it is told what the socket takes; ``writelines`` may forget to pause."""

    def __init__(self, *, pauses: bool) -> None:
        self.pauses = pauses
        self.has_broken = False
        self.kept = 0
        self.sent = 0
        self.largest = 0
        self.protocol: Stream | None = None
        self._is_paused = False
        self._limits = (0, 0)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._limits = (high, low)
        self._pause()

    def get_write_buffer_size(self) -> int:
        return self.kept

    def is_closing(self) -> bool:
        return self.has_broken

    def writelines(self, buffers: Iterable[bytes]) -> None:
        assert not self.has_broken, "CPython 3.12.1 would register the socket with the loop once more, or raise"
        self.kept += sum(map(len, buffers))
        self.largest = max(self.largest, self.kept)
        if self.pauses:
            self._pause()

    def take(self, size: int) -> None:
        """The socket takes so much."""
        self.sent += min(size, self.kept)
        self.kept -= min(size, self.kept)
        if self._is_paused and self.kept <= self._limits[1] and self.protocol is not None:
            self._is_paused = False
            self.protocol.resume_writing()

    def _pause(self) -> None:
        if self.kept > self._limits[0] and not self._is_paused and self.protocol is not None:
            self._is_paused = True
            self.protocol.pause_writing()


class Owner:
    """A lane that only listens."""

    lanes = SimpleNamespace(need_care=lambda: False)

    def __init__(self) -> None:
        self.failed: list[int] = []

    def fail(self, request: object, reply_to: object, code: int) -> None:
        self.failed.append(code)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: None


def slow_stream(monkeypatch: pytest.MonkeyPatch, *, pauses: bool, **config: Any) -> tuple[Stream, Slow, Owner]:
    monkeypatch.setattr("bkclient.transport.tcp_stream.apply_socket_options", lambda *_: None)
    monkeypatch.setattr("bkclient.transport.tcp_stream.chunk_bytes_for", lambda _: CHUNK_BYTES)
    owner, transport = Owner(), Slow(pauses=pauses)
    settings = TcpTransportConfig(write_buffer_high_water_bytes=HIGH, write_buffer_low_water_bytes=LOW, **config)
    load = Load(settings.max_outstanding_requests, settings.max_outstanding_bytes)
    stream = Stream(cast("StreamOwner", owner), "b", ClientConnection(3, load=load), settings, is_tls=False)
    transport.protocol = stream
    stream.connection_made(cast("asyncio.Transport", transport))
    return stream, transport, owner


@pytest.mark.parametrize("before", [0, 16], ids=["idle", "paused"])
async def test_a_transport_that_broke_is_given_nothing(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    stream, transport, _ = slow_stream(monkeypatch, pauses=True)
    codes: list[int] = []

    def on_reply(_bookie_id: str, _request: Request, code: int, _response: Response | None) -> None:
        codes.append(code)

    for number in range(before):
        stream.submit(add(number, bytes(65_536)), on_reply)
    await asyncio.sleep(0)
    transport.has_broken = True
    stream.submit(add(before), on_reply)
    await asyncio.sleep(0)
    transport.take(transport.kept)
    stream.connection_lost(ConnectionResetError())
    await asyncio.sleep(0)
    assert codes == [Code.BOOKIE_NOT_AVAILABLE] * (before + 1)


@pytest.mark.rule("W-7")
@pytest.mark.parametrize("pauses", [True, False], ids=["as documented", "as CPython 3.12.0 and 3.13.0"])
async def test_the_transport_is_given_no_more_than_it_can_send_soon(
    monkeypatch: pytest.MonkeyPatch, pauses: bool
) -> None:
    stream, transport, owner = slow_stream(monkeypatch, pauses=pauses)
    for turn in range(10):
        for number in range(16):
            stream.submit(add(16 * turn + number, bytes(65_536)), lambda *_: None)
        await asyncio.sleep(0)
    total = stream.connection.outstanding_bytes
    writable = [stream.is_writable]
    while transport.sent < total:
        before = transport.sent
        transport.take(100_000)
        assert transport.sent > before, "the rest was never handed over"
    assert transport.sent == total
    assert transport.largest <= HIGH + CHUNK_BYTES
    assert [*writable, stream.is_writable] == [False, True]
    assert owner.failed == []


@pytest.mark.parametrize("pauses", [True, False])
async def test_what_waits_here_is_bounded_although_its_requests_have_timed_out(
    monkeypatch: pytest.MonkeyPatch, pauses: bool
) -> None:
    stream, transport, owner = slow_stream(monkeypatch, pauses=pauses, max_outstanding_bytes=5_000_000)
    for entry_id in range(10):
        stream.submit(add(entry_id, bytes(1_000_000)), lambda *_: None)
        await asyncio.sleep(0)
        stream.connection.abandon()
        stream.has_expired = True  # as where a timeout gave them up
    assert owner.failed == [Code.TOO_MANY_REQUESTS] * 5
    transport.take(HIGH + CHUNK_BYTES)
    stream.submit(add(10), lambda *_: None)
    assert len(owner.failed) == 5


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_large_entries_arrive_whole_at_a_bookie_that_reads_slowly(loop: str) -> None:
    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(large_entries_arrive())


async def large_entries_arrive() -> None:
    async with running() as bookie, transport_to(bookie) as outcomes:
        bookie.deaf = True
        payloads = [bytes([number]) * (1_000_000 + number) for number in range(8)]
        for entry_id, payload in enumerate(payloads):
            outcomes.submit(add(entry_id, payload))
        await until(lambda: not outcomes.transport.is_writable("b"))
        bookie.connections[0].transport.resume_reading()
        assert await outcomes.wait(8) == [Code.OK] * 8
        for received, payload in zip(bookie.received, payloads, strict=True):
            assert isinstance(received.request, AddRequest)
            assert received.request.body.endswith(payload)


async def test_what_waits_is_forgotten_with_the_connection() -> None:
    async with running() as bookie, transport_to(bookie, connect_timeout_s=5.0) as outcomes:
        bookie.deaf = True
        for entry_id in range(20):
            outcomes.submit(add(entry_id, bytes(1_000_000)))
        await until(lambda: not outcomes.transport.is_writable("b"))
        stream = stream_to(outcomes.transport, "b")
        assert waiting_bytes(stream) > 10_000_000
        bookie.connections[0].transport.abort()
        assert await outcomes.wait(20) == [Code.BOOKIE_NOT_AVAILABLE] * 20
        assert waiting_bytes(stream) == 0
