"""Which entry logs go, which are compacted, and when: decisions, without files and clocks.

A log is as alive as the ledgers in it are: its *usage* is the share of its bytes that belong to ledgers which exist. One
without any goes. Of the others those are *compacted*, emptied into the log that is written, whose usage is below a threshold:
often the nearly dead ones (*minor*), seldom all that are worth it (*major*). A run does one of the two at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.space import SpaceState

__all__ = [
    "CompactionConfig",
    "CompactionRule",
    "CompactionSchedule",
    "LogUsage",
    "Throttle",
    "bucket_counts",
    "in_order",
]

_BUCKETS: Final = 10


@dataclass(frozen=True, slots=True)
class CompactionRule:
    """When one kind of compaction runs, and on what. Times in seconds."""

    #: Logs with a lower usage are compacted; 0 for none.
    threshold: float
    #: How long ago the last one must be; 0 for never.
    interval_s: float
    #: No further log is begun after this time; ``None`` for no limit.
    time_max_s: float | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether it ever runs without being forced."""
        return self.interval_s > 0 and self.threshold > 0


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """The defaults are BookKeeper's."""

    minor: CompactionRule = field(default_factory=lambda: CompactionRule(0.2, 3600.0))
    major: CompactionRule = field(default_factory=lambda: CompactionRule(0.8, 86_400.0))
    #: How long a garbage collector rests between two runs (``gcWaitTime``).
    gc_interval_s: float = 600.0
    #: Entries copied in a second (``compactionRateByEntries``).
    entries_per_s: float = 1000.0
    #: Bytes copied in a second, instead of a number of entries (``isThrottleByBytes``, ``compactionRateByBytes``).
    bytes_per_s: float | None = None
    #: So many entries are copied before their new locations are made durable (``compactionMaxOutstandingRequests``).
    moved_max: int = 100_000
    #: How long the last compaction of a database of locations must be ago, with a random part of the same added each time; 0 or
    #: less: never (``entryLocationCompactionInterval``).
    location_interval_s: float = -1.0
    #: Whether a log is compacted into one of its own, which replaces it when it is complete (``useTransactionalCompaction``).
    in_transactions: bool = False
    #: Whether a small log counts as one of full size that is nearly empty (``useTargetEntryLogSizeForGc``).
    measures_by_full_size: bool = False
    #: Whether a forced run compacts where it would never do so by itself (``forceAllowCompaction``).
    force_always: bool = False
    #: Whether a disk with too little space starts a forced run, instead of suspending compaction, which needs some space first
    #: (``isForceGCAllowWhenNoSpace``).
    forced_without_space: bool = False

    def __post_init__(self) -> None:
        for name, rule in (("minor", self.minor), ("major", self.major)):
            if rule.threshold > 1:
                raise ValueError(f"compaction: the {name} threshold must be <= 1, got {rule.threshold}")
            if 0 < rule.interval_s < self.gc_interval_s:
                raise ValueError(
                    f"compaction: the {name} interval must be >= gc_interval_s ({self.gc_interval_s}), got {rule.interval_s}"
                )
        if self.minor.is_enabled and self.major.is_enabled:
            if self.minor.interval_s >= self.major.interval_s:
                raise ValueError("compaction: the minor interval must be shorter than the major one")
            if self.minor.threshold >= self.major.threshold:
                raise ValueError("compaction: the minor threshold must be lower than the major one")
        if 0 < self.location_interval_s < self.gc_interval_s:
            raise ValueError(
                f"compaction: location_interval_s must be >= gc_interval_s ({self.gc_interval_s}), got {self.location_interval_s}"
            )
        if not (self.entries_per_s > 0 and (self.bytes_per_s is None or self.bytes_per_s > 0) and self.moved_max > 0):
            raise ValueError(f"compaction: rates and moved_max must be > 0, got {self}")


class LogUsage:
    """What is known of a log that never changes again: bytes of each ledger in it that exists."""

    def __init__(self, log_id: int, ledgers: dict[int, int]) -> None:
        self.log_id = log_id
        self.ledgers = dict(ledgers)
        self.total = sum(ledgers.values())

    @property
    def remaining(self) -> int:
        """Bytes of ledgers that exist."""
        return sum(self.ledgers.values())

    def keep(self, exists: Callable[[int], bool]) -> None:
        """Drop the ledgers that do not exist any more."""
        self.ledgers = {ledger_id: size for ledger_id, size in self.ledgers.items() if exists(ledger_id)}

    def usage(self, full_size: int | None = None) -> float:
        """The share of the log that is alive, of the log's size or of ``full_size`` if that is larger."""
        if not self.total:
            return 0.0
        share = self.remaining / self.total
        return share if share == 1 or full_size is None else self.remaining / max(self.total, full_size)


