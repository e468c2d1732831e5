"""What a bookie keeps, whatever it is killed by and whenever: the invariants of its storage, in words.

Each has the number that BookKeeper's mechanisms are discussed by, a statement, and a check: a function of
:mod:`simbookie.crashes.watch`, for what can be seen while a bookie runs, or of :mod:`simbookie.crashes.after`, for what its disk
tells when it is dead, and what it answers when it is started again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["INVARIANTS", "StorageInvariant", "StorageViolation"]


@dataclass(frozen=True, slots=True)
class StorageInvariant:
    """One of them; ``check`` names the function that looks."""

    name: str
    statement: str
    check: str


@dataclass(frozen=True, slots=True, order=True)
class StorageViolation:
    """An invariant that did not hold, and how that showed."""

    invariant: str
    text: str


def _listed(*rows: tuple[str, str, str]) -> dict[str, StorageInvariant]:
    return {name: StorageInvariant(name, statement, check) for name, statement, check in rows}


INVARIANTS: Final[dict[str, StorageInvariant]] = _listed(
    (
        "I1",
        "An entry or an explicit LAC that was acknowledged is there after any crash and start.",
        "after.promises_kept",
    ),
    (
        "I2",
        "A ledger whose fence was acknowledged refuses ordinary adds after any crash and start.",
        "after.promises_kept",
    ),
    (
        "I3",
        "What was acknowledged and is in no journal behind the persisted marks is in the store, durably.",
        "after.marks_cover_nothing_volatile",
    ),
    ("I4", "A persisted mark never goes back, and the journal file that it names is there.", "after.marks_stand"),
    ("I5", "A mark in memory is not ahead of what is durable of its journal.", "after.marks_are_durable"),
    (
        "I6",
        "In a journal no ordinary add that was acknowledged is behind the fence of its ledger.",
        "after.journal_order",
    ),
    ("I7", "Replaying twice brings the same state as replaying once.", "after.replay_is_idempotent"),
    (
        "I8",
        "What one flush of a memtable writes to an entry log is in the order of ledgers and entries.",
        "watch.flush_order",
    ),
    (
        "I9",
        "A location leads to an entry of the same ids; that of an entry that was not acknowledged may lead to an error.",
        "after.locations_lead_to_entries",
    ),
    (
        "I10",
        "An entry log is removed only when no location of a ledger that exists leads to it, in memory or durably.",
        "watch.removed_logs",
    ),
    ("I11", "A ledger that the metadata store has is not collected.", "watch.ledger_deleted"),
    (
        "I12",
        "One flush is under way at a time, and what was stored can be read at every moment of it.",
        "watch.step",
    ),
    ("I13", "An add finds room within the limit on throttling.", "watch.add_waited"),
    (
        "I14",
        "That there is no entry is said only if none was stored; damage of an entry log is told as an error.",
        "after.damage_is_told",
    ),
    ("I15", "The same seed makes the same bytes and the same answers.", "runs.repeated"),
    ("I16", "No queue and no memory is above its bound.", "watch.step"),
    ("I17", "The LAC that is told of a ledger does not fall while the bookie runs.", "watch.lac_told"),
    ("I18", "A run compacts in one way at most, and major compaction sets both timers.", "watch.collected"),
    ("I19", "A ledger of which anything was acknowledged has the key of its clients.", "after.promises_kept"),
)
