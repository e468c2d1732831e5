"""Asking another replica while the answers of those asked so far are late (R-11)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from bkclient._backoff import Backoff
from bkclient.observability.stats import SPECULATIVE_READS, ClientStats

__all__ = ["LateTimer"]


class _Call(Protocol):
    """A read that can ask further replicas."""

    def ask_another(self) -> bool:
        """No answer for the whole delay: ask another replica. False if none is left, or none is needed."""
        ...

    def on_defect(self, error: Exception) -> None:
        """Asking raised ``error``; see :func:`~bkclient._client.defects.ends_operation`."""
        ...


class LateTimer:
    """Has a call ask one replica more after each of growing ``delays``, until it is stopped or none is left."""

    __slots__ = ("_call", "_delays", "_loop", "_stats", "_timer")

    def __init__(
        self, call: _Call, delays: Backoff, loop: asyncio.AbstractEventLoop, stats: ClientStats | None
    ) -> None:
        self._call = call
        self._delays = delays
        self._loop = loop
        self._stats = stats
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """The first requests were sent; a first delay of 0 asks no other."""
        delay_s = self._delays.first_s
        if delay_s > 0:
            self._timer = self._loop.call_later(delay_s, self.on_late, delay_s)

    def on_late(self, delay_s: float) -> None:
        """``delay_s`` seconds have passed without an answer."""
        self._timer = None
        try:
            if not self._call.ask_another():
                return
            if self._stats is not None:
                self._stats.event(SPECULATIVE_READS)
            delay_s = self._delays.after(delay_s)
            self._timer = self._loop.call_later(delay_s, self.on_late, delay_s)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the call
            self._call.on_defect(error)

    def stop(self) -> None:
        """Stop the timer. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
