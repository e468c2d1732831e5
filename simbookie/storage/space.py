"""When a bookie has too little space to take ordinary writes.

Every disk of its ledger folders is looked at by itself, as in BookKeeper: what needs the space of a disk waits for that disk, and
the bookie turns read-only when one of them is full, or, if so configured, when all are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from simbookie.storage.base import Capacity, SpaceListener
from simbookie.storage.folders import Folder

__all__ = ["SpaceConfig", "SpaceState", "SpaceWatch", "capacity_of", "check_thresholds"]


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
    #: Whether one full disk of several turns the bookie read-only, or only all of them (``readOnlyModeOnAnyDiskFullEnabled``).
    by_any_disk: bool = True
    #: Bytes that some disk has to have left for writes of high priority, recoveries, while all are full
    #: (``minUsableSizeForHighPriorityWrites``).
    high_priority_bytes_min: int = 0

    def __post_init__(self) -> None:
        check_thresholds(self.full_above, self.writable_below)
        if not 0 < self.little_above <= self.full_above:
            raise ValueError(
                f"storage: 0 < little_above <= full_above must hold, got {self.little_above} and {self.full_above}"
            )
        if not self.interval_s > 0:
            raise ValueError(f"storage: interval_s must be > 0, got {self.interval_s}")
        if self.high_priority_bytes_min < 0:
            raise ValueError(f"storage: high_priority_bytes_min must be >= 0, got {self.high_priority_bytes_min}")


class SpaceWatch:
    """Looks at the disks of folders when something is written, at most once in an interval, and while one has too little space.

    With plenty of it an idle bookie has no timer. ``on_space`` is told of every change of whether ordinary writes are to be
    refused, beginning with that they are not; ``on_states`` before it of every change of the states of the disks, which are in
    the order of ``folders`` and begin with plenty.
    """

    def __init__(
        self,
        config: SpaceConfig,
        folders: Sequence[Folder],
        on_space: SpaceListener,
        on_states: Callable[[Sequence[SpaceState]], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._folders = folders
        self._on_space = on_space
        self._on_states = on_states
        #: Of each disk; none before the first look.
        self.states: list[SpaceState] = []
        #: Whether some disk has room for writes of high priority.
        self.has_high_priority_room = True
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
        loop, config = asyncio.get_running_loop(), self._config
        self._due = loop.time() + config.interval_s
        capacities = [folder.disk.capacity() for folder in self._folders]
        before = self.states or [SpaceState.PLENTY] * len(capacities)
        states = [self._state(capacity, state) for capacity, state in zip(capacities, before, strict=True)]
        full = [state is SpaceState.NONE for state in states]
        is_full = self._has_failed or (any(full) if config.by_any_disk else all(full))
        self.has_high_priority_room = any(
            not disk_is_full or capacity.free >= config.high_priority_bytes_min
            for capacity, disk_is_full in zip(capacities, full, strict=True)
        )
        self.stop()
        if any(state is not SpaceState.PLENTY for state in states) and not self._has_failed:
            self._timer = loop.call_later(config.interval_s, self._look)
        self.states = states
        if states != before:
            self._on_states(states)
        if is_full != self._is_full:
            self._is_full = is_full
            self._on_space(is_full)

    def _state(self, capacity: Capacity, before: SpaceState) -> SpaceState:
        config, used = self._config, _used(capacity)
        limit = config.writable_below if before is SpaceState.NONE else config.full_above
        if self._has_failed or used > limit:
            return SpaceState.NONE
        return SpaceState.LITTLE if used > config.little_above else SpaceState.PLENTY


def _used(capacity: Capacity) -> float:
    return 1 - capacity.free / capacity.total if capacity.total else 1.0


def capacity_of(folders: Sequence[Folder]) -> Capacity:
    """What the disks of folders have together, each counted once."""
    capacities = [disk.capacity() for disk in dict.fromkeys(folder.disk for folder in folders)]
    return Capacity(sum(each.total for each in capacities), sum(each.free for each in capacities))
