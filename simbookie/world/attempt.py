"""An attempt to connect over the simulated network."""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING

from simbookie.world.process import Process

if TYPE_CHECKING:
    from simbookie.world.connection_end import ConnectionEnd
    from simbookie.world.network import Network

__all__ = ["Attempt"]


class Attempt:
    """An attempt to connect, until it succeeds, is refused or given up."""

    def __init__(
        self,
        network: Network,
        process: Process,
        host: str,
        on_open: Callable[[ConnectionEnd], None],
        on_refused: Callable[[], None],
    ) -> None:
        self.process = process
        self.host = host
        #: Both ends, once somebody has accepted.
        self.ends: tuple[ConnectionEnd, ConnectionEnd] | None = None
        self.is_over = False
        self._is_open = False
        self._network = network
        self._on_open = on_open
        self._on_refused = on_refused
        self._retry: TimerHandle | None = None

    def knock(self, retry_s: float) -> None:
        """Ask for a connection, and again after ``retry_s`` without an answer."""
        if self.is_over or not self.process.is_alive:
            return
        network = self._network
        network.signal(network.link(self.process.host_name, self.host), network.establish, self)
        self._retry = network.loop.call_later(retry_s, self.knock, 2 * retry_s, context=network.context)

    def opened(self, end: ConnectionEnd) -> None:
        """The other side has accepted."""
        if self._is_open:
            return  # it said so before
        if end.is_closed:
            self.refused()
        elif self.is_over or not self.process.is_alive:
            self._network.close_end(end)
        else:
            self._is_open = True
            self.give_up()
            self._network.opened(end)
            self._network.loop.enter(self.process, self._on_open, end)

    def refused(self) -> None:
        """The other side has refused."""
        if not self.is_over:
            self.give_up()
            self._network.counters.refused += 1
            self._network.loop.enter(self.process, self._on_refused)

    def give_up(self) -> None:
        """Try no more and call nothing. Idempotent."""
        self.is_over = True
        if self._retry is not None:
            self._retry.cancel()
