"""A client in a process of its own that appends and reads, a request at a time, and tells how long each took.

    python -m tests.end_to_end.hostile.honest HOST PORT PID SECONDS

It comes from 127.0.0.2, so that it is another source than attackers on 127.0.0.1. At the end it prints, as JSON, a pair for
each three requests: seconds for one of them, and seconds of processor time that the bookie, process PID, took meanwhile. The
second is what the first is on a machine that has nothing else to do.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Final

from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import AddRequest, LongPoll, ReadRequest, Request, Status

LEDGER: Final = 1_000_000
KEY: Final = b"h" * 20
_PAUSE_S: Final = 0.005
_ROUNDS_MIN: Final = 20


class Honest:
    """One connection; every request is waited for."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), 60, source_address=("127.0.0.2", 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wire: ClientConnection[None] = ClientConnection(3)

    def ask(self, request: Request) -> Status:
        """The status of the answer."""
        self._socket.sendall(b"".join(self._wire.send(request, None)))
        while True:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("the bookie closed the connection of an honest client")
            for _, _, status, _ in self._wire.receive(data):
                return status

    def append(self, entry_id: int) -> Status:
        header = struct.pack(">qqqq", LEDGER, entry_id, entry_id - 1, 0)
        return self.ask(AddRequest(LEDGER, entry_id, KEY, header, b"payload"))

    def read(self, entry_id: int) -> Status:
        return self.ask(ReadRequest(LEDGER, entry_id))

    def poll(self, entry_id: int) -> Status:
        """Wait a millisecond for more than ``entry_id`` to be confirmed."""
        return self.ask(ReadRequest(LEDGER, -1, long_poll=LongPoll(entry_id, 1, piggyback=True)))

    def close(self) -> None:
        self._socket.close()


def processor_time(pid: int) -> float:
    """Seconds that the main thread of a process has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def main(host: str, port: int, pid: int, seconds: float) -> None:
    """Append, read and poll until the time is over, and twenty times at least."""
    client = Honest(host, port)
    taken: list[tuple[float, float]] = []
    entry_id, ends = 0, time.monotonic() + seconds
    while time.monotonic() < ends or entry_id < _ROUNDS_MIN:
        began, worked = time.perf_counter(), processor_time(pid)
        statuses = (client.append(entry_id), client.read(entry_id), client.poll(entry_id))
        count = len(statuses)
        taken.append(((time.perf_counter() - began) / count, (processor_time(pid) - worked) / count))
        if statuses != (Status.OK, Status.OK, Status.OK):
            raise SystemExit(f"an honest client was told {statuses}")
        entry_id += 1
        time.sleep(_PAUSE_S)
    json.dump(taken, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
