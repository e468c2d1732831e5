"""Lives in which a defect of BookKeeper's shows that chance does not come to, or not soon.

A recipe says which store it is over and how that is configured, what the bookie does in each life and how that ends, and what
shows: invariants that are violated, or the answer to a question, which is another one without the defect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from simbookie.crashes.invariants import StorageViolation
from simbookie.crashes.kinds import StoreLimits
from simbookie.crashes.runs import Refused, play_life
from simbookie.crashes.schedule import Operation
from simbookie.crashes.settings import RunSettings
from simbookie.crashes.subject import Subject
from simbookie.storage.base import CrashMode
from simbookie.storage.disk.faults import DiskFaultKind, DiskOperation
from simbookie.storage.quirks import Quirk

__all__ = ["RECIPES", "Life", "Recipe", "RecipeOutcome"]


@dataclass(frozen=True, slots=True)
class Life:
    """What the bookie does from a start to an end: by default the end of its process, when all is done."""

    operations: tuple[Operation, ...] = ()
    #: Before the start, and after it before anything is looked at.
    before: tuple[Operation, ...] = ()
    first: tuple[Operation, ...] = ()
    mode: CrashMode = CrashMode.PROCESS
    ends_in_order: bool = False
    #: Whether the bookie gets a new disk afterwards.
    loses_disk: bool = False


@dataclass(frozen=True, slots=True)
class RecipeOutcome:
    """What came of a recipe."""

    violations: tuple[StorageViolation, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Lives of a bookie over the store ``kind``, and one more that finds out."""

    kind: str
    lives: tuple[Life, ...]
    #: The invariants that it violates with the defect,
    violates: tuple[str, ...] = ()
    #: or the answers to its questions, with the defect and without it.
    answers: tuple[str, str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def play(self, quirks: frozenset[Quirk]) -> RecipeOutcome:
        """Live these lives with the quirks that there are."""
        subject = Subject(replace(RunSettings(self.kind, 1, quirks), **self.settings))
        try:
            for life in self.lives:
                play_life(
                    subject,
                    list(life.operations),
                    before=list(life.before),
                    first=list(life.first),
                    mode=life.mode,
                    ends_in_order=life.ends_in_order,
                )
                if life.loses_disk:
                    subject.lose_disk()
                if subject.violations:
                    break
            else:
                play_life(subject, [], is_last=True)
        except Refused:
            pass
        return RecipeOutcome(tuple(sorted(subject.violations)), tuple(subject.answers))


def _of(*operations: Operation) -> tuple[Life]:
    return (Life(operations),)


def _add(slot: int, size: int = 100, wait: float = 0.003) -> tuple[Operation, ...]:
    return ("add", slot, size, "ordinary"), ("wait", wait)


def _fails(path: str) -> Operation:
    """The next write to a file of this name fails."""
    return "fault", DiskOperation.WRITE, DiskFaultKind.ERROR, path, 0, 0


def _stalls(path: str, seconds: float) -> Operation:
    """The next sync of a file of this name takes so long."""
    return "fault", DiskOperation.SYNC, DiskFaultKind.STALL, path, 0, seconds


#: A checkpoint of a store with a database comes in less.
_CHECKPOINT: Final[Operation] = ("wait", 0.06)
#: A ledger is collected, and comes again.
_COMES_AGAIN: Final = _of(
    *(("add", 0, 100, "ordinary"), _CHECKPOINT, ("delete", 0, 0.0), ("collect", True), ("wait", 0.01)),
    *(("create_again", 0), ("add", 0, 100, "ordinary"), _CHECKPOINT, ("read", 0, 0.0), ("read_last", 0, 0.0)),
)
#: Four ledgers in each log, and two of them are deleted.
_GARBAGE: Final = (
    *(operation for _ in range(3) for slot in range(4) for operation in _add(slot, 400)),
    *(operation for _ in range(4) for operation in _add(0, 900)),
    *(("wait", 0.05), ("delete", 1, 0.0), ("delete", 2, 0.0)),
)

RECIPES: Final[dict[Quirk, Recipe]] = {
    # the flush fails, and the checkpoint after it finds nothing to flush
    Quirk.FAILED_FLUSH_FORGOTTEN: Recipe(
        "db",
        _of(("add", 0, 100, "ordinary"), ("wait", 0.01), _fails("ledgers/*.log"), _CHECKPOINT, _CHECKPOINT),
        violates=("I1", "I3"),
    ),
    # the fence cannot be written, and the checkpoint after it writes what came since
    Quirk.LEDGER_CHANGES_DROPPED: Recipe(
        "db",
        _of(
            *(("add", 0, 100, "ordinary"), _CHECKPOINT),
            *(("fence", 0, 0.0), ("wait", 0.01), _fails("ledgers/current/ledgers/*"), _CHECKPOINT, _CHECKPOINT),
        ),
        violates=("I2", "I3"),
    ),
    # an entry larger than the cache takes its room each time it is sent, and there is nothing that a flush would free
    Quirk.FAILED_ADD_TAKES_ROOM: Recipe("db", _of(("add", 0, 2_000, "ordinary"), ("wait", 0.01)), violates=("I13",)),
    # an entry that was read is stored again with other bytes, and read where it was read before
    Quirk.OLD_COPIES_CACHED: Recipe(
        "db",
        _of(
            *(("add", 0, 100, "ordinary"), _CHECKPOINT, ("read", 0, 0.0)),
            *(("add_other", 0, 0), _CHECKPOINT, ("read", 0, 0.0)),
        ),
        violates=("I12",),
    ),
    # a ledger is collected and comes again before a flush, which drops its entries
    Quirk.RECREATED_ENTRIES_DROPPED: Recipe("db", _COMES_AGAIN, violates=("I14",)),
    # or removes their locations, when the cache is empty again
    Quirk.RECREATED_LOCATIONS_REMOVED: Recipe("db", _COMES_AGAIN, violates=("I14",)),
    # the memtable that is written has an entry of before, the older one, which is being flushed, has the last
    Quirk.LAST_ENTRY_OF_NEWEST: Recipe(
        "sorted",
        _of(*(_add(0, 400) * 4), ("add_again", 0, 0.0), ("read_last", 0, 0.0), ("wait", 0.01)),
        violates=("I14",),
    ),
    # a checkpoint looks at the first journal; a flush begins for lack of room, which covers less of the second one, and more
    # of the first; an entry goes into the second, and the checkpoint looks at it
    Quirk.CHECKPOINTS_COMPARED_BY_FIRST: Recipe(
        "db",
        _of(
            *(("wait", 0.055), *_add(0, 900), *_add(0, 900), *_add(1), ("wait", 0.04)),
        ),
        violates=("I1", "I3"),
        settings={"journals": 2, "mark_gap_s": 0.04},
    ),
    # marks cannot be written for long, so all of the journal is replayed; it is more than fits, and a flush takes long, too
    Quirk.REPLAY_GIVES_UP: Recipe(
        "db",
        (
            Life((_stalls("ledgers*lastMark*", 60), *(_add(0, 900) * 8))),
            Life(before=(_stalls("ledgers*.log", 20),)),
        ),
        violates=("I1",),
    ),
    # a writer was fenced off and its ledger closed; the bookie has a new disk when it sends a late add
    Quirk.OTHER_LEDGERS_UNFENCED: Recipe(
        "db",
        (Life((*_add(0), ("close", 0), ("fence", 0, 0.0), ("wait", 0.05)), loses_disk=True), Life()),
        violates=("I2",),
    ),
    # the power fails after rows of a large batch were committed, and before the log is synced
    Quirk.LOCATIONS_BEFORE_LOG: Recipe(
        "db",
        (
            Life(
                (*(_add(0, 60, 0.0) * 8), ("arm", "flush.logs"), ("wait", 0.1)),
                mode=CrashMode.POWER_LOSS,
            ),
            Life((("ask", "entry", 0, 0),)),
        ),
        answers=("the entry cannot be read", "there is no entry"),
        settings={"write_data": False, "limits": StoreLimits(batch_rows=2)},
    ),
    # the last entry tells a lower one
    Quirk.EXPLICIT_LAC_UNLOADED: Recipe(
        "sorted",
        (
            Life((*(_add(0) * 3), *((("lac", 0, 0.0), ("wait", 0.01)) * 3)), ends_in_order=True),
            Life(first=(("ask", "lac", 0),)),
        ),
        answers=("the LAC is 1", "the LAC is 2"),
    ),
    # a compaction into log ten, or a later one, is interrupted between its end and the change of the index
    Quirk.DECIMAL_LOG_NAMES: Recipe(
        "interleaved",
        (
            Life((*(_add(3, 900) * 36), *_GARBAGE, ("arm", "transaction.available"), ("collect", True), ("wait", 0.6))),
            Life((("collect", True), ("wait", 0.6), ("ask", "files", "*.compacted"))),
        ),
        answers=("18.log.12.compacted is left", "nothing is left"),
        settings={"in_transactions": True},
    ),
    # the copies of what is alive cannot be written
    Quirk.FAILED_COMPACTIONS_COUNTED: Recipe(
        "interleaved",
        _of(*_GARBAGE, _fails("ledgers/*.log"), ("collect", True), ("wait", 0.6), ("ask", "compacted")),
        answers=("2616 bytes were brought back", "1744 bytes were brought back"),
    ),
    # the ledger was deleted long ago when an interval has passed
    Quirk.FIRST_COLLECTION_LATE: Recipe(
        "sorted",
        _of(*_add(0), ("delete", 0, 0.0), ("collect_when_due",), ("wait", 1.5), ("ask", "ledgers")),
        answers=("1 ledgers are stored", "0 ledgers are stored"),
    ),
    # a disk that is used above 95% has room for a log, and not for a fifth of one besides
    Quirk.SMALLER_RESERVE: Recipe(
        "interleaved",
        _of(("fill_disk", 1 << 20, 45_000), *_add(0), ("wait", 0.05), ("ask", "add"), ("empty_disk",)),
        answers=("the add is told OK", "the add is told IO_ERROR"),
        settings={"limits": StoreLimits(log_bytes=40_000)},
    ),
}
