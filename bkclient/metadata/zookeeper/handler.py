"""How the ZooKeeper library waits and calls back here: one thread for each session, and nothing that blocks the loop.

The library brings a handler of its own, with three threads for each session: one for the connection, one that calls back
with answers, one that calls back with watches. All that :mod:`~bkclient.metadata.zookeeper.session` does in a callback is
to hand something to the event loop, so the thread of the connection makes these calls itself. It waits with ``poll``,
which needs no descriptor, and is woken through an event counter, which is one descriptor where the platform has it.

A socket of the library is known here from before it connects until it is closed, so that :meth:`SessionHandler.abort` can
end whatever the thread waits for. It cannot end the resolution of a host name, which the system bounds.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

__all__ = ["OnAttempt", "SessionHandler"]

OnAttempt = Callable[[str, str, OSError | None], None]
"""Told the ``host:port`` of a server, the address of it that was tried, and why no connection came of it, ``None`` if one did.

Called in the thread of the connection.
"""

RESTART_DELAY_S: Final = 0.2
"""How long to leave a server alone that sent something malformed."""


class SessionHandler(SequentialThreadingHandler):  # type: ignore[misc]  # the library has no types
    """The library's handler for one session, with no thread but that of the connection."""

    def __init__(self, on_attempt: OnAttempt, on_failure: Callable[[BaseException], None]) -> None:
        """``on_failure`` is told of what the library did not expect of a server; what it expects it handles itself."""
        super().__init__()
        self._on_attempt = on_attempt
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = threading.Event()

    def abort(self) -> None:
        """Fail everything that the connection waits for, now and from now on. From any thread; idempotent."""
        with self._lock:
            self._aborted.set()
            _shut_down(self._socket)

    # ---- what the library calls -------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Never: to the library this means that callbacks are called where they become due, not by workers."""
        return False

    def start(self) -> None:
        """Nothing to start: there are no workers."""

    def stop(self) -> None:
        """Nothing to stop either."""

    def dispatch_callback(self, callback: Any) -> None:
        """A watch fired."""
        callback.func(*callback.args)

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        """The thread of the connection.

        An answer that the library cannot take apart ends its loop for good. It is begun again, with a new session.
        """

        def run() -> None:
            while not self._aborted.is_set():
                try:
                    func(*args, **kwargs)
                except Exception as error:  # noqa: BLE001 - it would be lost otherwise
                    self._on_failure(error)
                    self._aborted.wait(RESTART_DELAY_S)
                else:
                    return

        thread = threading.Thread(target=run, name="bkclient-zookeeper", daemon=True)
        thread.start()
        return thread

    def create_connection(
        self, address: tuple[str, int], *, hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        """A connection with a server; ``address`` is numeric. TLS is not offered by this driver."""
        host, port = address
        server = f"{hostname or host}:{port}"
        try:
            family, kind, protocol, _name, target = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )[0]
            connection = socket.socket(family, kind, protocol)
            try:
                self._keep(connection)
                connection.settimeout(timeout)
                connection.connect(target)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            self._on_attempt(server, host, error)
            raise
        self._on_attempt(server, host, None)
        return connection

    def create_socket_pair(self) -> tuple[Any, Any]:
        """What wakes the thread: the end it waits for, and the end that is written to by who submits a request."""
        if hasattr(os, "eventfd"):
            counter = _Counter()
            return counter, counter
        return super().create_socket_pair()  # type: ignore[no-any-return]  # the library has no types

    def select(
        self, readable: Sequence[Any], writable: Sequence[Any], exceptional: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As ``select.select``; no file object is in two of the sequences."""
        if not hasattr(select, "poll"):
            ready: tuple[list[Any], list[Any], list[Any]] = super().select(readable, writable, exceptional, timeout)
            return ready
        with selectors.PollSelector() as selector:
            for file in readable:
                selector.register(file, selectors.EVENT_READ)
            for file in writable:
                selector.register(file, selectors.EVENT_WRITE)
            found = [key.fileobj for key, _ in selector.select(timeout)]
        return [file for file in readable if file in found], [file for file in writable if file in found], []

    def _keep(self, connection: socket.socket) -> None:
        with self._lock:
            if self._aborted.is_set():
                raise ConnectionAbortedError("the session is being closed")
            self._socket = connection


class _Counter:
    """Counts what is sent and not yet received, with the methods that the library uses of a pair of sockets.

    The library's pair would block who submits a request once a few hundred are waiting for a thread that is busy.
    """

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)

    def fileno(self) -> int:
        return self._descriptor

    def send(self, data: bytes) -> int:
        os.eventfd_write(self._descriptor, len(data))
        return len(data)

    def recv(self, _: int) -> bytes:
        os.eventfd_read(self._descriptor)
        return b"\0"

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _shut_down(connection: socket.socket | None) -> None:
    if connection is not None:
        with suppress(OSError):  # it is closed, or was never connected
            connection.shutdown(socket.SHUT_RDWR)
