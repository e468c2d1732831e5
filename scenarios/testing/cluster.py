"""A cluster over real TCP in a thread of this process: for tests of programs that have to run as they are.

Metadata are kept by the embedded ZooKeeper, so any client reaches the cluster by its URI: of any event loop, thread, process or
language. Everything is in memory, on the loopback interface, and gone in the end.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from bkclient.metadata.opening import open_store
from simbookie.cluster import LocalCluster
from simbookie.zookeeper.embedded import EmbeddedZooKeeper

__all__ = ["TcpCluster"]

T = TypeVar("T")

_SESSION_S: Final = 10.0


class TcpCluster:
    """``bookies`` bookies and a ZooKeeper in a thread of their own; a context manager.

    Every method may be called from any thread, and waits until what it says is done. From a coroutine they hold up the event loop
    for some milliseconds, which is meant: the fault is there when the call returns. ``KeyError`` for a bookie that there is not,
    ``RuntimeError`` outside the block.
    """

    def __init__(self, bookies: int = 3) -> None:
        if not 1 <= bookies <= 100:
            raise ValueError(f"bookies must be between 1 and 100, got {bookies}")
        self._size = bookies
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._cluster: LocalCluster | None = None
        self._uri = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal("asyncio"))
            zookeeper = EmbeddedZooKeeper()
            stack.enter_context(self._portal.wrap_async_context_manager(zookeeper))
            self._uri = zookeeper.metadata_uri()
            chance = random.Random()  # noqa: S311  ids of ledgers are no secret
            store = self._portal.call(self._open, chance)
            stack.callback(self._portal.call, store.aclose)
            self._cluster = LocalCluster(store, self._size)
            stack.enter_context(self._portal.wrap_async_context_manager(self._cluster))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal = self._cluster = None
        self._stack.close()

    async def _open(self, chance: random.Random) -> Any:
        return await open_store(self._uri, rng=chance, session_timeout_s=_SESSION_S, initialise=True)

    @property
    def uri(self) -> str:
        """The metadata URI, ``zk://127.0.0.1:...``."""
        return self._uri

    @property
    def bookies(self) -> tuple[str, ...]:
        """The ids of all bookies, stopped ones included."""
        return self._running().bookie_ids

    def kill(self, bookie_id: str) -> None:
        """End a bookie as ``kill -9`` does: connections break, what it had not synced is gone."""
        self._call(self._running().kill, bookie_id)

    def restart(self, bookie_id: str) -> None:
        """Start a bookie that was killed, at its old address with what its disk kept."""
        self._call(self._running().restart, bookie_id)

    def add_bookie(self) -> str:
        """Start one more bookie; its id."""
        return self._call(self._running().add)

    def _running(self) -> LocalCluster:
        if self._cluster is None:
            raise RuntimeError("the cluster does not run; use it inside its 'with' block")
        return self._cluster

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        assert self._portal is not None, "it runs"
        return self._portal.call(function, *args)
