"""When a bookie has too little space to take ordinary writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from simbookie.storage.base import Capacity, SpaceListener

__all__ = ["SpaceConfig", "SpaceState", "SpaceWatch", "check_thresholds"]


def check_thresholds(full_above: float, writable_below: float) -> None:
    """:class:`ValueError` unless these are shares of a capacity at which a bookie can turn read-only, and writable again."""
    if not 0 < writable_below <= full_above <= 1:
        raise ValueError(
            f"storage: 0 < writable_below <= full_above <= 1 must hold, got {writable_below} and {full_above}"
        )


class SpaceState(Enum):
    """What is left on a disk."""

    PLENTY = auto()
    #: Enough to be written to, and little enough to be careful.
    LITTLE = auto()
    #: Too little for ordinary writes.
    NONE = auto()


@dataclass(frozen=True, slots=True)
class SpaceConfig:
    """Shares of the capacity that are in use, and seconds. In brackets: BookKeeper's keys."""

    #: Above this the bookie turns read-only (``diskUsageThreshold``).
    full_above: float = 0.95
    #: At or below this it turns writable again (``diskUsageLwmThreshold``).
    writable_below: float = 0.90
    #: Above this there is little space: entry logs are rotated, and major compaction waits (``diskUsageWarnThreshold``).
    little_above: float = 0.90
    #: How often one looks (``diskCheckInterval``).
    interval_s: float = 10.0

    def __post_init__(self) -> None:
        check_thresholds(self.full_above, self.writable_below)
        if not 0 < self.little_above <= self.full_above:
            raise ValueError(
                f"storage: 0 < little_above <= full_above must hold, got {self.little_above} and {self.full_above}"
            )
        if not self.interval_s > 0:
            raise ValueError(f"storage: interval_s must be > 0, got {self.interval_s}")


class SpaceWatch:
    """Looks at the capacity when something is written, at most once in an interval, and while there is too little space.

    With plenty of it an idle bookie has no timer. ``on_space`` is told of every change of whether ordinary writes are to be
    refused, beginning with that they are not; ``on_state`` before it of every change of the state, beginning with plenty.
    """

    def __init__(
        self,
        config: SpaceConfig,
        capacity: Callable[[], Capacity],
        on_space: SpaceListener,
        on_state: Callable[[SpaceState], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._capacity = capacity
        self._on_space = on_space
        self._on_state = on_state
        self._state = SpaceState.PLENTY
        self._is_full = False
        self._has_failed = False
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look for the first time."""
        self._look()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self, *, now: bool = False) -> None:
        """Something was written; with ``now``, or it could not be."""
        if now or asyncio.get_running_loop().time() >= self._due:
            self._look()

    def fail(self) -> None:
        """There is no space any more, whatever the disks say."""
        self._has_failed = True
        self._look()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self._config.interval_s
        capacity = self._capacity()
        used = 1 - capacity.free / capacity.total if capacity.total else 1.0
        is_full = self._has_failed or used > (self._config.writable_below if self._is_full else self._config.full_above)
        state = SpaceState.LITTLE if used > self._config.little_above else SpaceState.PLENTY
        state = SpaceState.NONE if is_full else state
        self.stop()
        if state is not SpaceState.PLENTY and not self._has_failed:
            self._timer = loop.call_later(self._config.interval_s, self._look)
        if state is not self._state:
            self._state = state
            self._on_state(state)
        if is_full != self._is_full:
            self._is_full = is_full
            self._on_space(is_full)
