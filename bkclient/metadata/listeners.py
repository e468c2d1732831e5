"""Calling listeners: from the loop, in order, and never after they were cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["ListenerCalls"]

T = TypeVar("T")


class ListenerCalls(Generic[T]):
    """One listener and the loop it lives in. Compared by identity."""

    __slots__ = ("_callback", "_is_cancelled", "_loop")

    def __init__(self, callback: Callable[[T], None]) -> None:
        """Bind ``callback`` to the running loop."""
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._is_cancelled = False

    def notify(self, value: T) -> None:
        """Have the callback called with ``value`` in a later turn of the loop, after all earlier notifications.

        An exception of the callback goes to the loop's exception handler and stops nothing else. A loop that is closed
        has no listener left; what outlives it, such as a named service, may still notify.
        """
        if not self._loop.is_closed():
            self._loop.call_soon(self._deliver, value)

    def cancel(self) -> None:
        """Call the callback no more, not even with values that are under way."""
        self._is_cancelled = True

    def _deliver(self, value: T) -> None:
        if not self._is_cancelled:
            self._callback(value)
