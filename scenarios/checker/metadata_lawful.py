"""Metadata changes by compare-and-set, one version at a time, and only in transitions that the protocol allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import CLOSED, IN_RECOVERY, OPEN, Metadata
from scenarios.history.schema import Event, Kind

__all__ = ["MetadataLawful"]

_NEXT: Final = {
    OPEN: (OPEN, IN_RECOVERY, CLOSED),
    IN_RECOVERY: (IN_RECOVERY, CLOSED),
    CLOSED: (CLOSED,),
}


class MetadataLawful(Family):
    """Metadata changes one version at a time, in legal transitions (C1, C2, C3, C6, C7, C11, E8).

    C1, C2: a successful write makes the version one above the one it expects, and the expected one was the stored one;
    so no two writes succeed on the same version. A version that a write of unknown outcome skipped is no violation.

    C3: the state goes from none to OPEN, perhaps to IN_RECOVERY, and to CLOSED.

    C6: an ensemble change starts right after the last confirmed entry: above every acknowledged entry, and with no
    unconfirmed entry below it; and it leaves earlier fragments unchanged.

    C7: with the write that begins a recovery, and while the ledger is in recovery, ensembles change only in the closing
    write, or in place by re-replication: a bookie that a recovery put in has no entries before.

    C11: after a deletion no write succeeds but another creation.

    E8: a client that did not create the ledger closes it only from a version that was IN_RECOVERY.
    """

    clauses = ("C1", "C2", "C3", "C6", "C7", "C11", "E8")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._newest = -1
        self._newest_seq = -1
        self._deleted_seq = -1
        self._is_gone = False

    def handlers(self) -> Mapping[Kind, Handler]:
        """Successful writes; reads only show the current version."""
        return {Kind.META_CAS: self.on_cas, Kind.META_READ: self.on_read}

    def on_read(self, event: Event) -> None:
        """Note the highest version."""
        if event.fields["outcome"] == "ok" and event.fields["version"] > self._newest:
            self._newest, self._newest_seq = event.fields["version"], event.seq

    def on_cas(self, event: Event) -> None:
        """Judge a successful write against what was stored before."""
        fields = event.fields
        if fields["outcome"] != "ok":
            return
        if fields["cause"] == "delete":
            self._deleted_seq, self._newest, self._is_gone = event.seq, -1, True
            return
        self._check_gone(event)
        stored, previous = self.facts.metadata.current, self.facts.metadata.previous
        if stored is None or stored.seq != event.seq:
            return  # a creation that found itself done already
        self._check_version(event, fields["expected_version"], fields["version"])
        self._check_transition(previous, stored)
        if previous is None:
            return
        if stored.cause == "ensemble" and stored.fragments != previous.fragments:
            self._check_start(previous, stored)
        if stored.state == IN_RECOVERY and stored.cause != "rereplicate":
            self.checked["C7"] += 1
            if stored.fragments != previous.fragments:
                self.broken(
                    "C7",
                    f"{stored.author} stored other ensembles with the ledger in recovery",
                    previous.seq,
                    stored.seq,
                )
        if stored.state == CLOSED and stored.author != self.facts.metadata.creator and self.facts.metadata.creator:
            self.checked["E8"] += 1
            if previous.state == OPEN:
                self.broken(
                    "E8",
                    f"{stored.author} closed the ledger while it was OPEN, but {self.facts.metadata.creator} writes it",
                    previous.seq,
                    stored.seq,
                )

    def _check_gone(self, event: Event) -> None:
        if not self._is_gone:
            return
        self.checked["C11"] += 1
        if event.fields["cause"] == "create":
            self._is_gone = False
        else:
            self.broken(
                "C11",
                f"{event.actor} wrote metadata (cause {event.fields['cause']}) of the ledger after it had been deleted",
                self._deleted_seq,
                event.seq,
            )

    def _check_version(self, event: Event, expected: int, version: int) -> None:
        self.checked["C2"] += 1
        self.checked["C1"] += 1
        if version != expected + 1:
            self.broken("C1", f"{event.actor} expected version {expected} and made version {version}", event.seq)
        if expected < self._newest:
            self.broken(
                "C2",
                f"{event.actor} wrote over version {expected}, but version {self._newest} was stored",
                self._newest_seq,
                event.seq,
            )
        self._newest, self._newest_seq = max(self._newest, version), event.seq

    def _check_transition(self, previous: Metadata | None, stored: Metadata) -> None:
        self.checked["C3"] += 1
        if previous is not None:
            is_legal = stored.state in _NEXT.get(previous.state, ()) and stored.cause != "create"
            before, seq = previous.state, previous.seq
        else:
            is_legal, before, seq = stored.cause != "create" or stored.state == OPEN, "nothing", stored.seq
        if not is_legal:
            self.broken("C3", f"{stored.author} took the ledger from {before} to {stored.state}", seq, stored.seq)

    def _check_start(self, previous: Metadata, stored: Metadata) -> None:
        self.checked["C6"] += 1
        if not stored.fragments:
            return
        start = stored.fragments[-1][0]
        kept = tuple(fragment for fragment in previous.fragments if fragment[0] < start)
        facts = self.facts
        if stored.fragments[:-1] != kept:
            self.broken(
                "C6",
                f"{stored.author} changed fragments below entry {start}, where its ensemble change starts",
                previous.seq,
                stored.seq,
            )
        elif start <= facts.max_acked:
            self.broken(
                "C6",
                f"{stored.author} gave entries from {start} on to another ensemble, but entry {facts.max_acked} was acknowledged "
                "from the old one",
                facts.acked[facts.max_acked].seq,
                stored.seq,
            )
        elif start > facts.confirmed + 1:
            self.broken(
                "C6",
                f"{stored.author} left entry {facts.confirmed + 1} to the old ensemble, which did not confirm it, by a change "
                f"from entry {start} on",
                previous.seq,
                stored.seq,
            )
