"""Accepting connections.

asyncio's own servers log a traceback for every connection that they cannot accept for lack of a file descriptor, thousands in a
second, and offer no say before a connection costs a transport. So this one accepts by itself: so many in a turn, each counted
before anything is made for it, and none for a moment when the system has nothing left to accept them with.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from simbookie.tcp.admission import Admission, source_of
from simbookie.tcp.notices import Notices

__all__ = ["KeepAlive", "Listener", "bound_socket"]

_BACKLOG: Final = 1_024
_ACCEPTS_PER_TURN: Final = 16
#: How long nothing is accepted after the system lacked a resource.
_REST_S: Final = 1.0
_WANTS: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_KEEPALIVE_PROBES: Final = 6

NewConnection = Callable[[str, Callable[[], None]], asyncio.BaseProtocol]
"""``(source, on_gone)``"""


class KeepAlive(Protocol):
    """Silence, in seconds, after which a client's system is asked whether it is there, and how long until it is asked again."""

    @property
    def keepalive_idle_s(self) -> int:
        """The first time."""

    @property
    def keepalive_interval_s(self) -> int:
        """All other times."""


#: What is told of an address that cannot be listened on.
_ADVICE: Final = {
    errno.EADDRINUSE: "port {port} of {host} is taken by another program: stop it, or choose another port",
    errno.EACCES: "port {port} of {host} needs privileges: choose a port above 1023",
    errno.EADDRNOTAVAIL: "{host} is no address of this machine: choose one that is, or 0.0.0.0 for all",
}


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket bound to the address; ``OSError``, which says what to do, if that is taken or cannot be used."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno not in _ADVICE:
            raise
        raise OSError(error.errno, _ADVICE[error.errno].format(host=host, port=port)) from None


class Listener:
    """Accepts connections on ``sock`` and makes a connection of each that is admitted."""

    def __init__(
        self, sock: socket.socket, admission: Admission, notices: Notices, config: KeepAlive, new: NewConnection
    ) -> None:
        self._socket = sock
        self._admission = admission
        self._notices = notices
        self._config = config
        self._new = new
        self._loop = asyncio.get_running_loop()
        self._rest: asyncio.TimerHandle | None = None
        self._made: set[asyncio.Task[None]] = set()
        sock.settimeout(0)
        sock.listen(_BACKLOG)
        self._loop.add_reader(sock, self._accept)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._socket.getsockname()[1]
        return port

    def close(self) -> None:
        """Accept no more. Connections that wait to be accepted are broken by the system."""
        if self._rest is None:
            self._loop.remove_reader(self._socket)
        else:
            self._rest.cancel()
        self._socket.close()

    async def settled(self) -> None:
        """Wait until every connection that was accepted has been made."""
        if self._made:
            await asyncio.wait(self._made)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _WANTS:
                    self._take_a_rest(error)
                    return
                continue  # it broke before it was accepted
            self._take(sock, str(address[0]))

    def _take_a_rest(self, error: OSError) -> None:
        self._notices.warn(
            "",
            "connections cannot be accepted, the next attempt is in %g s: %s; raise the limit of open files (ulimit -n), or "
            "lower --connections-max",
            *(_REST_S, error.strerror),
        )
        self._loop.remove_reader(self._socket)
        self._rest = self._loop.call_later(_REST_S, self._go_on)

    def _go_on(self) -> None:
        self._rest = None
        self._loop.add_reader(self._socket, self._accept)

    def _take(self, sock: socket.socket, host: str) -> None:
        source = source_of(host)
        reason = self._admission.enter(source)
        if reason is not None:
            self._notices.warn(source, "a connection from %s is refused: %s", host, reason)
            sock.close()
            return
        try:
            sock.settimeout(0)
            self._keep_alive(sock)
        except OSError:  # it is broken already
            sock.close()
            self._admission.leave(source)
            return
        connection = self._new(source, partial(self._admission.leave, source))
        task = self._loop.create_task(self._connect(sock, connection))
        self._made.add(task)
        task.add_done_callback(self._made.discard)

    async def _connect(self, sock: socket.socket, connection: asyncio.BaseProtocol) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, sock)
        except OSError:
            sock.close()
            connection.connection_lost(None)

    def _keep_alive(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        times = {
            "TCP_KEEPIDLE": self._config.keepalive_idle_s,
            "TCP_KEEPINTVL": self._config.keepalive_interval_s,
            "TCP_KEEPCNT": _KEEPALIVE_PROBES,
        }
        for name, value in times.items():
            option = getattr(socket, name, None)
            if option is not None:
                with suppress(OSError):  # a system may know it under another name or not at all
                    sock.setsockopt(socket.IPPROTO_TCP, option, value)
