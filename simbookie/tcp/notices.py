"""Warnings about clients that clients cannot turn into a flood."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

__all__ = ["Notices"]

#: How often the same is said of one source, and how many sources are remembered for that.
_REPEAT_S: Final = 600.0
_SOURCES_MAX: Final = 1_000
#: How much is said at all: so many lines in so many seconds.
_LINES_MAX: Final = 30
_WINDOW_S: Final = 60.0


class Notices:
    """Writes warnings to ``log``: each once per source in ten minutes, and 30 in a minute altogether.

    What is held back is logged at DEBUG, and how much it was is said with the next warning.
    """

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._window_began = float("-inf")
        self._lines = 0
        self._held_back = 0

    def warn(self, source: str, message: str, *arguments: object) -> None:
        """Log ``message % arguments``; ``source`` and ``message`` together are what is said once."""
        now, key = self._clock(), (source, message)
        told_at = self._told.get(key)
        if told_at is not None and now - told_at < _REPEAT_S:
            self._log.debug(message, *arguments)
            return
        if now - self._window_began >= _WINDOW_S:
            self._window_began, self._lines = now, 0
        if self._lines >= _LINES_MAX:
            self._held_back += 1
            self._log.debug(message, *arguments)
            return
        self._lines += 1
        self._told[key] = now
        self._told.move_to_end(key)
        if len(self._told) > _SOURCES_MAX:
            self._told.popitem(last=False)
        if self._held_back:
            self._log.warning("%d warnings about clients were held back; DEBUG shows them", self._held_back)
            self._held_back = 0
        self._log.warning(message, *arguments)
