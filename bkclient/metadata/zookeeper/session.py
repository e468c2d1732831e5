"""One ZooKeeper session, made awaitable.

The ZooKeeper library works with a thread for the connection (:mod:`~bkclient.metadata.zookeeper.handler`). This module and
that one are the only ones that know. Requests are submitted through the library's asynchronous calls, so no thread is
blocked or made per request, and everything the thread has to say enters the event loop through ``call_soon_threadsafe``;
what it still says after the loop was closed is dropped.

**What a lost connection means.** A request that was in flight may have been carried out or not. Requests that can be
repeated without harm are repeated until they get an answer or their time is up. A request that cannot be repeated ends
with :class:`~bkclient.errors.MetadataOutcomeUnknown`. A request that could not be sent within its time ends with
:class:`~bkclient.errors.MetadataStoreError`: that much is certain. To keep this certainty no request is handed to the
library while it is disconnected, for it would queue it and send it whenever the connection returns.

**What an expired session means.** The service forgot this client: its ephemeral znodes are gone and its watches too.
The library opens a new session by itself; owners of ephemeral znodes are told through
:meth:`ZooKeeperSession.on_renewal`. Watches are woken at every loss of the connection, so that they read again and arm
again.

The service's own answers about znodes (no such node, node exists, bad version, not empty) pass through as the library's
exceptions, for the other modules of this driver to translate. All other failures are translated here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.states import KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from bkclient.errors import ClientClosed, MetadataOutcomeUnknown, MetadataStoreError
from bkclient.metadata.zookeeper.attempts import REFUSAL_PATIENCE_S, Attempts
from bkclient.metadata.zookeeper.handler import SessionHandler
from bkclient.metadata.zookeeper.library_log import LibraryLog
from bkclient.observability import log

__all__ = ["CLOSE_TIMEOUT_S", "Operation", "ZooKeeperSession"]

Operation = Callable[[KazooClient], Any]
"""Starts one request and returns the library's asynchronous result."""

CLOSE_TIMEOUT_S: Final = 2.0
"""How long the service may take to confirm the end of a session. Then the connection is cut."""

ABORT_TIMEOUT_S: Final = 1.0
"""How long the library may take to notice that its connection was cut. Then its thread is left to itself."""

THREAD_END_S: Final = 1.0

RETRY_DELAY_S: Final = 0.05
RECONNECT_DELAY_S_MAX: Final = 1.0

_ANSWERS: Final = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
_LOST: Final = (ConnectionLoss, SessionExpiredError, SessionMovedError, OperationTimeoutError)
"""Failures that leave the fate of a request open. A closed connection is a kind of expired session to the library."""

T = TypeVar("T")


