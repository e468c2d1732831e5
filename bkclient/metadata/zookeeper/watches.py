"""Following something that is stored in ZooKeeper.

A ZooKeeper watch fires once, says only that something changed, and is lost with the connection. So everything that is
followed has one task, which reads, arming the watch with the same request, reports what it read if that is new, and
waits to be woken: by the watch, by a loss of the connection, or by a new listener. Nothing can change between a read
and its watch, so the last value is always reported; values in between may be skipped.

A read that fails is repeated after 200 ms (NR-7), for as long as anybody listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from bkclient.errors import MetadataSerializationError, MetadataStoreError
from bkclient.metadata.base import Cancel
from bkclient.metadata.listeners import ListenerCalls
from bkclient.metadata.zookeeper.session import ZooKeeperSession

__all__ = ["REREAD_DELAY_S", "Watched"]

REREAD_DELAY_S: Final = 0.2

T = TypeVar("T")
_log = logging.getLogger(__name__)
_NEVER: Final = object()


class Watched(Generic[T]):
    """One followed thing and its listeners.

    ``read`` returns the present value with a stamp that differs between any two values, and arms watches on ``paths``.
    ``on_idle`` is called when the last listener has gone; then this object is done with.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        paths: tuple[str, ...],
        read: Callable[[], Awaitable[tuple[object, T]]],
        on_idle: Callable[[], object],
    ) -> None:
        self._session = session
        self._paths = paths
        self._read = read
        self._on_idle = on_idle
        self._stamps: dict[ListenerCalls[T], object] = {}
        self._wake = asyncio.Event()
        for path in paths:
            session.add_waker(path, self._wake)
        self._task = asyncio.get_running_loop().create_task(self._follow(), name=f"watch {paths[0]}")

    def add(self, callback: Callable[[T], None]) -> Cancel:
        """Report the present value and every later one to ``callback``, until the returned function is called."""
        listener = ListenerCalls(callback)
        self._stamps[listener] = _NEVER
        self._wake.set()

        def cancel() -> None:
            listener.cancel()
            if self._stamps.pop(listener, None) is not None and not self._stamps:
                self._end()

        return cancel

    async def aclose(self) -> None:
        """Drop all listeners and wait for the task to end. Idempotent."""
        for listener in self._stamps:
            listener.cancel()
        self._stamps.clear()
        self._end()
        await asyncio.wait([self._task])

    def _end(self) -> None:
        for path in self._paths:
            self._session.remove_waker(path, self._wake)
        self._task.cancel()
        self._on_idle()

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            try:
                stamp, value = await self._read()
            except MetadataSerializationError:
                # Reading again would give the same; repairing the value wakes the watch.
                _log.exception("%s holds something that cannot be read", self._paths[0])
            except MetadataStoreError as error:
                _log.warning("cannot follow %s, trying again: %s", self._paths[0], error)
                await asyncio.sleep(REREAD_DELAY_S)
                continue
            else:
                self._report(stamp, value)
            await self._wake.wait()

    def _report(self, stamp: object, value: T) -> None:
        for listener, seen in self._stamps.items():
            if seen != stamp:
                self._stamps[listener] = stamp
                listener.notify(value)
