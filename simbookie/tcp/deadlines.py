"""Looking at every connection from time to time, so that no wait of any of them is without an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from simbookie.tcp.config import ServerConfig
from simbookie.tcp.connection import ServedConnection
from simbookie.tcp.turns import REAL_CLOCK, Clock

__all__ = ["Deadlines"]

_LONGEST_INTERVAL_S: Final = 1.0


class Deadlines:
    """Lets the connections of a server look at their deadlines once a second, and more often where one is short."""

    def __init__(
        self, config: ServerConfig, connections: Callable[[], Iterable[ServedConnection]], clock: Clock = REAL_CLOCK
    ) -> None:
        shortest = min(config.handshake_timeout_s, config.frame_timeout_s, config.answers_timeout_s)
        self._interval_s = min(_LONGEST_INTERVAL_S, shortest / 4)
        self._connections = connections
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._interval_s, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._clock()
        for connection in self._connections():
            connection.look_at_deadlines(now)
        self._timer = self._loop.call_later(self._interval_s, self._look)
