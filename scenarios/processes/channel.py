"""What a process of a run has to do with the one that started it, the *director*.

They exchange msgpack arrays over the process's standard input and output. The first message that a process gets is its task. It
tells of the events that the plan waits for; an event at which something is broken holds it up until the director has done so.

A process ends with its director: its standard input ends then, and on Linux the system kills it even if it stands still.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack

from scenarios.history import Event, HistoryWriter

__all__ = ["Channel", "clock_since"]

_READ_BYTES: Final = 65_536
_PR_SET_PDEATHSIG: Final = 1

Message = list[Any]


def clock_since(started_ns: int) -> Callable[[], int]:
    """Microseconds since ``started_ns`` by the machine's monotonic clock, which all processes share."""
    return lambda: (time.monotonic_ns() - started_ns) // 1000


class Channel:
    """The process's end. Made first, because it takes standard output for itself: what else is printed goes to standard error."""

    def __init__(self) -> None:
        self._in = os.dup(0)
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._unpacker = msgpack.Unpacker()
        self._packer = msgpack.Packer(autoreset=True)
        self._waiting: deque[Message] = deque()
        #: What takes messages of the director.
        self.on_message: Callable[[Message], None] = lambda _: None
        self._watched: Mapping[str, bool] = {}
        self._acks = 0
        self.task: dict[str, Any] = self._next()[1]
        _end_with(self.task["director"])

    def listen(self) -> None:
        """Take messages by the running loop from now on."""
        asyncio.get_running_loop().add_reader(self._in, self._readable)
        self._take_soon()

    def tell(self, *message: object) -> None:
        """Send a message to the director."""
        data = memoryview(self._packer.pack(list(message)))
        while data:
            data = data[os.write(self._out, data) :]

    def watch(self, history: HistoryWriter) -> None:
        """Tell of the events that the task names; those that hold the process up do so when the loop has done what was due."""
        self._watched = self.task["watched"]
        history.listeners.append(self._on_event)

    def _on_event(self, event: Event) -> None:
        holds_up = self._watched.get(event.kind)
        if holds_up is None:
            return
        self.tell("event", event.time_us, event.actor, event.kind, event.ledger, dict(event.fields), holds_up)
        if holds_up:
            asyncio.get_running_loop().call_later(0, self._wait_for_director)

    def _wait_for_director(self) -> None:
        """Stand still until the director has said once more that it is done."""
        while not self._acks:
            self._read()
            self._sort()
        self._acks -= 1
        self._take_soon()

    def _readable(self) -> None:
        self._read()
        self._sort()
        self._take()

    def _take_soon(self) -> None:
        """Take what has come along with the message that was waited for: nothing else will say that it is there."""
        self._sort()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._take)

    def _sort(self) -> None:
        """Count the words to go on, at once: the next event that holds the process up may wait for one that is here already."""
        for message in self._unpacker:
            if message[0] == "go-on":
                self._acks += 1
            else:
                self._waiting.append(message)

    def _take(self) -> None:
        while self._waiting:
            self.on_message(self._waiting.popleft())

    def _next(self) -> Message:
        while True:
            for message in self._unpacker:
                found: Message = message
                return found
            self._read()

    def _read(self) -> None:
        data = os.read(self._in, _READ_BYTES)
        if not data:
            os._exit(1)  # the director is gone, and nobody needs what would come
        self._unpacker.feed(data)


def _end_with(director: int) -> None:
    """Have the system kill this process when the director ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != director:
            os._exit(1)
