"""The manifest of a log: everything that the metadata store holds about it, as an immutable value.

The list of ledgers is the log: their entries, ledger after ledger, are what readers see. The list changes by compare-and-set
alone, through the changes of :mod:`bkclient.log.machine.changes`. Constructing a manifest checks its shape and raises
``ValueError``: a wrong shape is a defect of a program, or a damaged record.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from enum import IntEnum
from operator import attrgetter, lt
from typing import Final, Self

from bkclient.log.settings import LogSettings

__all__ = [
    "MAX_CURSORS",
    "MAX_LEDGERS",
    "MAX_PARTITIONS",
    "CompactedLedger",
    "LedgerEnd",
    "LogLedger",
    "LogManifest",
    "LogState",
]

MAX_LEDGERS: Final = 10_000
"""Ledgers in the list and those still to be deleted, together; so that a manifest stays below 1 MB, ZooKeeper's limit."""
MAX_CURSORS: Final = 1_000
MAX_PARTITIONS: Final = 1_000
_LEDGER_ID: Final = attrgetter("ledger_id")
_EPOCH: Final = attrgetter("epoch")
_END: Final = attrgetter("end")


class LogState(IntEnum):
    """States of a log, numbered as stored."""

    ACTIVE = 1
    DELETED = 2


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """Where a ledger ends for good: its last entry (-1: it is empty), bytes, and the time of its last message (0: unknown)."""

    ledger_id: int
    last_entry_id: int
    length: int = 0
    last_ms: int = 0


@dataclass(frozen=True, slots=True)
class LogLedger:
    """One ledger of a log. ``end`` is None as long as it may be written to. ``created_ms`` is since 1970."""

    ledger_id: int
    epoch: int
    created_ms: int = 0
    end: LedgerEnd | None = None

    def __post_init__(self) -> None:
        end = self.end
        if end is not None and (end.ledger_id != self.ledger_id or end.last_entry_id < 0 or end.length < 0):
            raise ValueError(f"ledger {self.ledger_id} cannot end by {end}")

    @property
    def entries(self) -> int:
        """Entries of a ledger that has ended; 0 before."""
        return 0 if self.end is None else self.end.last_entry_id + 1

    @property
    def length(self) -> int:
        """Bytes of a ledger that has ended; 0 before."""
        return 0 if self.end is None else self.end.length


@dataclass(frozen=True, slots=True)
class CompactedLedger:
    """A ledger that holds the newest message of each key, of all messages up to an entry, which is included.

    ``messages`` says how many it holds.
    """

    ledger_id: int
    through_ledger_id: int
    through_entry_id: int
    messages: int


