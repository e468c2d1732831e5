"""Lives in which a defect of BookKeeper's shows that chance does not come to, or not soon."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simbookie.crashes.invariants import StorageViolation
from simbookie.crashes.runs import play_life
from simbookie.crashes.schedule import Operation
from simbookie.crashes.settings import RunSettings
from simbookie.crashes.subject import Subject
from simbookie.storage.disk.faults import DiskFaultKind, DiskOperation
from simbookie.storage.quirks import Quirk

__all__ = ["RECIPES", "Recipe"]

#: A checkpoint of a store with a database comes in less.
_CHECKPOINT: Final = ("wait", 0.06)


def _fails(path: str) -> Operation:
    """The next write to a file of this name fails."""
    return "fault", DiskOperation.WRITE, DiskFaultKind.ERROR, path, 0, 0


_COMES_AGAIN: Final[list[Operation]] = [
    *(("add", 0, 100, "ordinary"), _CHECKPOINT, ("delete", 0, 0.0), ("collect", True), ("wait", 0.01)),
    *(("create_again", 0), ("add", 0, 100, "ordinary"), _CHECKPOINT, ("read", 0, 0.0), ("read_last", 0, 0.0)),
]


class Recipe:
    """A life of a bookie over the store ``kind``, which is killed in the end, and one more that finds out."""

    def __init__(self, kind: str, operations: Iterable[Operation]) -> None:
        self.kind = kind
        self.operations = list(operations)

    def violations(self, quirks: frozenset[Quirk]) -> tuple[StorageViolation, ...]:
        """What these lives violate, with the quirks that there are."""
        subject = Subject(RunSettings(self.kind, 1, quirks))
        play_life(subject, list(self.operations))
        if not subject.violations:
            play_life(subject, [], is_last=True)
        return tuple(sorted(subject.violations))


RECIPES: Final[dict[Quirk, Recipe]] = {
    # the flush fails, and the checkpoint after it finds nothing to flush
    Quirk.FAILED_FLUSH_FORGOTTEN: Recipe(
        "db", [("add", 0, 100, "ordinary"), ("wait", 0.01), _fails("ledgers/*.log"), _CHECKPOINT, _CHECKPOINT]
    ),
    # the fence cannot be written, and the checkpoint after it writes what came since
    Quirk.LEDGER_CHANGES_DROPPED: Recipe(
        "db",
        [
            *(("add", 0, 100, "ordinary"), _CHECKPOINT),
            *(("fence", 0, 0.0), ("wait", 0.01), _fails("ledgers/current/ledgers/*"), _CHECKPOINT, _CHECKPOINT),
        ],
    ),
    # an entry larger than the cache takes its room each time it is sent, and there is nothing that a flush would free
    Quirk.FAILED_ADD_TAKES_ROOM: Recipe("db", [("add", 0, 2_000, "ordinary"), ("wait", 0.01)]),
    # an entry that was read is stored again with other bytes, and read where it was read before
    Quirk.OLD_COPIES_CACHED: Recipe(
        "db",
        [
            *(("add", 0, 100, "ordinary"), _CHECKPOINT, ("read", 0, 0.0)),
            *(("add_other", 0, 0), _CHECKPOINT, ("read", 0, 0.0)),
        ],
    ),
    # a ledger is collected and comes again before a flush, which drops its entries
    Quirk.RECREATED_ENTRIES_DROPPED: Recipe("db", _COMES_AGAIN),
    # or removes their locations, when the cache is empty again
    Quirk.RECREATED_LOCATIONS_REMOVED: Recipe("db", _COMES_AGAIN),
    # the memtable that is written has an entry of before, the older one, which is being flushed, has the last
    Quirk.LAST_ENTRY_OF_NEWEST: Recipe(
        "sorted",
        [
            *([("add", 0, 400, "ordinary"), ("wait", 0.003)] * 4),
            *(("add_again", 0, 0.0), ("read_last", 0, 0.0), ("wait", 0.01)),
        ],
    ),
}
