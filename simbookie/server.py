"""A bookie behind real TCP, announced in the metadata store.

One :class:`BookieServer` serves one :class:`~simbookie.bookie.Bookie` in both protocol versions. It adds what a socket adds and
nothing else: frames, connections, back-pressure, registration. It trusts no client:

* memory grows with what has arrived, not with what is announced;
* the work for one connection in one turn of the loop is bounded, and so is that for all together (:mod:`simbookie.tcp.turns`);
* every wait for a client has a deadline, but for one: a client that has had a request admitted, or has authenticated, may stay
  connected in silence. BookKeeper's clients open connections when they have a request and keep them; what has become of
  their machines the system finds out (TCP keep-alive);
* connections are bounded, in all and by source.

The bookie listens before it is announced, is announced anew when it turns read-only or writable, and is withdrawn before it
stops listening.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Final, Self

from bkclient.metadata.base import BookieAddress, BookieRegistry
from simbookie.bookie import Bookie, BookieState
from simbookie.storage.base import CrashMode
from simbookie.tcp.admission import Admission, connections_possible
from simbookie.tcp.config import ServerConfig
from simbookie.tcp.connection import ServedConnection
from simbookie.tcp.deadlines import Deadlines
from simbookie.tcp.listener import Listener, bound_socket
from simbookie.tcp.notices import Notices
from simbookie.tcp.registration import Registration
from simbookie.tcp.turns import REAL_CLOCK, Clock, Turns
from simbookie.tcp.unsent import Unsent

__all__ = ["BookieServer", "ServerConfig"]

_log: Final = logging.getLogger(__name__)


class BookieServer:
    """Serves ``bookie`` on ``host:port``; port 0 lets the system choose one, which is kept across restarts.

    ``sock`` listens already; without one ``bind`` makes it when the server starts. ``clock`` is that of deadlines and of shares
    of the loop's time.

    With ``registry`` the bookie is announced there under its id, at ``advertised_host`` (default: ``host``) and
    ``advertised_port`` (default: where it listens), which another program may relay. The server
    starts and stops the bookie; it can be started again after :meth:`aclose` or :meth:`kill`.
    """

    turns: Turns
    unsent: Unsent

    def __init__(
        self,
        bookie: Bookie,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        registry: BookieRegistry | None = None,
        advertised_host: str | None = None,
        advertised_port: int | None = None,
        config: ServerConfig | None = None,
        sock: socket.socket | None = None,
        bind: Callable[[str, int], socket.socket] = bound_socket,
        clock: Clock = REAL_CLOCK,
    ) -> None:
        self.bookie = bookie
        self.host = host
        self.port = port
        self.config = config if config is not None else ServerConfig()
        self.notices = Notices(_log)
        self._registration: Registration | None = None
        if registry is not None:
            timeout_s = self.config.unregister_timeout_s
            self._registration = Registration(bookie, registry, lambda: self.address, timeout_s)
        self._advertised_host = advertised_host if advertised_host is not None else host
        self._advertised_port = advertised_port
        self._socket = sock
        self._bind = bind
        self._clock = clock
        self._listener: Listener | None = None
        #: What is waited for when the bookie has started, before it takes a request.
        self.before_serving: Callable[[], Awaitable[None]] | None = None
        self._deadlines: Deadlines | None = None
        self._connections: dict[ServedConnection, None] = {}
        self._all_gone = asyncio.Event()

    @property
    def address(self) -> BookieAddress:
        """Where clients find the bookie."""
        security = self.config.security
        return BookieAddress(
            self._advertised_host, self._advertised_port or self.port, () if security is None else security.extensions
        )

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    @property
    def connections_max(self) -> int:
        """How many may be; fewer than configured if the process may not open so many files."""
        return min(self.config.connections_max, connections_possible())

    async def start(self) -> None:
        """Start the bookie, listen, then announce it; ``OSError`` if the address is taken.

        Whatever fails leaves nothing running.
        """
        assert self._listener is None, f"the server of {self.bookie} is running"
        started = asyncio.Event()
        self.bookie.start(started.set)
        try:
            await started.wait()
            if self.before_serving is not None:
                await self.before_serving()
            sock, self._socket = self._socket, None
            self._listen(sock if sock is not None else self._bind(self.host, self.port))
            if self._registration is not None:
                await self._registration.begin()
        except BaseException:
            self.kill()
            raise

    def _listen(self, sock: socket.socket) -> None:
        config, connections_max = self.config, self.connections_max
        if connections_max < config.connections_max:
            _log.info(
                "bookie %s serves %d connections at a time, not %d: this process may not open more files",
                *(self.bookie.bookie_id, connections_max, config.connections_max),
            )
        self.turns = Turns(config.turn_s, self._clock)
        self.unsent = Unsent(config.unsent_bytes_max)
        self._deadlines = Deadlines(config, lambda: list(self._connections), self._clock)
        admission = Admission(connections_max, config.connections_per_source_max)
        self._listener = Listener(sock, admission, self.notices, config, partial(ServedConnection, self))
        self.port = self._listener.port

    async def announced(self) -> None:
        """Wait until the metadata store has the bookie's mode, as far as this server announces it."""
        if self._registration is not None:
            await self._registration.current()

    async def aclose(self) -> None:
        """Withdraw the announcement, answer what waits, save everything, close every connection. Idempotent."""
        listener = self._listener
        if listener is None:
            return
        if self._registration is not None:
            await self._registration.end()
        self._stop_listening()
        await listener.settled()
        if self.bookie.state is BookieState.RUNNING:
            stopped = asyncio.Event()
            self.bookie.shutdown(stopped.set)
            await stopped.wait()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            self._all_gone.clear()
            try:
                async with asyncio.timeout(self.config.close_timeout_s):
                    await self._all_gone.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
                await self._all_gone.wait()
        self._stop_deadlines()

    def kill(self, mode: CrashMode = CrashMode.PROCESS) -> None:
        """Die as a killed process does: connections break, nothing is answered. The announcement stays. Idempotent."""
        if self._registration is not None:
            self._registration.abandon()
        self._stop_listening()
        self._stop_deadlines()
        if self.bookie.state not in (BookieState.NEW, BookieState.STOPPED):
            self.bookie.crash(mode)
        for connection in list(self._connections):
            connection.abort()

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _stop_deadlines(self) -> None:
        if self._deadlines is not None:
            self._deadlines.stop()
            self._deadlines = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # ---------------------------------------------------------------------------------------------------- connections

    def admit(self, connection: ServedConnection) -> bool:
        """Whether a new connection may stay; called by the connection."""
        if self.bookie.state is not BookieState.RUNNING or self._listener is None:
            return False
        self._connections[connection] = None
        return True

    def dismiss(self, connection: ServedConnection) -> None:
        """Forget a connection; called by the connection. Idempotent."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_gone.set()
