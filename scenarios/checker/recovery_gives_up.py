"""A recovery gives up for lack of bookies only where it has to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts, RecoveryRun
from scenarios.history.schema import Event, Kind

__all__ = ["RecoveryGivesUp"]

#: What a bookie may answer to a write-back that ends the recovery by itself.
_REFUSALS: Final = frozenset({codes.CLIENT_CLOSED, codes.ILLEGAL_OPERATION, codes.FENCED, codes.UNAUTHORIZED})


class _WriteBacks:
    """What one run wrote back, and what it heard of that."""

    __slots__ = ("entries", "failed", "is_open", "run", "stored")

    def __init__(self, run: RecoveryRun) -> None:
        self.run = run
        #: Those that it wrote back.
        self.entries: set[int] = set()
        self.stored: set[tuple[int, str]] = set()
        self.failed: dict[tuple[int, str], int] = {}
        #: Whether it may have ended for another reason.
        self.is_open = False


class RecoveryGivesUp(Family):
    """A recovery that fails while it writes back has an entry that can get no ack quorum any more (L10).

    An entry can get one as long as Qa bookies of its write set have not failed it: they stored it, or are still to answer.

    A history has no reason of a failure, so only a recovery is judged that can have no other one: it decided about all that it
    read, was refused by nobody, did not try to close, and has an entry without its quorum, so that it was not about to either.
    Which bookies it counts is known only of one that put no bookie in the place of another.
    """

    clauses = ("L10",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._runs: dict[str, _WriteBacks] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Openings, write-backs, their outcomes, and attempts to close."""
        return {
            Kind.OPEN_START: self.on_open,
            Kind.REC_START: self.on_start,
            Kind.ADD_SEND: self.on_send,
            Kind.ADD_RESP: self.on_answer,
            Kind.META_CAS: self.on_cas,
            Kind.OPEN_RESULT: self.on_result,
        }

    def on_open(self, event: Event) -> None:
        """Several recoveries of one client cannot be told apart."""
        if self.facts.run_of(event.actor) is None:
            self._runs.pop(event.actor, None)

    def on_start(self, event: Event) -> None:
        """A recovery begins."""
        self._runs.pop(event.actor, None)
        run = self.facts.run_of(event.actor)
        if run is not None:
            self._runs[event.actor] = _WriteBacks(run)

    def on_send(self, event: Event) -> None:
        """An entry is written back."""
        fields = event.fields
        if fields["recovery"]:
            known = self._runs.get(event.actor)
            if known is not None:
                known.entries.add(fields["entry"])
                known.is_open = known.is_open or fields["bookie"] not in known.run.ensemble

    def on_answer(self, event: Event) -> None:
        """The outcome of a write-back."""
        fields = event.fields
        if not fields["recovery"]:
            return
        known = self._runs.get(event.actor)
        if known is None:
            return
        copy = (fields["entry"], fields["bookie"])
        if fields["code"] == codes.OK:
            known.stored.add(copy)
        else:
            known.failed[copy] = event.seq
            known.is_open = known.is_open or fields["code"] in _REFUSALS

    def on_cas(self, event: Event) -> None:
        """An attempt to close has reasons of its own to fail."""
        known = self._runs.get(event.actor)
        if known is not None and event.fields["cause"] == "close":
            known.is_open = True

    def on_result(self, event: Event) -> None:
        """Judge a recovery that failed."""
        if not event.fields["recovery"]:
            return
        known = self._runs.pop(event.actor, None)
        stored = self.facts.stored
        if known is None or stored is None or event.fields["code"] != codes.LEDGER_RECOVERY:
            return
        run = known.run
        if known.is_open or run.unknown_seq >= 0 or len(set(run.ensemble)) < len(run.ensemble):
            return
        size, quorum = len(run.ensemble), stored.ack_quorum_size
        sets = {
            entry: [run.ensemble[(entry + i) % size] for i in range(stored.write_quorum_size)]
            for entry in known.entries
        }
        if all(sum((entry, bookie) in known.stored for bookie in sets[entry]) >= quorum for entry in sets):
            return
        self.checked["L10"] += 1
        able = {
            entry: [b for b in sets[entry] if (entry, b) not in known.failed or (entry, b) in known.stored]
            for entry in sets
        }
        if all(len(bookies) >= quorum for bookies in able.values()):
            entry = min(able, key=lambda entry: (len(able[entry]), entry))
            self.broken(
                "L10",
                f"{event.actor} gave up when {quorum} bookies might still store each entry that it wrote back: entry {entry} "
                f"{', '.join(able[entry])}",
                run.seq,
                *known.failed.values(),
                event.seq,
            )
