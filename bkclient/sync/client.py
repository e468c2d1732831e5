"""A client whose calls wait, and the thread that its event loop runs in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import ParamSpec

from anyio.from_thread import start_blocking_portal

import bkclient
from bkclient import BookKeeper, PendingClient
from bkclient.errors import ArgumentError
from bkclient.log import Logs
from bkclient.sync.bridge import Bridge, SyncHandle, blocking, check_thread, iterating, opening
from bkclient.sync.ledgers import SyncAdvancedLedgerWriter, SyncLedgerReader, SyncLedgerWriter
from bkclient.sync.logs import SyncLogs

__all__ = ["PendingSyncClient", "SyncBookKeeper", "connect"]

P = ParamSpec("P")


class SyncBookKeeper(SyncHandle[BookKeeper]):
    """A client from :func:`bkclient.sync.connect`, for any number of threads; see :class:`bkclient.BookKeeper`."""

    create_ledger = opening(BookKeeper.create_ledger, SyncLedgerWriter)
    create_advanced_ledger = opening(BookKeeper.create_advanced_ledger, SyncAdvancedLedgerWriter)
    open_ledger = opening(BookKeeper.open_ledger, SyncLedgerReader)
    delete_ledger = blocking(BookKeeper.delete_ledger)
    ledger_metadata = blocking(BookKeeper.ledger_metadata)
    is_closed = blocking(BookKeeper.is_closed)
    list_ledgers = iterating(BookKeeper.list_ledgers, 100)
    bookies = blocking(BookKeeper.bookies)

    @property
    def logs(self) -> SyncLogs:
        """The logs of the cluster."""
        return SyncLogs(self._bridge, Logs(self._handle))


class PendingSyncClient:
    """A client that is not connected yet, from :func:`bkclient.sync.connect`: enter it by ``with``, or call :meth:`open`."""

    def __init__(self, connecting: Callable[[], PendingClient]) -> None:
        self._connecting = connecting
        self._stack: ExitStack | None = None

    def open(self) -> SyncBookKeeper:
        """Connect, without a block; :meth:`close` ends it."""
        return self.__enter__()

    def close(self) -> None:
        """End the client and its thread; calls under way raise :class:`~bkclient.errors.ClientClosed`. Idempotent."""
        if self._stack is not None:
            self._stack.close()

    def __enter__(self) -> SyncBookKeeper:
        check_thread()
        if self._stack is not None:
            raise ArgumentError("a client can be entered once; make another one")
        with ExitStack() as stack:
            bridge = Bridge(stack.enter_context(start_blocking_portal("asyncio")))

            async def open_client() -> BookKeeper:
                threading.current_thread().name = "bkclient.sync"  # which the oldest anyio cannot be asked for
                return await self._connecting()

            client = bridge.call(open_client)
            stack.callback(_end, bridge, client)
            self._stack = stack.pop_all()
        return SyncBookKeeper(bridge, client)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end(bridge: Bridge, client: BookKeeper) -> None:
    if not bridge.is_closed:
        try:
            bridge.call(client.aclose)
        finally:
            bridge.is_closed = True


def _sync(connecting: Callable[P, PendingClient]) -> Callable[P, PendingSyncClient]:
    def connect(*args: P.args, **kwargs: P.kwargs) -> PendingSyncClient:
        """A client whose calls wait; arguments as of :func:`bkclient.connect`."""
        return PendingSyncClient(lambda: connecting(*args, **kwargs))

    return connect


connect = _sync(bkclient.connect)
