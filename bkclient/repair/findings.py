"""What a check found out about one fragment; the judgement, without the reading.

A copy is *missing* if its bookie denies the entry, *corrupt* if its digest does not fit, *unreadable* after any other
failure; a bookie that is not registered is *unavailable* without being asked. One such copy makes the position bad
for the fragment. Copies whose digests fit and that still differ in payload or length are a *conflict*: no copy is wrong by
itself, so nothing is repaired and somebody has to look (bytes are never compared, copies may differ in what else the header
says).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from bkclient.entry import Entry
from bkclient.errors import Code
from bkclient.ledger import BookieId
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES
from bkclient.repair.fragments import LedgerFragment

__all__ = ["BadPosition", "Flaw", "FragmentFindings", "FragmentReport", "LedgerReport", "is_never_written"]

EXAMPLES_MAX: Final = 16
"""How many entries a report names for each position and for conflicts; the rest is counted."""


class Flaw(Enum):
    """Why a position is bad."""

    UNAVAILABLE = "unavailable"
    MISSING = "missing"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class BadPosition:
    """A position of a fragment and what is wrong there: the first flaw found, with its code, and examples of entries."""

    position: int
    bookie_id: BookieId
    flaw: Flaw
    code: int
    entry_ids: tuple[int, ...] = ()
    entry_count: int = 0


@dataclass(frozen=True, slots=True)
class FragmentReport:
    """What was found about one fragment. ``conflicts`` are the first entries whose good copies disagree."""

    fragment: LedgerFragment
    bad: tuple[BadPosition, ...]
    conflicts: tuple[int, ...] = ()
    conflict_count: int = 0
    copies_checked: int = 0

    @property
    def bad_positions(self) -> tuple[int, ...]:
        """The positions that have to be replaced, ascending."""
        return tuple(found.position for found in self.bad)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.bad and not self.conflict_count


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What was found about a ledger, as of one version of its metadata; fragments that are sound are left out."""

    ledger_id: int
    version: int
    fragments: tuple[FragmentReport, ...]
    copies_checked: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.fragments

    @property
    def repairable(self) -> tuple[FragmentReport, ...]:
        """The fragments with bad positions; those with conflicts alone need a human."""
        return tuple(report for report in self.fragments if report.bad)

    @property
    def bad_bookies(self) -> tuple[BookieId, ...]:
        """The bookies at bad positions, each once, sorted."""
        return tuple(sorted({found.bookie_id for report in self.fragments for found in report.bad}))


def is_never_written(codes: Iterable[int]) -> bool:
    """Whether the answers for the first entry of an open fragment prove that it was never written to: all deny it."""
    return all(code in EXPLICIT_NEGATIVES for code in codes)


@dataclass(slots=True)
class _Trouble:
    flaw: Flaw
    code: int
    entry_ids: list[int] = field(default_factory=list)
    count: int = 0


class FragmentFindings:
    """Collects the answers about one fragment."""

    def __init__(self, fragment: LedgerFragment) -> None:
        self._fragment = fragment
        self._troubles: dict[int, _Trouble] = {}
        self._awaited: dict[int, int] = {}
        self._good: dict[int, tuple[bytes, int]] = {}
        self._conflicting: dict[int, None] = {}
        self._conflicts: list[int] = []
        self._conflict_count = 0
        self._copies = 0

    def note_unavailable(self, position: int) -> None:
        """The bookie at ``position`` is not registered."""
        self._troubles[position] = _Trouble(Flaw.UNAVAILABLE, Code.BOOKIE_NOT_AVAILABLE)

    def compare(self, entry_id: int, copies: int) -> None:
        """The next ``copies`` answers about ``entry_id`` are to be compared with one another."""
        if copies > 1:
            self._awaited[entry_id] = copies

    def note(self, position: int, entry_id: int, code: int, entry: Entry | None) -> None:
        """The bookie at ``position`` answered for ``entry_id``."""
        self._copies += 1
        if entry is None:
            trouble = self._troubles.get(position)
            if trouble is None:
                trouble = self._troubles[position] = _Trouble(_flaw_of(code), code)
            trouble.count += 1
            if len(trouble.entry_ids) < EXAMPLES_MAX:
                trouble.entry_ids.append(entry_id)
        if entry_id in self._awaited:
            self._compare(entry_id, entry)

    def _compare(self, entry_id: int, entry: Entry | None) -> None:
        if entry is not None:
            content = (entry.payload, entry.ledger_length)
            if self._good.setdefault(entry_id, content) != content and entry_id not in self._conflicting:
                self._conflicting[entry_id] = None
                self._conflict_count += 1
                if len(self._conflicts) < EXAMPLES_MAX:
                    self._conflicts.append(entry_id)
        self._awaited[entry_id] -= 1
        if self._awaited[entry_id] == 0:
            del self._awaited[entry_id]
            self._good.pop(entry_id, None)
            self._conflicting.pop(entry_id, None)

    def report(self) -> FragmentReport:
        """What is known by now."""
        ensemble = self._fragment.ensemble
        return FragmentReport(
            self._fragment,
            tuple(
                BadPosition(p, ensemble[p], trouble.flaw, trouble.code, tuple(sorted(trouble.entry_ids)), trouble.count)
                for p, trouble in sorted(self._troubles.items())
            ),
            tuple(sorted(self._conflicts)),
            self._conflict_count,
            self._copies,
        )


def _flaw_of(code: int) -> Flaw:
    if code in EXPLICIT_NEGATIVES:
        return Flaw.MISSING
    return Flaw.CORRUPT if code == Code.DIGEST_MATCH else Flaw.UNREADABLE