@dataclass(frozen=True, slots=True)
class LogManifest:
    """What is stored about a log.

    ``log_id`` tells this log from an earlier one of the same name. ``epoch`` counts claims; ``owner`` is the name of the one that
    holds the log and ``claim_id`` tells its claim, both empty if none does. ``trimmed`` are ledgers that do not belong to the
    log any more and have yet to be deleted; ``trimmed_through`` is the highest ledger id that ever left the log with entries.
    ``cursors`` are the names of those that hold back trimming, and ``cursor_changes`` counts how often one was added or moved
    back. The manifest of a deleted log stays, so that versions never begin anew.

    A log with ``partitions`` has no ledgers of its own: each partition is a log, whose ``partition`` is its number; that is -1
    for every other log. A claim of a partition has the epoch of the claim of the whole log, so of two owners the later one gets
    all.

    ``compacted`` is what the last compaction made, and ``compacting`` the ledger that one is writing to, -1 if none is.
    ``dropped`` are ledgers of compactions that have yet to be deleted.
    """

    log_id: str
    settings: LogSettings = field(default_factory=LogSettings)
    state: LogState = LogState.ACTIVE
    epoch: int = 0
    owner: str = ""
    claim_id: str = ""
    created_ms: int = 0
    ledgers: tuple[LogLedger, ...] = ()
    trimmed: tuple[int, ...] = ()
    trimmed_through: int = -1
    cursors: tuple[str, ...] = ()
    cursor_changes: int = 0
    partitions: int = 0
    partition: int = -1
    compacted: CompactedLedger | None = None
    compacting: int = -1
    dropped: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # Whatever looks at each ledger is a loop of the interpreter's own: manifests of thousands change often.
        ids = list(map(_LEDGER_ID, self.ledgers))
        if min((*ids[:1], *self.trimmed), default=0) < 0 or not all(map(lt, ids, ids[1:])):
            raise ValueError(f"ledger ids must be >= 0 and ascend, got {ids}")
        if (self.trimmed and set(ids) & set(self.trimmed)) or len(set(self.trimmed)) != len(self.trimmed):
            raise ValueError("a ledger is in the log, or was trimmed, once")
        if ids and ids[0] <= self.trimmed_through:
            raise ValueError(f"ledger {ids[0]} is not above {self.trimmed_through}, which was trimmed")
        if None in map(_END, self.ledgers[:-1]):
            raise ValueError("only the last ledger may be without an end")
        epochs = set(map(_EPOCH, self.ledgers))
        if self.epoch < 0 or (epochs and not 0 < min(epochs) <= max(epochs) <= self.epoch):
            raise ValueError(f"epochs must be between 1 and {self.epoch}")
        if bool(self.claim_id) != bool(self.owner):
            raise ValueError("an owner has a name and a claim")
        if self.cursors != tuple(sorted(set(self.cursors))):
            raise ValueError("the names of cursors must ascend")
        self._check_partitions()
        if self.compacting < -1 or any(ledger_id < 0 for ledger_id in self.dropped):
            raise ValueError("ledger ids must be >= 0")
        if self.state is LogState.DELETED and (self.ledgers or self.claim_id or self.cursors or self.compacted):
            raise ValueError("a deleted log has no ledger, owner or cursor")

    def _check_partitions(self) -> None:
        if not 0 <= self.partitions <= MAX_PARTITIONS or not -1 <= self.partition < MAX_PARTITIONS:
            raise ValueError(f"a log has 0 to {MAX_PARTITIONS} partitions, numbered from 0")
        if self.partitions and (self.ledgers or self.partition >= 0):
            raise ValueError("a log with partitions has no ledgers and is no partition itself")

    @property
    def is_deleted(self) -> bool:
        """Whether the log was deleted."""
        return self.state is LogState.DELETED

    @property
    def open_ledgers(self) -> tuple[int, ...]:
        """The ledger that may still be written to, if there is one."""
        return tuple(ledger.ledger_id for ledger in self.ledgers[-1:] if ledger.end is None)

    @property
    def last_ms(self) -> int:
        """The time of the last message of the ledgers that have ended; 0 if it is unknown."""
        return max((ledger.end.last_ms for ledger in self.ledgers if ledger.end is not None), default=0)

    def has(self, ledger_id: int) -> bool:
        """Whether a ledger belongs to the log."""
        return self.ledger(ledger_id) is not None

    def ledger(self, ledger_id: int) -> LogLedger | None:
        """A ledger of the log."""
        index = bisect_left(self.ledgers, ledger_id, key=_LEDGER_ID)
        found = self.ledgers[index : index + 1]
        return found[0] if found and found[0].ledger_id == ledger_id else None

    def first_after(self, ledger_id: int) -> LogLedger | None:
        """The first ledger of the log with a higher id."""
        following = bisect_right(self.ledgers, ledger_id, key=_LEDGER_ID)
        return self.ledgers[following] if following < len(self.ledgers) else None

    def may_be_trimmed(self, ledger: LogLedger) -> bool:
        """Whether a ledger has ended, and a compaction of the log, if there was one, covers all of it."""
        found = self.compacted
        if ledger.end is None or found is None:
            return ledger.end is not None
        return (ledger.ledger_id, ledger.end.last_entry_id) <= (found.through_ledger_id, found.through_entry_id)

    def with_ends(self, ends: tuple[LedgerEnd, ...]) -> Self:
        """With the ends of ledgers noted. Ledgers that end empty leave the log, to be deleted."""
        by_id = {end.ledger_id: end for end in ends}
        kept, empty = list(self.ledgers[:-1]), []  # which have ended, as a manifest demands
        for ledger in self.ledgers[-1:]:
            end = by_id.get(ledger.ledger_id) if ledger.end is None else None
            if end is None:
                kept.append(ledger)
            elif end.last_entry_id < 0:
                empty.append(ledger.ledger_id)
            else:
                kept.append(replace(ledger, end=end))
        return replace(self, ledgers=tuple(kept), trimmed=(*self.trimmed, *empty))
