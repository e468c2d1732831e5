"""What a stranger can do to a served bookie with a few sockets: each attack goes on until it is told to stop.

``prepare`` is what it stores beforehand, which is not held against the bookie.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Final

from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import (
    AddRequest,
    BatchReadRequest,
    EntryListRequest,
    LongPoll,
    ReadRequest,
    Request,
    WriteLacRequest,
)

__all__ = ["ATTACKS", "Attack"]

KEY: Final = b"a" * 20
LEDGER: Final = 7
ENTRIES: Final = 60_000
Address = tuple[str, int]


def add(ledger_id: int, entry_id: int, payload: bytes = b"", lac: int = -1) -> AddRequest:
    return AddRequest(ledger_id, entry_id, KEY, struct.pack(">qqqq", ledger_id, entry_id, lac, 0), payload)


def encoded(requests: Iterator[Request], protocol_version: int = 3) -> bytes:
    wire: ClientConnection[None] = ClientConnection(protocol_version)
    return b"".join(part for request in requests for part in wire.send(request, None))


class Attack:
    """Base: holds sockets, and pushes bytes through them as fast as they go, whatever comes back."""

    connections = 20

    def __init__(self, address: Address) -> None:
        self.address = address
        self.stop = threading.Event()
        self._stack = ExitStack()
        self.sockets: list[socket.socket] = []

    def prepare(self) -> None:
        """Store what the attack needs."""

    def begin(self) -> None:
        for _ in range(self.connections):
            sock = self._stack.enter_context(socket.create_connection(self.address, 60))
            sock.setblocking(False)
            self.sockets.append(sock)

    def run(self) -> None:
        """Attack until :attr:`stop`."""
        self.begin()
        with suppress(ConnectionError):
            self.attack()

    def attack(self) -> None:
        self.stop.wait()

    def end(self) -> None:
        self._stack.close()

    def store(self, entry_ids: Iterator[int]) -> None:
        """Have entries of :data:`LEDGER` stored."""
        wire: ClientConnection[None] = ClientConnection(3)
        with socket.create_connection(self.address, 60) as sock:
            for entry_id in entry_ids:
                sock.sendall(b"".join(wire.send(add(LEDGER, entry_id), None)))
                while wire.outstanding_requests > 500:
                    list(wire.receive(sock.recv(65536)))
            while wire.outstanding_requests:
                list(wire.receive(sock.recv(65536)))

    def push(self, data: bytes, *, takes_answers: bool = True) -> None:
        """Send ``data`` on every connection again and again."""
        unsent = {sock: memoryview(data) for sock in self.sockets}
        while not self.stop.is_set():
            readable, writable, _ = select.select(self.sockets if takes_answers else [], self.sockets, [], 0.1)
            for sock in readable:
                with suppress(BlockingIOError):
                    sock.recv(1 << 20)
            for sock in writable:
                with suppress(BlockingIOError):
                    unsent[sock] = unsent[sock][sock.send(unsent[sock]) :] or memoryview(data)
            time.sleep(0.0005)  # this process must not be what takes the machine's time


class AnnouncedFrames(Attack):
    """Connections that announce a large frame, and say no more."""

    connections = 200

    def attack(self) -> None:
        for sock in self.sockets:
            sock.send((5_242_000).to_bytes(4, "big") + b"hello there")
        self.stop.wait()


class Silence(Attack):
    """Connections that say nothing."""

    connections = 400


class Drips(Attack):
    """Connections on which bytes of a frame come one at a time."""

    connections = 300

    def attack(self) -> None:
        for sock in self.sockets:
            sock.send((100_000).to_bytes(4, "big"))
        while not self.stop.is_set():
            for sock in self.sockets:
                sock.send(b"x")
            self.stop.wait(0.05)


class Comings(Attack):
    """Connections that come and go as fast as they can."""

    connections = 0

    def attack(self) -> None:
        while not self.stop.is_set():
            with suppress(OSError):
                socket.create_connection(self.address, 5).close()


class Reads(Attack):
    """Small requests without end."""

    def attack(self) -> None:
        self.push(encoded(ReadRequest(LEDGER, entry_id) for entry_id in range(20_000)))


class Adds(Attack):
    """Small adds without end, of the same entries."""

    def attack(self) -> None:
        self.push(encoded(add(LEDGER, entry_id) for entry_id in range(20_000)))


class Lists(Attack):
    """Requests for a list of every other of many entries, which is long."""

    def prepare(self) -> None:
        self.store(iter(range(0, 2 * ENTRIES, 2)))

    def attack(self) -> None:
        self.push(encoded(EntryListRequest(LEDGER) for _ in range(400)))


class Batches(Attack):
    """Batch reads of as many small entries as there are."""

    def prepare(self) -> None:
        self.store(iter(range(ENTRIES)))

    def attack(self) -> None:
        self.push(encoded((BatchReadRequest(LEDGER, 0, 0, 5 << 20) for _ in range(60)), 2))


class Polls(Attack):
    """Ten thousand long polls that would wait for ever."""

    def prepare(self) -> None:
        self.store(iter(range(2)))

    def attack(self) -> None:
        data = encoded(ReadRequest(LEDGER, -1, long_poll=LongPoll(1 << 40, 1 << 62)) for _ in range(500))
        for sock in self.sockets:
            sock.settimeout(10)
            sock.sendall(data)
        self.stop.wait()


class Wakes(Polls):
    """Long polls that are all woken again and again."""

    def attack(self) -> None:
        lac = 0
        with socket.create_connection(self.address, 60) as writer:
            while not self.stop.is_set():
                poll = encoded(ReadRequest(LEDGER, -1, long_poll=LongPoll(lac, 60_000, True)) for _ in range(400))
                for sock in self.sockets:
                    sock.settimeout(10)
                    sock.sendall(poll)
                lac += 1
                writer.sendall(encoded(iter([add(LEDGER, 10 + lac, lac=lac)])))
                writer.recv(65536)
                for sock in self.sockets:
                    sock.settimeout(0)
                    with suppress(BlockingIOError):
                        while sock.recv(1 << 20):
                            pass
                self.stop.wait(0.05)


class Keys(Attack):
    """Keys and explicit LACs of megabytes, each for a ledger of its own."""

    connections = 1

    def attack(self) -> None:
        number = 0
        self.sockets[0].settimeout(10)
        while not self.stop.is_set():
            number += 1
            large = bytes(4_000_000)
            ids = struct.pack(">qq", 1000 + number, 0)
            requests: list[Request] = [
                ReadRequest(1000 + number, 0, fence_key=large),
                WriteLacRequest(1000 + number, 0, KEY, ids + large),
            ]
            self.sockets[0].sendall(encoded(iter(requests)))
            self.stop.wait(0.02)


class Deaf(Attack):
    """Reads of large entries whose answers are never taken."""

    connections = 40

    def prepare(self) -> None:
        with socket.create_connection(self.address, 60) as sock:
            sock.sendall(encoded(iter([add(LEDGER, 0, bytes(200_000))])))
            sock.recv(65536)

    def attack(self) -> None:
        self.push(encoded(ReadRequest(LEDGER, 0) for _ in range(200)), takes_answers=False)


ATTACKS: Final[tuple[type[Attack], ...]] = (
    *(AnnouncedFrames, Silence, Drips, Comings, Reads, Adds, Lists, Batches, Polls, Wakes, Keys, Deaf),
)