def _bucket(usage: float) -> int:
    return min(_BUCKETS - 1, int(usage * _BUCKETS))


def bucket_counts(usages: Iterable[float]) -> list[int]:
    """How many logs are alive to less than 10%, 20%, and so on, each counted once."""
    counts = [0] * _BUCKETS
    for usage in usages:
        counts[_bucket(usage)] += 1
    return counts


def in_order(usages: Iterable[tuple[int, float]], threshold: float) -> list[int]:
    """Of ``(log id, usage)`` the logs to compact, by tens of percent; those of the same ten stay in the order given."""
    below = [(log_id, usage) for log_id, usage in usages if usage < threshold]
    return [log_id for log_id, usage in sorted(below, key=lambda item: _bucket(item[1]))]


class CompactionSchedule:
    """When which kind of compaction is due. Times are those of the caller's clock."""

    def __init__(self, config: CompactionConfig, now: float, rng: Random | None = None) -> None:
        self._config = config
        self._rng = rng if rng is not None else Random(0)  # noqa: S311
        self.last_major = self.last_minor = now
        #: When locations are to be compacted next, if ever.
        self.locations_due = 0.0
        self._plan_locations(now)
        #: The kinds that do not run, as an operator wants it. What a disk has left is looked at beside that.
        self.suspended: set[CompactionKind] = set()
        #: What the disk has left.
        self.space = SpaceState.PLENTY

    @property
    def spared(self) -> set[CompactionKind]:
        """The kinds that do not run at present: those suspended, and those that the disk has no space for."""
        spared = set(self.suspended)
        if self._config.forced_without_space:
            return spared
        if self.space is not SpaceState.PLENTY:
            spared.add(CompactionKind.MAJOR)
        if self.space is SpaceState.NONE:
            spared.add(CompactionKind.MINOR)
        return spared

    def choose(
        self, now: float, *, is_forced: bool = False, kinds: frozenset[CompactionKind] | None = None
    ) -> CompactionKind | None:
        """What a run that gets so far now should do; with ``kinds`` one of these, whatever is suspended."""
        config, spared = self._config, self.spared if kinds is None else set(CompactionKind) - kinds
        for kind, rule, last in (
            (CompactionKind.MAJOR, config.major, self.last_major),
            (CompactionKind.MINOR, config.minor, self.last_minor),
        ):
            if kind not in spared and self._is_due(rule, now - last, is_forced=is_forced):
                return kind
        return None

    def _is_due(self, rule: CompactionRule, age: float, *, is_forced: bool) -> bool:
        if is_forced and self._config.force_always and 0 < rule.threshold < 1:
            return True
        return rule.is_enabled and (is_forced or age > rule.interval_s)

    def takes_locations(self, now: float) -> bool:
        """Whether locations are to be compacted now; if so, they are due again in an interval and a random part of it."""
        if self._config.location_interval_s <= 0 or now <= self.locations_due:
            return False
        self._plan_locations(now)
        return True

    def _plan_locations(self, now: float) -> None:
        self.locations_due = now + self._config.location_interval_s * (1 + self._rng.random())

    def ran(self, kind: CompactionKind, now: float) -> None:
        """A compaction ended now, whatever came of it. A major one does what a minor one would have done."""
        self.last_minor = now
        if kind is CompactionKind.MAJOR:
            self.last_major = now


class Throttle:
    """So many permits a second, of which those of one second are kept. Who takes more makes the next one wait."""

    def __init__(self, permits_per_s: float, now: float) -> None:
        self._rate = permits_per_s
        self._stored = 0.0
        self._free_at = now

    def take(self, permits: float, now: float) -> float:
        """Take permits; returns the seconds to wait before using them."""
        if now > self._free_at:
            self._stored = min(self._rate, self._stored + (now - self._free_at) * self._rate)
            self._free_at = now
        wait = self._free_at - now
        spent = min(permits, self._stored)
        self._stored -= spent
        self._free_at += (permits - spent) / self._rate
        return wait
