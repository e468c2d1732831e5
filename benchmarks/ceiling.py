"""Ceilings: what asyncio and the bookies allow, without a protocol.

A ceiling has no entry ids, digests, quorums, replicas, order or errors. Its frames are encoded before the clock starts, it
sends them over one connection to each bookie in the largest batches that the window allows, and counts the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from benchmarks.measuring import Meter, Values
from bkclient.ledger import DigestType
from bkclient.metadata.base import BookieAddress
from bkclient.wire.connection import ClientConnection
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest, ReadRequest

__all__ = ["append_bare", "read_bare"]

ACK_QUORUM = 2
_LENGTH_PREFIX = 4
#: Where nobody else writes.
_LEDGER_ID = 10**9


class BareConnection(asyncio.BufferedProtocol):
    """Counts the frames that come back and tells when one did."""

    def __init__(self, on_answers: Callable[[], None]) -> None:
        self.answers = 0
        self.transport: asyncio.Transport | None = None
        self.on_answers = on_answers
        self._buffer = bytearray(256 * 1024)
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """The free part of the buffer."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Count whole frames; keep the rest."""
        end, at, buffer = self._filled + nbytes, 0, self._buffer
        while end - at >= _LENGTH_PREFIX:
            size = _LENGTH_PREFIX + int.from_bytes(buffer[at : at + _LENGTH_PREFIX], "big")
            if end - at < size:
                break
            self.answers += 1
            at += size
        buffer[: end - at] = buffer[at:end]
        self._filled = end - at
        self.on_answers()

    def write(self, data: bytes) -> None:
        """Send it."""
        assert self.transport is not None, "it is connected"
        self.transport.write(data)

    def close(self) -> None:
        """End it."""
        assert self.transport is not None, "it is connected"
        self.transport.close()


async def _connected(addresses: list[BookieAddress], on_answers: Callable[[], None]) -> list[BareConnection]:
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: BareConnection(on_answers), address.host, address.port)
        for address in addresses
    ]
    return [connection for _, connection in made]


def add_frames(entries: int, payload: bytes, protocol: int, ledger_id: int) -> list[bytes]:
    """The frames of many appends, as the client would send them."""
    codec = EntryCodec(ledger_id, DigestType.CRC32C, b"")
    connection: ClientConnection[None] = ClientConnection(protocol)
    frames = []
    for entry_id in range(entries):
        header = codec.encode_header(entry_id, entry_id - 1, (entry_id + 1) * len(payload), payload)
        request = AddRequest(ledger_id, entry_id, codec.master_key, header, payload)
        frames.append(b"".join(connection.send(request, None)))
    return frames


Send = Callable[[list[BareConnection], int, int, int], int]
"""``(connections, settled, sent, up to)``: send frames from ``sent`` up to there, or fewer; returns what is sent now."""


async def _in_window(
    addresses: list[BookieAddress],
    entries: int,
    window: int,
    settled_of: Callable[[list[BareConnection]], int],
    send: Send,
) -> Values:
    """Have ``send`` send ``entries`` frames, at most ``window`` of which are not settled, and measure that."""
    done = asyncio.get_running_loop().create_future()
    connections: list[BareConnection] = []
    sent = 0

    def push() -> None:
        nonlocal sent
        settled = settled_of(connections)
        if settled < entries:
            sent = send(connections, settled, sent, min(entries, settled + window))
        elif not done.done():
            done.set_result(None)

    connections += await _connected(addresses, push)
    with Meter() as meter:
        push()
        await done
    for connection in connections:
        connection.close()
    return meter.per_entry(entries)


async def append_bare(addresses: list[BookieAddress], protocol: int, size: int, entries: int, window: int) -> Values:
    """Send entries to all bookies with at most ``window`` not answered by an ack quorum."""
    frames = add_frames(entries, bytes(size), protocol, _LEDGER_ID)

    def confirmed(connections: list[BareConnection]) -> int:
        return sorted(connection.answers for connection in connections)[-ACK_QUORUM]

    def send(connections: list[BareConnection], _confirmed: int, sent: int, upto: int) -> int:
        if upto > sent:
            data = b"".join(frames[sent:upto])
            for connection in connections:
                connection.write(data)
        return max(sent, upto)

    return await _in_window(addresses, entries, window, confirmed, send)


async def read_bare(addresses: list[BookieAddress], ledger_id: int, protocol: int, entries: int, window: int) -> Values:
    """Ask for the entries of a ledger with at most ``window`` not answered, each of the first bookie that stores it."""
    encoder: ClientConnection[None] = ClientConnection(protocol)
    frames = [b"".join(encoder.send(ReadRequest(ledger_id, entry_id), None)) for entry_id in range(entries)]

    def answered(connections: list[BareConnection]) -> int:
        return sum(connection.answers for connection in connections)

    def send(connections: list[BareConnection], settled: int, sent: int, upto: int) -> int:
        # In batches, as bookies serve them best: half a window at a time, unless nothing else is under way.
        if not (upto - sent >= max(1, window // 2) or settled == sent or upto == entries):
            return sent
        for first, connection in enumerate(connections):
            data = b"".join(frames[sent + (first - sent) % len(connections) : upto : len(connections)])
            if data:
                connection.write(data)
        return upto

    return await _in_window(addresses, entries, window, answered, send)
