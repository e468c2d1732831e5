"""A fence is permanent: a fenced bookie refuses the writer's adds, and confirms only a durable fence."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["FencedStaysFenced"]


class _Fence:
    """The fence on one bookie; ``memory_seq`` is the event of a fence that is not durable yet.

    ``crashed`` says whether it has, or has collected the ledger: what it answers proves nothing then.
    """

    __slots__ = ("crashed", "durable_seq", "memory_seq")

    def __init__(self) -> None:
        self.memory_seq = -1
        self.durable_seq = -1
        self.crashed = False


class FencedStaysFenced(Family):
    """Fences are permanent, and bookies that confirm a fence have it (D1, D2, D3, E5).

    D1: after FENCE_SET a bookie stores no entry that is not part of a recovery. A durable fence holds for ever,
    restarts included; one that is not durable yet may go with a crash. A bookie that collected the ledger remembers until it
    crashes that it was fenced. Then its fence is gone, and its word about entries: the next add makes the ledger anew.

    D2: an OK to a fencing read means that the fence is durable. A fence set before a crash may have become durable
    without an event that tells; then nothing is concluded.

    D3: a bookie whose denial a recovery counts is fenced, durably or not: BookKeeper's own bookie does not wait with
    errors. A bookie that collected the ledger may deny without a fence.

    E5: once a recovery has ruled an entry out, the bookies whose denials decided it never store it for the old writer.
    Given D1 and D3 this fails only where a fence was lost before it was durable, which is how BookKeeper's default can
    lose data.
    """

    clauses = ("D1", "D2", "D3", "E5")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._fences: dict[str, _Fence] = {}
        #: Those that collected the ledger, and have no newer fence.
        self._dropped: set[str] = set()
        #: Those that lost their fence and have no other one.
        self._without: set[str] = set()
        self._absent: dict[int, dict[str, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Fences, stored entries, and answers that confirm a fence."""
        return {
            Kind.FENCE_SET: self.on_fence,
            Kind.BK_STORE: self.on_store,
            Kind.BK_CRASH: self.on_crash,
            Kind.FENCE_LOST: self.on_forgotten,
            Kind.BK_GC: self.on_gc,
            Kind.FENCE_RESP: self.on_fence_answer,
            Kind.REC_READ_RESP: self.on_read_answer,
            Kind.REC_DECIDE: self.on_decision,
        }

    def on_fence(self, event: Event) -> None:
        """The bookie fenced the ledger, or made that durable."""
        fence = self._fences.setdefault(event.actor, _Fence())
        fence.crashed = False
        self._without.discard(event.actor)
        if not event.fields["durable"]:
            self._dropped.discard(event.actor)
            fence.memory_seq = event.seq
        elif fence.durable_seq < 0:
            fence.durable_seq = event.seq

    def on_crash(self, event: Event) -> None:
        """A fence that is not durable may be lost, and that of a collected ledger is."""
        if event.actor in self._dropped:
            self.on_forgotten(event)
        fence = self._fences.get(event.actor)
        if fence is not None:
            fence.memory_seq = -1
            fence.crashed = True

    def on_forgotten(self, event: Event) -> None:
        """The bookie lost its fence: only a later fence is checked."""
        fence = self._fences.get(event.actor)
        if fence is not None:
            fence.memory_seq = fence.durable_seq = -1
        self._without.add(event.actor)
        for deniers in self._absent.values():
            deniers.pop(event.actor, None)

    def on_gc(self, event: Event) -> None:
        """The bookie remembers the fence no longer than its process lives."""
        self._dropped.add(event.actor)
        fence = self._fences.get(event.actor)
        if fence is not None:
            fence.crashed = True  # what it said before may still be under way

    def on_store(self, event: Event) -> None:
        """Check that the bookie may store the entry."""
        if event.fields["recovery"]:
            return
        if self._fences:
            fence = self._fences.get(event.actor)
            if fence is not None:
                self.checked["D1"] += 1
                fenced_seq = fence.durable_seq if fence.durable_seq >= 0 else fence.memory_seq
                if fenced_seq >= 0:
                    self.broken(
                        "D1",
                        f"{event.actor} stored entry {event.fields['entry']} of {event.fields['source']} after it was fenced",
                        fenced_seq,
                        event.seq,
                    )
        if self._absent:
            deniers = self._absent.get(event.fields["entry"])
            if deniers is not None:
                self.checked["E5"] += 1
                if event.actor in deniers:
                    self.broken(
                        "E5",
                        f"{event.actor} stored entry {event.fields['entry']} of {event.fields['source']} after a recovery had "
                        "ruled the entry out by its denial",
                        deniers[event.actor],
                        event.seq,
                    )

    def on_fence_answer(self, event: Event) -> None:
        """An answer to the fencing read of the last entry."""
        fields = event.fields
        self._check_answer(event, fields["bookie"], fields["code"], is_fencing=True)

    def on_read_answer(self, event: Event) -> None:
        """An answer to a recovery read of one entry."""
        fields = event.fields
        run = self.facts.run_of(event.actor)
        # The read that measures the last entry of a ledger without a tail is not a fencing read; it is below the first read.
        is_deciding = run is not None and run.first_read is not None and fields["entry"] >= run.first_read
        if fields["fence"] or is_deciding:
            self._check_answer(event, fields["bookie"], fields["code"], is_fencing=fields["fence"])

    def _check_answer(self, event: Event, bookie: str, code: int, *, is_fencing: bool) -> None:
        if not self.facts.recording:
            return
        fence = self._fences.get(bookie)
        if code == codes.OK and is_fencing:
            self.checked["D2"] += 1
            if fence is None or (fence.durable_seq < 0 and not fence.crashed):
                self.broken(
                    "D2",
                    f"{bookie} answered a fencing read of {event.actor} before its fence was durable",
                    fence.memory_seq if fence is not None and fence.memory_seq >= 0 else event.seq,
                    event.seq,
                )
        elif code in codes.NEGATIVES:
            self.checked["D3"] += 1
            if fence is None and bookie not in self.facts.collected:
                self.broken(
                    "D3",
                    f"{bookie} denied {event.actor} an entry without being fenced"
                    + ("" if is_fencing else ": the read did not ask for it"),
                    event.seq,
                )

    def on_decision(self, event: Event) -> None:
        """Note the bookies that denied an entry that was ruled out."""
        fields = event.fields
        if fields["verdict"] == "negative":
            deniers = self._absent.setdefault(fields["entry"], {})
            for bookie in fields["bookies"].split(","):
                if bookie not in self._without:  # its denial was under way when it lost its fence
                    deniers.setdefault(bookie, event.seq)
