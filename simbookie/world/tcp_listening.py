"""Sockets that listen, in the kernels of a world's hosts: connections wait there until a server accepts them."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from simbookie.world.tcp_socket import Address, Socket

if TYPE_CHECKING:
    from simbookie.world.process import Process
    from simbookie.world.tcp import Tcp

__all__ = ["Listening"]


class Listening:
    """A socket that listens. Has the names of :class:`socket.socket` where servers use them."""

    def __init__(self, tcp: Tcp, process: Process, address: Address, backlog: int) -> None:
        self.process = process
        self.address = address
        self.backlog = backlog
        #: Called as code of the process when a connection waits to be accepted.
        self.on_readable: Callable[[], None] | None = None
        self._tcp = tcp
        self._queue: deque[Socket] = deque()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Listening {self.address[0]}:{self.address[1]}>"

    def getsockname(self) -> Address:
        """Where it listens."""
        return self.address

    def settimeout(self, _timeout_s: float | None) -> None:
        """Nothing to do: no call ever waits."""

    def listen(self, backlog: int) -> None:
        """How many connections may wait to be accepted."""
        self.backlog = max(1, backlog)

    @property
    def is_full(self) -> bool:
        """Whether no further connection may wait."""
        return len(self._queue) >= self.backlog

    @property
    def is_readable(self) -> bool:
        """Whether :meth:`accept` has a connection."""
        return bool(self._queue)

    def accept(self) -> tuple[Socket, Address]:
        """The connection that has waited longest; ``BlockingIOError`` if there is none."""
        if not self._queue:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = self._queue.popleft()
        return accepted, accepted.remote

    def close(self) -> None:
        """Listen no more; connections that wait are reset. Idempotent."""
        if not self._is_closed and self.process.is_alive:
            self.shut()

    def shut(self) -> None:
        """The same, by the kernel."""
        self._is_closed = True
        self.on_readable = None
        self._tcp.stop_listening(self)
        while self._queue:
            self._queue.popleft().send_reset()

    def enqueue(self, accepted: Socket) -> None:
        """A connection stands; called by the kernel."""
        self._queue.append(accepted)
        if self.on_readable is not None:
            self._tcp.network.loop.enter(self.process, self._tell_readable)

    def _tell_readable(self) -> None:
        if self.on_readable is not None:
            self.on_readable()