class ZooKeeperSession:
    """A session that survives lost connections and is replaced when it expires. Belongs to the loop it is opened in."""

    def __init__(self, hosts: str, *, session_timeout_s: float, operation_timeout_s: float, name: str) -> None:
        """Use :meth:`open`. ``name`` is what errors call the service."""
        self.session_timeout_s = session_timeout_s
        self.operation_timeout_s = operation_timeout_s
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._servers = tuple(hosts.split(","))
        self._attempts: Attempts | None = None
        self._attempted = asyncio.Event()
        self._handler = SessionHandler(self._on_attempt, self._on_failure)
        self._log = LibraryLog()
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_s,
            handler=self._handler,
            logger=self._log,
            connection_retry=KazooRetry(
                max_tries=-1, delay=RETRY_DELAY_S, max_delay=RECONNECT_DELAY_S_MAX, sleep_func=self._handler.sleep_func
            ),
        )
        self._connected = asyncio.Event()
        self.session_id: int | None = None
        """By which the service knew this session when it last had a connection."""
        self._is_closed = False
        self._is_lost = False
        self._requests: dict[asyncio.Future[Any], None] = {}
        self._wakers: dict[str, dict[asyncio.Event, None]] = {}
        self._renewal_listeners: list[Callable[[], None]] = []

    @classmethod
    async def open(
        cls,
        hosts: str,
        *,
        session_timeout_s: float,
        connect_timeout_s: float | None,
        operation_timeout_s: float,
        name: str,
    ) -> Self:
        """Open a session; :class:`~bkclient.errors.MetadataStoreError`, which says why, if no server answers.

        Servers are tried for ``connect_timeout_s``. With ``None`` it is the session timeout, and the call gives up
        earlier where all servers refuse (:data:`~bkclient.metadata.zookeeper.attempts.REFUSAL_PATIENCE_S`) or no name
        resolves.
        """
        session = cls(hosts, session_timeout_s=session_timeout_s, operation_timeout_s=operation_timeout_s, name=name)
        try:
            await session._connect(connect_timeout_s)
        except BaseException:
            await session.aclose()
            raise
        return session

    async def _connect(self, timeout_s: float | None) -> None:
        attempts = self._attempts = Attempts(self._servers, self._loop.time)
        limit_s = self.session_timeout_s if timeout_s is None else timeout_s
        self._client.add_listener(self._on_state)
        self._client.start_async()
        resolving = self._loop.create_task(self._resolve(attempts), name=f"resolve the servers of {self.name}")
        patience = self._loop.call_later(REFUSAL_PATIENCE_S, self._attempted.set)
        try:
            async with asyncio.timeout(limit_s):
                while not self._connected.is_set():
                    self._attempted.clear()
                    if attempts.is_hopeless and timeout_s is None:
                        raise MetadataStoreError(f"no ZooKeeper server of {self.name} can be connected to: {attempts}")
                    await self._attempted.wait()
        except TimeoutError as error:
            raise MetadataStoreError(
                f"no ZooKeeper server of {self.name} answered within {limit_s} s: {attempts}"
            ) from error
        finally:
            self._attempts = None
            patience.cancel()
            resolving.cancel()

    async def _resolve(self, attempts: Attempts) -> None:
        """Learn which names have no address: the library tries again and again without telling anybody."""
        waiting = {
            _in_thread(self._loop, "bkclient-zookeeper-resolve", _resolver(server)): server
            for server in self._servers
            if not _is_numeric(server)
        }
        for future, server in waiting.items():
            try:
                await future
            except OSError as error:
                attempts.not_resolved(server, error)
                self._attempted.set()

    def _on_attempt(self, server: str, address: str, error: OSError | None) -> None:
        self._post(self._note_attempt, server, address, error)

    def _note_attempt(self, server: str, address: str, error: OSError | None) -> None:
        if self._attempts is None:
            return
        if error is None:
            self._attempts.accepted(server, address)
        else:
            self._attempts.failed(server, address, error)
        self._attempted.set()

    def _on_failure(self, error: BaseException) -> None:
        self._log.error("a server of this session sent what cannot be understood: %s", error)

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands as far as is known here; false from the loss of one to the next."""
        return self._connected.is_set() and not self._is_closed

    def check_open(self, *, ledger_id: int | None = None) -> None:
        """:class:`~bkclient.errors.ClientClosed` after :meth:`aclose`."""
        if self._is_closed:
            raise ClientClosed(f"the session with {self.name} is closed", ledger_id=ledger_id)

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def get(
        self, path: str, *, watch: bool = False, sync: bool = False, ledger_id: int | None = None
    ) -> tuple[bytes, ZnodeStat]:
        """Data and state of a znode.

        With ``sync`` the server first catches up with the leader, which makes the read linearizable; both requests go
        out together, and the service keeps their order.
        """

        def start(client: KazooClient) -> Any:
            if sync:
                client.sync_async(path)
            return client.get_async(path, watch=self._on_event if watch else None)

        data, stat = await self.request(start, ledger_id=ledger_id)
        return data, stat

    async def exists(self, path: str, *, watch: bool = False) -> ZnodeStat | None:
        """State of a znode, ``None`` if there is none."""
        return await self.request(lambda client: client.exists_async(path, watch=self._on_event if watch else None))

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Names of a znode's children, sorted."""
        names = await self.request(
            lambda client: client.get_children_async(path, watch=self._on_event if watch else None)
        )
        return sorted(names)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Make a znode; its name. Repeated after a lost connection, so ``NodeExistsError`` may mean one's own."""
        name = await self.request(
            lambda client: client.create_async(path, data, ephemeral=ephemeral, sequence=sequence), is_write=True
        )
        return str(name)

    async def delete(self, path: str, *, ledger_id: int | None = None) -> None:
        """Remove a znode of whatever version. Repeated after a lost connection, so ``NoNodeError`` may be one's own."""
        await self.request(lambda client: client.delete_async(path), is_write=True, ledger_id=ledger_id)

    def delete_later(self, path: str) -> None:
        """Ask for a removal and do not wait for it. Without a connection nothing is asked."""
        if self._connected.is_set() and not self._is_closed:
            self._client.delete_async(path)

    async def request(
        self, start: Operation, *, is_write: bool = False, is_repeatable: bool = True, ledger_id: int | None = None
    ) -> Any:
        """Carry out one request, as the docstring of the module says.

        ``is_repeatable`` tells that a second execution does no harm. ``is_write`` tells that giving up after a request
        was sent leaves its outcome unknown. ``ledger_id`` is for the errors.
        """
        deadline = self._loop.time() + self.operation_timeout_s
        was_sent = False
        while True:
            await self._until_connected(deadline, was_sent=was_sent and is_write, ledger_id=ledger_id)
            was_sent = True
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._submit(start)
            except _ANSWERS:
                raise
            except (TimeoutError, *_LOST) as error:
                self.check_open(ledger_id=ledger_id)
                if not is_repeatable or self._loop.time() >= deadline:
                    kind = MetadataOutcomeUnknown if is_write else MetadataStoreError
                    raise kind(f"{self.name} did not answer: {type(error).__name__}", ledger_id=ledger_id) from error
            except Exception as error:  # whatever the library's threads hand over stops here
                raise MetadataStoreError(
                    f"{self.name} refused the request: {type(error).__name__} {error}", ledger_id=ledger_id
                ) from error
            await asyncio.sleep(RETRY_DELAY_S)

    async def _until_connected(self, deadline: float, *, was_sent: bool, ledger_id: int | None) -> None:
        self.check_open(ledger_id=ledger_id)
        try:
            async with asyncio.timeout_at(deadline):
                await self._connected.wait()
        except TimeoutError as error:
            kind = MetadataOutcomeUnknown if was_sent else MetadataStoreError
            raise kind(
                f"there was no connection with {self.name} for {self.operation_timeout_s} s", ledger_id=ledger_id
            ) from error
        self.check_open(ledger_id=ledger_id)

    async def _submit(self, start: Operation) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._requests[future] = None
        future.add_done_callback(lambda done: self._requests.pop(done, None))
        start(self._client).rawlink(lambda result: self._post(_settle, future, result))
        return await future

    # ---- watches and renewal ----------------------------------------------------------------------------------------

    def add_waker(self, path: str, waker: asyncio.Event) -> None:
        """Set ``waker`` whenever a watch of ``path`` fires or may have been lost."""
        self._wakers.setdefault(path, {})[waker] = None

    def remove_waker(self, path: str, waker: asyncio.Event) -> None:
        """Undo :meth:`add_waker`. Idempotent."""
        wakers = self._wakers.get(path, {})
        wakers.pop(waker, None)
        if not wakers:
            self._wakers.pop(path, None)

    def on_renewal(self, listener: Callable[[], None]) -> None:
        """Call ``listener``, in the loop, each time a new session has taken the place of an expired one."""
        self._renewal_listeners.append(listener)

    def _on_event(self, event: WatchedEvent) -> None:
        # Always this one bound method, which the library compares by equality: a watch that is armed twice fires once.
        self._post(self._wake, event.path)

    def _wake(self, path: str | None) -> None:
        # An event without a path reports the state of the connection, and that all watches are gone.
        watched = tuple(self._wakers) if path is None else (path,)
        for name in watched:
            for waker in self._wakers.get(name, {}):
                waker.set()

    def _on_state(self, state: str) -> None:
        self._post(self._change_state, state)

    def _change_state(self, state: str) -> None:
        if state != KazooState.CONNECTED:
            self._log_loss(state)
            self._connected.clear()
            self._is_lost = self._is_lost or state == KazooState.LOST
            return
        if not self._is_closed:
            log.METADATA_CONNECTED(name=self.name)
        identity = self._client.client_id
        self.session_id = self.session_id if identity is None else int(identity[0])
        self._connected.set()
        self._attempted.set()
        if self._is_lost:
            self._is_lost = False
            for listener in self._renewal_listeners:
                listener()

    def _log_loss(self, state: str) -> None:
        if self._is_closed:
            return
        if state == KazooState.LOST:
            log.METADATA_SESSION_LOST(name=self.name)
        elif self._connected.is_set():
            log.METADATA_DISCONNECTED(name=self.name)

    def _post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call back in the loop, from any thread."""
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    # ---- end --------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the session and the library's thread; outstanding requests end with ``ClientClosed``. Idempotent.

        A service that does not answer delays this by at most :data:`CLOSE_TIMEOUT_S`, or the session timeout if that is
        shorter; it then ends the session by itself after the session timeout. Nothing is waited for without a
        connection.
        """
        if self._is_closed:
            return
        limit_s = min(CLOSE_TIMEOUT_S, self.session_timeout_s) if self.is_connected else 0.0
        self._is_closed = True
        self._connected.set()
        stopped = _in_thread(self._loop, "bkclient-zookeeper-close", self._stop_library)
        # Not of this task: if that is cancelled the session still ends in order if it can.
        cut = self._loop.call_later(limit_s, self._cut, limit_s)
        stopped.add_done_callback(lambda _: cut.cancel())
        try:
            await asyncio.wait([stopped], timeout=limit_s + ABORT_TIMEOUT_S)
        finally:
            for request in tuple(self._requests):
                if not request.done():
                    request.set_exception(ConnectionLoss())

    def _cut(self, limit_s: float) -> None:
        if limit_s > 0:
            log.METADATA_SESSION_ABANDONED(name=self.name, seconds=limit_s)
        self._handler.abort()

    def _stop_library(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception:  # noqa: BLE001 - it ends in any case, and nothing can be done about it
            self._log.exception("the library did not end in order")


def _in_thread(loop: asyncio.AbstractEventLoop, name: str, function: Callable[[], T]) -> asyncio.Future[T]:
    """The outcome of ``function``, which may block for longer than anybody waits for it."""
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # there may be no waiter any more

    def run() -> None:
        try:
            result, error = function(), None
        except Exception as raised:  # noqa: BLE001 - it is raised at the waiter
            result, error = None, raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, result, error)

    def finish(result: Any, error: Exception | None) -> None:
        thread.join(THREAD_END_S)  # it has nothing more to do
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return future


def _is_numeric(server: str) -> bool:
    try:
        ipaddress.ip_address(server.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def _resolver(server: str) -> Callable[[], object]:
    host, _, port = server.rpartition(":")
    return lambda: socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.successful():
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)
