"""Steps that wait, one after the other, with callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from simbookie.storage.base import DurableCallback, StorageError

__all__ = ["Sequence", "WaitingStep", "ignore_outcome"]

WaitingStep = Callable[[DurableCallback], None]
"""``(on_done)``: do something, then call back with any token. May call back before it returns."""


def ignore_outcome(_token: object, _error: StorageError | None) -> None:
    """The callback of what nobody waits for."""


class Sequence:
    """Starts a step when the one before it is done, and calls back after the last, or with the first error.

    ``steps`` is asked for a step when it is due. Begins in a later turn of the loop.
    """

    __slots__ = ("_handle", "_is_cancelled", "_is_running", "_on_done", "_steps", "_token", "_waits")

    def __init__(self, steps: Iterable[WaitingStep], on_done: DurableCallback, token: object) -> None:
        self._steps = iter(steps)
        self._on_done = on_done
        self._token = token
        self._waits = False
        self._is_running = False
        self._is_cancelled = False
        self._handle = asyncio.get_running_loop().call_soon(self._go_on)

    def cancel(self) -> None:
        """Start no further step, and do not call back."""
        self._is_cancelled = True
        self._handle.cancel()

    def _go_on(self) -> None:
        # a loop, so that steps that are done at once do not nest
        self._is_running = True
        while not (self._waits or self._is_cancelled):
            step = next(self._steps, None)
            if step is None:
                self._on_done(self._token, None)
                return
            self._waits = True
            step(self._step_done)
        self._is_running = False

    def _step_done(self, _token: object, error: StorageError | None) -> None:
        if self._is_cancelled:
            return
        if error is not None:
            self._is_cancelled = True
            self._on_done(self._token, error)
            return
        self._waits = False
        if not self._is_running:
            self._go_on()
