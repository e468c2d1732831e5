"""An acknowledged entry stays on the bookies that readers ask for it."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import Ack, LedgerFacts
from scenarios.checker.metadata import CLOSED, Metadata, changed_ranges
from scenarios.history.schema import Event, Kind

__all__ = ["AckedReadable"]


class AckedReadable(Family):
    """Acknowledged entries can be read (A4, A5, A9), closed ledgers are complete (B4), and bookies do not drop them (D12).

    A4, A5: at every moment, of the write set of an entry ``e`` that was acknowledged as durable, under the stored metadata, at
    least ``Qa - lost(e)`` bookies hold ``e``, and so at least one while ``lost(e) < Qa``. That may change with an
    acknowledgement, a change of the metadata, or a loss; a loss lowers both sides, so the first two are the moments to look.

    B4: the same for every entry of a closed ledger, acknowledged or not, from when it is closed on.

    What was acknowledged before it was durable (deferred sync) is promised nothing: the ledger may be closed below it, and
    bookies may come to its write set that never had it.

    D12: a bookie drops a ledger only when that is deleted or has no fragment there.

    A9: while fewer than Qa bookies ever lost ``e``, no read that began after ``e`` was acknowledged, or the ledger was
    closed with it, ends in "no such entry". A reader with old metadata may ask bookies that never had ``e``, so its
    answer counts only if the ensemble it asked is the one stored now.

    Sound, because ``lost(e)`` counts every bookie that ever lost ``e``, for any reason, and only guarantees that follow
    from the quorum arithmetic are checked.
    """

    clauses = ("A4", "A5", "B4", "D12", "A9")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        #: When each read that is under way began, and since when its entry was committed then; None if it was not.
        self._reads: dict[tuple[str, int], tuple[int, int | None]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Acknowledgements, metadata, garbage collection, reads; the facts have the copies."""
        return {
            Kind.APP_ACK: self.on_ack,
            Kind.META_CAS: self.on_metadata,
            Kind.META_READ: self.on_metadata,
            Kind.BK_GC: self.on_gc,
            Kind.READ_SEND: self.on_read_send,
            Kind.READ_RESULT: self.on_read_result,
        }

    # Copies ------------------------------------------------------------------------------------------------------

    def on_ack(self, event: Event) -> None:
        """Check the copies of the entry."""
        stored = self.facts.stored
        if stored is not None:
            entry = event.fields["entry"]
            self._check_acked(entry, self.facts.acked[entry], stored, event.seq)

    def on_metadata(self, event: Event) -> None:
        """Check the copies of acknowledged entries under the new metadata."""
        stored, previous = self.facts.stored, self.facts.metadata.previous
        if stored is None or stored.seq != event.seq:
            return
        if previous is not None and previous.is_sound:
            for first, end in changed_ranges(previous, stored):
                last = self.facts.max_acked if end is None else min(end - 1, self.facts.max_acked)
                for entry in range(first, last + 1):
                    ack = self.facts.acked.get(entry)
                    if ack is not None:
                        self._check_acked(entry, ack, stored, event.seq)
        if stored.state == CLOSED:
            self._check_closed(stored, event.seq)

    def on_gc(self, event: Event) -> None:
        """Check that the ledger has no fragment on the bookie."""
        self.checked["D12"] += 1
        stored = self.facts.stored
        if stored is None or not stored.has_member(event.actor):
            return
        self.broken(
            "D12",
            f"{event.actor} dropped the ledger, of which the stored metadata (version {stored.version}) names it a member",
            stored.seq,
            event.seq,
        )
        for entry, ack in self.facts.acked.items():
            self._check_acked(entry, ack, stored, event.seq)
        if stored.state == CLOSED:
            self._check_closed(stored, event.seq)

    def _check_acked(self, entry: int, ack: Ack, stored: Metadata, seq: int) -> None:
        if not self.facts.recording or not ack.is_durable:
            return
        self.checked["A5"] += 1
        self.checked["A4"] += 1
        write_set = stored.write_set(entry)
        held = self.facts.copies_in(entry, write_set)
        if held >= stored.ack_quorum_size:
            return
        lost = self.facts.losses_of(entry)
        if held >= stored.ack_quorum_size - lost:
            return
        told = f"entry {entry}, acknowledged to the application of {ack.actor},"
        where = f"its write set {', '.join(write_set)} under the stored metadata (version {stored.version})"
        if held == 0:
            self.broken("A4", f"{told} is on no bookie of {where}", ack.seq, stored.seq, seq)
        else:
            wanted = stored.ack_quorum_size - lost
            self.broken("A5", f"{told} is on {held} of {where} instead of {wanted}", ack.seq, stored.seq, seq)

    def _check_closed(self, stored: Metadata, seq: int) -> None:
        if not self.facts.recording:
            return
        self.checked["B4"] += 1
        for entry in range(stored.last_entry + 1):
            write_set = stored.write_set(entry)
            held = self.facts.copies_in(entry, write_set)
            if held < stored.ack_quorum_size and held < stored.ack_quorum_size - self.facts.losses_of(entry):
                self.broken(
                    "B4",
                    f"the ledger was closed at entry {stored.last_entry}, but entry {entry} is on {held} of "
                    f"{', '.join(write_set)} instead of {stored.ack_quorum_size - self.facts.losses_of(entry)}",
                    *dict.fromkeys((stored.seq, seq)),
                )
                return

    # Reads -------------------------------------------------------------------------------------------------------

    def on_read_send(self, event: Event) -> None:
        """Note when the read began, and whether the entry was committed then."""
        key = (event.actor, event.fields["entry"])
        if key not in self._reads:
            self._reads[key] = (event.seq, self._committed_since(event.fields["entry"]))

    def on_read_result(self, event: Event) -> None:
        """Check that a denied entry was not committed before the read began."""
        fields = event.fields
        entry = fields["entry"]
        began, since = self._reads.pop((event.actor, entry), (None, None))
        if began is None or since is None:
            return
        self.checked["A9"] += 1
        if fields["code"] not in codes.NEGATIVES or not self.facts.is_conclusive_denial(entry, fields["version"]):
            return
        self.broken(
            "A9",
            f"{event.actor} was told that entry {entry} does not exist; it was committed before the read began",
            since,
            began,
            event.seq,
        )

    def _committed_since(self, entry: int) -> int | None:
        ack, stored = self.facts.acked.get(entry), self.facts.stored
        if ack is not None and ack.is_durable:
            return ack.seq
        if stored is not None and stored.state == CLOSED and entry <= stored.last_entry:
            return stored.seq
        return None
