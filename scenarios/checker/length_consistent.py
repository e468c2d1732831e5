"""Lengths are sums of payload sizes."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.codes import OK
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import CLOSED, Metadata
from scenarios.history.schema import Event, Kind

__all__ = ["LengthConsistent"]


class LengthConsistent(Family):
    """The length in an entry's header, and that of the closed ledger, is the sum of the payloads up to there (B6).

    Entries are judged when the writer's application has appended them and their ids are the writer's own. Where the
    application gives the ids, an entry may be sent before those below it, and its length is unknown then; its header is
    not checked, nor is the length that a recovery takes from such a header.

    The closing length is judged if every entry up to the end was seen on its way. A client may recover the ledger that it writes;
    which of the two closes it is not told, so with given ids neither is judged. A recovery that wrote nothing back has the length
    from the last entry; where it asked for that and no bookie gave it, the length is a guess, and not judged.
    """

    clauses = ("B6",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        #: Of each entry that a writer sent: size, length in its header, event.
        self._sent: dict[int, tuple[int, int, int]] = {}
        self._ids_given = False
        #: By client that recovers the ledger: the entries that it asked for since it began, and those that it was given or wrote
        #: back.
        self._asked: dict[str, set[int]] = {}
        self._had: dict[str, set[int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Entries on their way, appends, recoveries with what they read, and closing writes."""
        return {
            Kind.ADD_SEND: self.on_send,
            Kind.APP_ADD: self.on_add,
            Kind.REC_START: self.on_recovery,
            Kind.READ_SEND: self.on_read,
            Kind.READ_RESP: self.on_read_answer,
            Kind.META_CAS: self.on_cas,
        }

    def on_send(self, event: Event) -> None:
        """Note size and length of the entry."""
        fields = event.fields
        size, length = fields["size"], fields["length"]
        if fields["recovery"]:
            if event.actor in self._had:
                self._had[event.actor].add(fields["entry"])
        elif size is not None and length is not None:
            self._sent.setdefault(fields["entry"], (size, length, event.seq))

    def on_add(self, event: Event) -> None:
        """Check the length of the entry; its ADD_SENDs come before."""
        if event.fields.get("given") is not False:
            self._ids_given = True
            return
        entry = event.fields["entry"]
        sent = self._sent.get(entry)
        before = self._sent.get(entry - 1) if entry > 0 else (0, 0, -1)
        if sent is None or before is None:
            return
        self.checked["B6"] += 1
        if sent[1] != before[1] + sent[0]:
            self.broken(
                "B6",
                f"{event.actor} sent entry {entry} of {sent[0]} bytes with length {sent[1]}, the entry before it had length "
                f"{before[1]}",
                *(seq for seq in (before[2], sent[2]) if seq >= 0),
            )

    def on_recovery(self, event: Event) -> None:
        """Note who recovers the ledger."""
        self._asked[event.actor], self._had[event.actor] = set(), set()

    def on_read(self, event: Event) -> None:
        """Note what is read by a client that recovers the ledger."""
        if event.actor in self._asked:
            self._asked[event.actor].add(event.fields["entry"])

    def on_read_answer(self, event: Event) -> None:
        """Note what it was given."""
        if event.fields["code"] == OK and event.actor in self._had:
            self._had[event.actor].add(event.fields["entry"])

    def on_cas(self, event: Event) -> None:
        """Judge the length that a ledger is closed with."""
        stored = self.facts.metadata.current
        if stored is None or stored.seq != event.seq or stored.state != CLOSED or stored.cause != "close":
            return
        is_writer = stored.author == self.facts.metadata.creator and stored.author not in self._asked
        if self._ids_given and not is_writer:
            return
        asked, had = self._asked.get(stored.author, ()), self._had.get(stored.author, ())
        if stored.last_entry in asked and stored.last_entry not in had:
            return  # it could not measure
        self._check_end(stored)

    def _check_end(self, stored: Metadata) -> None:
        if stored.last_entry >= len(self._sent):
            return  # some entry below the end was never seen
        sizes = [self._sent.get(entry) for entry in range(stored.last_entry + 1)]
        total = 0
        for sent in sizes:
            if sent is None:
                return
            total += sent[0]
        self.checked["B6"] += 1
        if stored.length != total:
            last = sizes[-1] if sizes else None
            self.broken(
                "B6",
                f"{stored.author} closed the ledger after entry {stored.last_entry} with length {stored.length}; its entries "
                f"have {total} bytes",
                *((last[2],) if last is not None else ()),
                stored.seq,
            )
