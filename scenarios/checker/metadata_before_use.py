"""A bookie gets an entry only after its ensemble was stored."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler
from scenarios.history.schema import Event, Kind

__all__ = ["MetadataBeforeUse"]


class MetadataBeforeUse(Family):
    """An ordinary add goes to a bookie of a stored write set (C8).

    An ADD_SEND of ``e`` to ``b`` that is not part of a recovery needs ``b in ws(e, M)`` for some ``M`` that was stored
    by then.

    Any version stored so far is accepted, not only the newest: a writer that has not yet learned of another client's
    change continues with an older one. An ensemble whose write is in progress, or of unknown outcome, is not stored.
    """

    clauses = ("C8",)

    def handlers(self) -> Mapping[Kind, Handler]:
        """Adds that are sent."""
        return {Kind.ADD_SEND: self.on_send}

    def on_send(self, event: Event) -> None:
        """Judge an ordinary add."""
        fields = event.fields
        stored = self.facts.stored
        if fields["recovery"] or stored is None:
            return
        self.checked["C8"] += 1
        entry, bookie = fields["entry"], fields["bookie"]
        if bookie in stored.write_set(entry):
            return
        for older in self.facts.metadata.versions.values():
            if older.is_sound and bookie in older.write_set(entry):
                return
        self.broken(
            "C8",
            f"{event.actor} sent entry {entry} to {bookie}, which was in no stored write set of it; the newest (version "
            f"{stored.version}) is {', '.join(stored.write_set(entry))}",
            stored.seq,
            event.seq,
        )
