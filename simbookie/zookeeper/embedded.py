"""A ZooKeeper for development and tests inside this process: no Java, nothing on disk, there in milliseconds.

It speaks ZooKeeper's own client protocol, so what works with ZooKeeper works with it: this package's driver, ``bk``, kazoo,
programs in Java. What it keeps ends with the process, and there is only one of it: never use it for data that matters.

    async with EmbeddedZooKeeper() as zookeeper:
        async with bkclient.connect(zookeeper.metadata_uri()) as bk: ...

It leaves out replication, TLS, SASL, znodes with a time to live, reconfiguration and ZooKeeper's own quotas. Requests for
these end with UNIMPLEMENTED.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Self

from simbookie.tcp.admission import Admission, connections_possible
from simbookie.tcp.listener import Listener, bound_socket
from simbookie.tcp.notices import Notices
from simbookie.zookeeper.connection import Connection, ConnectionLimits
from simbookie.zookeeper.service import Limits, ZooKeeperService

__all__ = ["EmbeddedZooKeeper"]

_log = logging.getLogger(__name__)

_CONTAINER_INTERVAL_S: Final = 60.0


class EmbeddedZooKeeper:
    """A ZooKeeper server in the running event loop; an asynchronous context manager.

    It listens on ``host:port``; port 0 lets the system choose one, which is kept. It can be started again after :meth:`aclose`,
    with the same znodes and the sessions that were open; a new object starts empty. ``limits`` bounds what it keeps,
    ``connection_limits`` what connections take. ``wall_clock`` gives the time of day in seconds for the times of znodes,
    ``random_bytes`` the passwords of sessions.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
        connection_limits: ConnectionLimits | None = None,
        wall_clock: Callable[[], float] = time.time,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.host = host
        self.limits = connection_limits or ConnectionLimits()
        self.service = ZooKeeperService(
            now=lambda: asyncio.get_running_loop().time(),
            wall_clock=wall_clock,
            random_bytes=random_bytes,
            limits=limits or Limits(),
        )
        self._port = port
        self.notices = Notices(_log)
        self._listener: Listener | None = None
        self._connections: dict[Connection, None] = {}
        self._all_gone = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None
        self._containers: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port; ``RuntimeError`` before the first start if none was given."""
        if self._port == 0:
            raise RuntimeError("the port is chosen when the server is started")
        return self._port

    @property
    def address(self) -> str:
        """``host:port``, as ZooKeeper clients want it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._listener is not None

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def metadata_uri(self, root: str = "/ledgers", *, manager: str | None = None) -> str:
        """The metadata service URI of a BookKeeper cluster at ``root``; ``manager`` as in ``zk+hierarchical``."""
        scheme = "zk" if manager is None else f"zk+{manager}"
        return f"{scheme}://{self.address}{root}"

    async def start(self) -> None:
        """Listen and serve; ``OSError`` if the address cannot be used. Nothing happens if it runs."""
        if self._listener is not None:
            return
        admission = Admission(
            min(self.limits.connections_max, connections_possible()), self.limits.connections_per_source_max
        )
        sock = bound_socket(self.host, self._port)
        self._listener = Listener(sock, admission, self.notices, self.limits, partial(Connection, self))
        self._port = self._listener.port
        self.service.renew_sessions()
        self._expire()
        self._remove_empty_containers()

    async def aclose(self) -> None:
        """Stop listening and end every connection; sessions and znodes stay for the next start. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        for timer in (self._expiry, self._containers):
            if timer is not None:
                timer.cancel()
        listener.close()
        await listener.settled()
        for connection in list(self._connections):
            connection.end()
        if self._connections:
            self._all_gone.clear()
            await self._all_gone.wait()  # a connection that does not end in its time is broken

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ---- connections and time ---------------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Whether a connection may stay; called by the connection."""
        if self._listener is None:
            return False
        self._connections[connection] = None
        return True

    def dismiss(self, connection: Connection) -> None:
        """Forget a connection; called by the connection. Idempotent."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_gone.set()

    def session_changed(self) -> None:
        """Look anew which session expires next; called by connections."""
        if self._listener is not None:
            self._expire()

    def _expire(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        deadline = self.service.expire()
        loop = asyncio.get_running_loop()
        self._expiry = None if deadline is None else loop.call_at(deadline, self._expire)

    def _remove_empty_containers(self) -> None:
        self.service.remove_empty_containers()
        self._containers = asyncio.get_running_loop().call_later(_CONTAINER_INTERVAL_S, self._remove_empty_containers)
