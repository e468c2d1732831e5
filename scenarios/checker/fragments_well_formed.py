"""Fragments are well formed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import CLOSED, Metadata
from scenarios.history.schema import Event, Kind

__all__ = ["FragmentsWellFormed"]


class FragmentsWellFormed(Family):
    """Every attempt to write metadata has the right shape (C4, C5, C10, B9).

    C4: the first fragment starts at entry 0, and each next one above the one before.

    C5: every ensemble has E distinct bookies; when a writer replaces bookies, those that stay keep their positions, since
    the position decides which bookies store an entry; and a write that closes the ledger or begins a recovery leaves all
    fragments but the last as they were, and that one where it starts.

    C10: E >= Qw >= Qa >= 1, for ever the same.

    B9: the last fragment of a closed ledger starts at most one above the last entry; an empty one is legal.

    All of it holds for every attempt, including those that the store refused. Positions are compared with the version that
    the attempt expects, if that is known, and only in ensemble changes: the close of a recovery may combine several.
    """

    clauses = ("C4", "C5", "C10", "B9")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._sizes: tuple[int, int, int] | None = None
        self._sizes_seq = -1

    def handlers(self) -> Mapping[Kind, Handler]:
        """Every attempt to write metadata."""
        return {Kind.META_CAS: self.on_cas}

    def on_cas(self, event: Event) -> None:
        """Judge what was to be written."""
        fields = event.fields
        if fields["cause"] == "delete":
            if fields["outcome"] == "ok":
                self._sizes = None  # another ledger may get its id
            return
        current = self.facts.metadata.current
        if current is not None and current.seq == event.seq:
            written = current  # as the facts have taken it in
        else:
            written = Metadata(event, author=event.actor, cause=fields["cause"], version=fields["version"])
        self._check_sizes(written)
        self._check_firsts(written)
        self._check_members(written)
        if written.cause == "ensemble":
            expected = self.facts.metadata.versions.get(fields["expected_version"])
            if expected is not None and expected.fragments and written.fragments:
                self._check_positions(expected, written)
        elif written.cause in {"close", "recover"}:
            expected = self.facts.metadata.versions.get(fields["expected_version"])
            if expected is not None and expected.fragments and expected.state != CLOSED:
                self._check_kept(expected, written)
        if written.state == CLOSED and written.fragments:
            self.checked["B9"] += 1
            first = written.fragments[-1][0]
            if first > written.last_entry + 1:
                self.broken(
                    "B9",
                    f"{written.author} closes the ledger at entry {written.last_entry} with a fragment from entry {first}",
                    written.seq,
                )

    def _check_sizes(self, written: Metadata) -> None:
        self.checked["C10"] += 1
        sizes = (written.ensemble_size, written.write_quorum_size, written.ack_quorum_size)
        if not sizes[0] >= sizes[1] >= sizes[2] >= 1:
            self.broken("C10", f"{written.author} writes E, Qw, Qa = {sizes}", written.seq)
        elif self._sizes is None:
            self._sizes, self._sizes_seq = sizes, written.seq
        elif sizes != self._sizes:
            self.broken(
                "C10",
                f"{written.author} writes E, Qw, Qa = {sizes}; they were {self._sizes}",
                self._sizes_seq,
                written.seq,
            )

    def _check_firsts(self, written: Metadata) -> None:
        self.checked["C4"] += 1
        firsts = [first for first, _ in written.fragments]
        if firsts[:1] != [0] or any(low >= high for low, high in pairwise(firsts)):
            shown = ", ".join(str(first) for first in firsts) or "nowhere"
            self.broken(
                "C4",
                f"{written.author} writes fragments that start at {shown} ({written.cause})",
                written.seq,
            )

    def _check_members(self, written: Metadata) -> None:
        for first, members in written.fragments:
            self.checked["C5"] += 1
            if len(members) != written.ensemble_size or len(set(members)) != len(members):
                self.broken(
                    "C5",
                    f"{written.author} writes the ensemble {', '.join(members)} from entry {first} on; it needs "
                    f"{written.ensemble_size} distinct bookies",
                    written.seq,
                )

    def _check_kept(self, expected: Metadata, written: Metadata) -> None:
        last = len(expected.fragments) - 1
        kept, first = expected.fragments[:last], expected.fragments[last][0]
        if written.fragments[:last] != kept or [start for start, _ in written.fragments[last : last + 1]] != [first]:
            self.broken(
                "C5",
                f"{written.author} writes other fragments below entry {first}, where the last one starts ({written.cause})",
                expected.seq,
                written.seq,
            )

    def _check_positions(self, expected: Metadata, written: Metadata) -> None:
        old, new = expected.fragments[-1][1], written.fragments[-1][1]
        moved = [
            bookie for position, bookie in enumerate(new) if bookie in old and old[position : position + 1] != (bookie,)
        ]
        if moved:
            self.broken(
                "C5",
                f"{written.author} changes the ensemble {', '.join(old)} to {', '.join(new)}, which moves {', '.join(moved)}",
                expected.seq,
                written.seq,
            )
