"""Situations: conditions that a run met, counted while its history is recorded.

A run that never meets the fault its scenario is named after has no violation and proves nothing. Therefore a scenario names its
situations (:attr:`~scenarios.model.Scenario.meets`), a run that misses one of them has no verdict, and sweeps report how many
runs met each. Situations are derived from the events of the history alone, as invariants are; a situation is no violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from scenarios.history import Event, Kind

__all__ = ["SITUATIONS", "Situations"]

_OK: Final = 0
_DENIALS: Final = frozenset({-13, -7})
_FENCED: Final = -101

SITUATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "recovery": "a client began to recover a ledger",
        "unknown-answer": "a bookie neither confirmed nor denied an entry that a recovery asked it for",
        "undecided-entry": "a recovery could neither find an entry nor rule it out",
        "failed-recovery": "opening a ledger with recovery failed",
        "unanswered-write-back": "a bookie did not confirm what a recovery wrote back to it",
        "recovery-replaces": "a recovery closed a ledger with other bookies than those it began with",
        "bookie-lost-in-recovery": "a bookie crashed while a client recovered a ledger",
        "rival-recoveries": "two clients recovered one ledger at the same time",
        "change-meets-recovery": "an ensemble change and the start of a recovery conflicted",
        "ensemble-change": "a writer stored another ensemble",
        "reader-crosses-change": "a reader of an open ledger read from an ensemble stored after it had opened the ledger",
        "altered-copy": "a bookie answered a read with a copy that was altered on its disk",
        "close-cuts-off": "a writer closed its ledger with appends in flight",
        "cancelled-append": "an application cancelled an append",
        "fenced-writer": "a bookie refused an entry of a writer because the ledger is fenced",
        "forgotten-fence": "a bookie that was killed forgot a fence",
        "late-store": "a bookie stored an entry of the writer above the end of the closed ledger",
    }
)
"""Every situation with its meaning."""


class _Ledger:
    """The state that situations of one ledger depend on."""

    __slots__ = ("adds", "changes", "decided", "end", "found", "fragments", "is_marked", "lost", "opened", "recovering")

    def __init__(self) -> None:
        #: Appends without an outcome, by (actor, entry).
        self.adds: set[tuple[str, int]] = set()
        #: First entries of fragments, with the event that stored them.
        self.changes: dict[int, int] = {}
        self.decided: set[tuple[str, int]] = set()
        self.end: int | None = None
        #: The fragments a recovery began with, by actor.
        self.found: dict[str, Any] = {}
        self.fragments: Any = None
        #: Copies altered or lost on the disk, by (bookie, entry).
        self.lost: set[tuple[str, int]] = set()
        #: When readers without recovery opened the ledger.
        self.opened: dict[str, int] = {}
        #: Whether any recovery ever began, and the clients that are recovering now.
        self.is_marked = False
        self.recovering: dict[str, None] = {}


class Situations:
    """Counts the situations of one history, as a listener of its writer. ``met`` has a count for each situation."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self._ledgers: dict[int, _Ledger] = {}
        self._handlers: Final[Mapping[str, Callable[[Event, _Ledger], None]]] = {
            Kind.FENCE_LOST: self._on_forgotten,
            Kind.META_CAS: self._on_cas,
            Kind.APP_ADD: self._on_add,
            Kind.APP_ACK: self._on_outcome,
            Kind.APP_FAIL: self._on_outcome,
            Kind.APP_CANCEL: self._on_cancel,
            Kind.CLOSE_START: self._on_close,
            Kind.OPEN_RESULT: self._on_open_result,
            Kind.REC_START: self._on_recovery,
            Kind.REC_DECIDE: self._on_decision,
            Kind.REC_READ_RESP: self._on_recovery_read,
            Kind.FENCE_RESP: self._on_fence_answer,
            Kind.READ_RESP: self._on_read,
            Kind.READ_RESULT: self._on_result,
            Kind.ADD_RESP: self._on_add_answer,
            Kind.BK_STORE: self._on_store,
            Kind.BK_LOSS: self._on_loss,
        }

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        kind = event.kind
        if kind in {Kind.BK_CRASH, Kind.CLIENT_CRASH}:
            for ledger in self._ledgers.values():
                if kind == Kind.CLIENT_CRASH:
                    ledger.recovering.pop(event.actor, None)
                elif ledger.recovering:
                    self.met["bookie-lost-in-recovery"] += 1
            return
        handle = self._handlers.get(kind)
        if handle is not None:
            found = self._ledgers.get(event.ledger)
            handle(event, found if found is not None else self._ledgers.setdefault(event.ledger, _Ledger()))

    # Metadata ----------------------------------------------------------------------------------------------------

    def _on_forgotten(self, event: Event, _ledger: _Ledger) -> None:  # noqa: ARG002
        self.met["forgotten-fence"] += 1

    def _on_cas(self, event: Event, ledger: _Ledger) -> None:
        fields = event.fields
        cause, outcome = fields["cause"], fields["outcome"]
        if outcome == "conflict" and cause == "ensemble" and ledger.is_marked:
            self.met["change-meets-recovery"] += 1
        if outcome == "conflict" and cause == "recover" and fields["expected_version"] + 1 in ledger.changes:
            self.met["change-meets-recovery"] += 1
        if outcome != "ok":
            return
        if cause == "ensemble":
            self.met["ensemble-change"] += 1
            ledger.changes[fields["version"]] = event.seq
        if cause == "recover":
            ledger.recovering[event.actor] = None
            ledger.is_marked = True
        if fields["state"] == "CLOSED" and ledger.end is None:
            ledger.end = fields["last_entry"]
            found = ledger.found.get(event.actor)
            self.met["recovery-replaces"] += found is not None and found != fields["fragments"]
        ledger.fragments = fields["fragments"]

    # Applications ------------------------------------------------------------------------------------------------

    def _on_add(self, event: Event, ledger: _Ledger) -> None:
        ledger.adds.add((event.actor, event.fields["entry"]))

    def _on_outcome(self, event: Event, ledger: _Ledger) -> None:
        ledger.adds.discard((event.actor, event.fields["entry"]))

    def _on_cancel(self, event: Event, ledger: _Ledger) -> None:
        self._on_outcome(event, ledger)
        self.met["cancelled-append"] += 1

    def _on_close(self, event: Event, ledger: _Ledger) -> None:
        self.met["close-cuts-off"] += any(actor == event.actor for actor, _ in ledger.adds)

    def _on_open_result(self, event: Event, ledger: _Ledger) -> None:
        fields = event.fields
        if fields["recovery"]:
            ledger.recovering.pop(event.actor, None)
            self.met["failed-recovery"] += fields["code"] != _OK
        elif fields["code"] == _OK and fields["state"] != "CLOSED":
            ledger.opened[event.actor] = event.seq

    def _on_result(self, event: Event, ledger: _Ledger) -> None:
        opened = ledger.opened.get(event.actor)
        if event.fields["code"] != _OK or opened is None or not ledger.fragments:
            return
        first = max(first for first, _ in ledger.fragments if first <= max(event.fields["entry"], 0))
        changed_since = any(seq > opened for seq in ledger.changes.values())
        self.met["reader-crosses-change"] += changed_since and first > 0

    # Recovery ----------------------------------------------------------------------------------------------------

    def _on_recovery(self, event: Event, ledger: _Ledger) -> None:
        self.met["recovery"] += 1
        ledger.recovering[event.actor] = None
        ledger.found[event.actor] = ledger.fragments
        self.met["rival-recoveries"] += len(ledger.recovering) > 1

    def _on_decision(self, event: Event, ledger: _Ledger) -> None:
        ledger.decided.add((event.actor, event.fields["entry"]))
        self.met["undecided-entry"] += event.fields["verdict"] == "unknown"

    def _on_recovery_read(self, event: Event, ledger: _Ledger) -> None:
        fields = event.fields
        self._see_copy(event, ledger)
        is_open = event.actor in ledger.recovering and (event.actor, fields["entry"]) not in ledger.decided
        if is_open and fields["fence"] and fields["code"] != _OK and fields["code"] not in _DENIALS:
            self.met["unknown-answer"] += 1

    def _on_fence_answer(self, event: Event, ledger: _Ledger) -> None:
        code = event.fields["code"]
        self.met["unknown-answer"] += event.actor in ledger.recovering and code != _OK and code not in _DENIALS

    def _on_add_answer(self, event: Event, ledger: _Ledger) -> None:
        fields = event.fields
        if fields["recovery"]:
            self.met["unanswered-write-back"] += fields["code"] != _OK and event.actor in ledger.recovering
        else:
            self.met["fenced-writer"] += fields["code"] == _FENCED

    # Bookies -----------------------------------------------------------------------------------------------------

    def _on_store(self, event: Event, ledger: _Ledger) -> None:
        entry = event.fields["entry"]
        ledger.lost.discard((event.actor, entry))
        self.met["late-store"] += not event.fields["recovery"] and ledger.end is not None and entry > ledger.end

    def _on_loss(self, event: Event, ledger: _Ledger) -> None:
        ledger.lost.add((event.actor, event.fields["entry"]))

    def _on_read(self, event: Event, ledger: _Ledger) -> None:
        self._see_copy(event, ledger)

    def _see_copy(self, event: Event, ledger: _Ledger) -> None:
        fields = event.fields
        self.met["altered-copy"] += fields["code"] == _OK and (fields["bookie"], fields["entry"]) in ledger.lost
