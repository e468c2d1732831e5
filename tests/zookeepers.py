"""ZooKeeper in both forms behind one interface, so that tests which need a ZooKeeper run on each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from simbookie.zookeeper import EmbeddedZooKeeper

__all__ = ["AnyZooKeeper", "EmbeddedInThread"]

T = TypeVar("T")


class AnyZooKeeper(Protocol):
    """What a test may do with a ZooKeeper server."""

    @property
    def port(self) -> int: ...

    @property
    def address(self) -> str: ...

    @property
    def is_running(self) -> bool: ...

    def metadata_uri(self, root: str = "/ledgers", *, manager: str = "hierarchical") -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class EmbeddedInThread:
    """An embedded ZooKeeper in an event loop and thread of its own, which can stand still and can be stopped like a process."""

    def __init__(
        self, new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop, **options: Any
    ) -> None:
        self._options = options
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="embedded ZooKeeper", daemon=True)
        self._may_run = threading.Event()
        self._may_run.set()
        self._thread.start()
        self.server = self.call(self._make())

    async def _make(self) -> EmbeddedZooKeeper:
        return EmbeddedZooKeeper(**self._options)

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def is_running(self) -> bool:
        return self.server.is_running

    def metadata_uri(self, root: str = "/ledgers", *, manager: str = "hierarchical") -> str:
        return self.server.metadata_uri(root, manager=manager)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def start(self) -> None:
        self.call(self.server.start())

    def stop(self) -> None:
        self.resume()
        self.call(self.server.aclose())

    def pause(self) -> None:
        self._may_run.clear()
        self._loop.call_soon_threadsafe(self._may_run.wait)

    def resume(self) -> None:
        self._may_run.set()

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
