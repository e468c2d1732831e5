"""One ZooKeeper session, made awaitable.

The ZooKeeper library works with threads of its own: one for the connection, one that completes requests, one that
reports watches. This module is the only one that knows. It submits requests through the library's asynchronous calls,
so no thread is blocked or made per request, and everything the threads have to say enters the event loop through
``call_soon_threadsafe``; what they still say after the loop was closed is dropped.

**What a lost connection means.** A request that was in flight may have been carried out or not. Requests that can be
repeated without harm are repeated until they get an answer or their time is up. A request that cannot be repeated ends
with :class:`~bkclient.errors.MetadataOutcomeUnknown`. A request that could not be sent within its time ends with
:class:`~bkclient.errors.MetadataStoreError`: that much is certain. To keep this certainty no request is handed to the
library while it is disconnected, for it would queue it and send it whenever the connection returns.

**What an expired session means.** The service forgot this client: its ephemeral znodes are gone and its watches too.
The library opens a new session by itself; whoever keeps ephemeral znodes is told through
:meth:`ZooKeeperSession.on_renewal`. Watches are woken at every loss of the connection, so that they read again and arm
again.

The service's own answers about znodes (no such node, node exists, bad version, not empty) pass through as the library's
exceptions, for the other modules of this driver to translate. All other failures are translated here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final, Self

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
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from bkclient import log
from bkclient.errors import ClientClosed, MetadataOutcomeUnknown, MetadataStoreError

__all__ = ["Operation", "ZooKeeperSession"]

Operation = Callable[[KazooClient], Any]
"""Starts one request and returns the library's asynchronous result."""

RETRY_DELAY_S: Final = 0.05
RECONNECT_DELAY_S_MAX: Final = 1.0

_ANSWERS: Final = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
_LOST: Final = (ConnectionLoss, SessionExpiredError, SessionMovedError, OperationTimeoutError)
"""Failures that leave the fate of a request open. A closed connection is a kind of expired session to the library."""


class ZooKeeperSession:
    """A session that survives lost connections and is replaced when it expires. Belongs to the loop it is opened in."""

    def __init__(self, hosts: str, *, session_timeout_s: float, operation_timeout_s: float, name: str) -> None:
        """Use :meth:`open`. ``name`` is what errors call the service."""
        self.session_timeout_s = session_timeout_s
        self.operation_timeout_s = operation_timeout_s
        self.name = name
        self._loop = asyncio.get_running_loop()
        handler = SequentialThreadingHandler()
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_s,
            handler=handler,
            connection_retry=KazooRetry(
                max_tries=-1, delay=RETRY_DELAY_S, max_delay=RECONNECT_DELAY_S_MAX, sleep_func=handler.sleep_func
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
        cls, hosts: str, *, session_timeout_s: float, connect_timeout_s: float, operation_timeout_s: float, name: str
    ) -> Self:
        """Open a session; :class:`~bkclient.errors.MetadataStoreError` if no server answers in the connect timeout."""
        session = cls(hosts, session_timeout_s=session_timeout_s, operation_timeout_s=operation_timeout_s, name=name)
        session._client.add_listener(session._on_state)
        session._client.start_async()
        try:
            async with asyncio.timeout(connect_timeout_s):
                await session._connected.wait()
        except TimeoutError as error:
            await session.aclose()
            raise MetadataStoreError(f"no ZooKeeper server of {name} answered within {connect_timeout_s} s") from error
        except BaseException:
            await session.aclose()
            raise
        return session

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
        """End the session and the library's threads; outstanding requests end with ``ClientClosed``. Idempotent.

        A service that does not answer delays this by at most the session timeout.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._connected.set()
        closed: asyncio.Future[None] = self._loop.create_future()
        thread = threading.Thread(
            target=self._close_in_thread, args=(closed,), name="bkclient-zookeeper-close", daemon=True
        )
        thread.start()
        try:
            await closed
        finally:
            for request in tuple(self._requests):
                if not request.done():
                    request.set_exception(ConnectionLoss())
        thread.join()

    def _close_in_thread(self, closed: asyncio.Future[None]) -> None:
        outcome: Exception | None = None
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # noqa: BLE001 - carried over to the loop
            outcome = error
        self._post(_finish, closed, outcome)


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.successful():
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)


def _finish(closed: asyncio.Future[None], error: Exception | None) -> None:
    if closed.done():
        return
    if error is None:
        closed.set_result(None)
    else:
        failure = MetadataStoreError(f"the ZooKeeper session did not end cleanly: {error}")
        failure.__cause__ = error
        closed.set_exception(failure)
