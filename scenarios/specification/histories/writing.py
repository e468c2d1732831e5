"""The actions of the writer."""

from __future__ import annotations

from typing import Any

from scenarios.specification.histories.messages import RecordedMessages, RecordedRequest
from scenarios.specification.histories.values import CLOSED, FENCED, OK, OPEN, Ensemble, Stored, require, write_set

__all__ = ["RecordedWriter", "replaced_in"]


def replaced_in(before: Ensemble, after: Ensemble) -> dict[str, str]:
    """Who takes whose place."""
    return {old: new for old, new in zip(before, after, strict=True) if old != new}


class RecordedWriter:
    """The client that created the ledger.

    Its LAC is at least ``shown``, which it told a bookie, its application or the metadata store, and at most ``_may``: with the
    confirmations that it has heard it could not be higher.
    """

    def __init__(self, actor: str, created: Stored, messages: RecordedMessages) -> None:
        self.actor = actor
        self._messages = messages
        self._sizes = created
        #: The ensemble that the metadata have, and those before it that may still be in effect: the writer takes notice later.
        self._ensemble = created.ensemble
        self._former: list[Ensemble] = []
        self.shown = self._may = -1
        self._appended = -1
        self._contents: dict[int, int | None] = {}
        self._given: set[int] = set()
        self._sent: dict[int, set[str]] = {}
        self._confirmed: dict[int, set[str]] = {}
        self._failed: set[str] = set()
        self._refused_by = ""
        self._end: int | None = None

    # Adds ------------------------------------------------------------------------------------------------------------

    def sends(self, event_actor: str, fields: dict[str, Any]) -> tuple[str, ...]:
        """ADD_SEND: ``ClientSendsAddEntryRequests`` or ``ClientResendsPendingAddOp``."""
        entry, bookie, lac = fields["entry"], fields["bookie"], fields["lac"]
        before = self._sent.setdefault(entry, set())
        is_new = not before
        content = fields["content"]
        self._messages.send(event_actor, fields.get("request"), RecordedRequest(self, bookie, "add", entry, content))
        is_repeated = bookie in before
        before.add(bookie)
        known = self._contents.setdefault(entry, content)
        require(event_actor == self.actor, f"{event_actor} writes, and {self.actor} created the ledger")
        require(self._end is None, f"entry {entry} is sent after the ledger was closed at {self._end}")
        require(not self._refused_by, f"entry {entry} is sent after {self._refused_by} said that the ledger is fenced")
        require(
            content is None or known is None or content == known, f"entry {entry} is sent with other bytes than before"
        )
        self._takes_effect(entry, bookie)
        require(lac <= self._may, f"entry {entry} tells the LAC {lac}, and may tell {self._may}")
        self.shown = max(self.shown, lac)
        if is_repeated:
            return ("sends again",)
        return ("ClientSendsAddEntryRequests",) if is_new or not self._has_changed else ("ClientResendsPendingAddOp",)

    @property
    def _has_changed(self) -> bool:
        return self._ensemble != self._sizes.ensemble

    def _takes_effect(self, entry: int, bookie: str) -> None:
        """The bookie is in the write set of an ensemble that may be in effect; those before it are not any more."""
        ensembles = [*self._former, self._ensemble]
        for number, ensemble in enumerate(ensembles):
            if bookie in write_set(ensemble, entry, self._sizes.write_quorum):
                del self._former[:number]
                return
        require(False, f"entry {entry} is sent to {bookie}, which is not in its write set")  # noqa: FBT003

    def appends(self, entry: int, *, given: bool) -> tuple[str, ...]:
        """APP_ADD: the next entry, unless the application chooses ids itself."""
        if given:
            require(entry not in self._given, f"entry {entry} is appended twice")
            self._given.add(entry)
            return ("appends under a given id",)
        before, self._appended = self._appended, entry
        require(entry == before + 1, f"entry {entry} is appended after {before}")
        return ()

    # Answers ---------------------------------------------------------------------------------------------------------

    def hears(self, asked: RecordedRequest, code: int) -> tuple[str, ...]:
        """ADD_RESP."""
        bookie, entry = asked.bookie, asked.entry
        if code == OK:
            if bookie not in write_set(self._ensemble, entry, self._sizes.write_quorum):
                return ("takes no notice",)
            self._confirmed.setdefault(entry, set()).add(bookie)
            self._advance()
            return ("ClientReceivesAddConfirmedResponse",)
        if code == FENCED:
            if bookie in self._ensemble and not self._former and not self._has_quorum(entry):
                self._refused_by = bookie
                return ("ClientReceivesAddFencedResponse",)
            self._failed.add(bookie)
            return ("takes a late refusal for a failure",)
        self._failed.add(bookie)
        return ("notes a failure",)

    def _advance(self) -> None:
        """``MaxContiguousConfirmedEntry``."""
        while self._has_quorum(self._may + 1):
            self._may += 1

    def _has_quorum(self, entry: int) -> bool:
        """Whether it has its ack quorum, and so is at most the LAC or waits for the entries before it."""
        bookies = self._confirmed.get(entry, ())
        members = write_set(self._ensemble, entry, self._sizes.write_quorum)
        return entry <= self._may or sum(one in bookies for one in members) >= self._sizes.ack_quorum

    def acknowledges(self, fields: dict[str, Any]) -> tuple[str, ...]:
        """APP_ACK: the LAC has passed the entry."""
        entry, content = fields["entry"], fields["content"]
        require(entry <= self._may, f"entry {entry} is acknowledged, and the LAC may be {self._may}")
        require(
            content is None or self._contents.get(entry) in {None, content},
            f"entry {entry} is acknowledged with other bytes than were sent",
        )
        if not fields["durable"]:
            return ("acknowledges before it is durable",)
        self.shown = max(self.shown, entry)
        return ("acknowledges",)

    # Metadata --------------------------------------------------------------------------------------------------------

    def changes(self, before: Stored, after: Stored) -> tuple[str, ...]:
        """META_CAS of an ensemble: ``ClientChangesEnsemble``, or the metadata as they are."""
        if before.state == OPEN and (after.state, after.fragments) == (OPEN, before.fragments):
            return ("stores what is stored",)
        self._former.append(self._ensemble)
        mine, self._ensemble = self._ensemble, after.ensemble
        replaced = replaced_in(mine, after.ensemble)
        may, first = self._may, after.fragments[-1][0]
        for bookies in self._confirmed.values():
            bookies.difference_update(replaced)
        self._may = first - 1
        self._advance()
        known, self._failed = self._failed | replaced_in(mine, before.ensemble).keys(), self._failed - replaced.keys()
        require(
            before.state == after.state == OPEN, f"a writer changes the ensemble of a ledger that is {before.state}"
        )
        kept = before.fragments[:-1] if before.fragments[-1][0] == first else before.fragments
        require(
            after.fragments == (*kept, (first, after.ensemble)), f"{after.fragments} do not follow {before.fragments}"
        )
        require(
            self.shown <= first - 1 <= may,
            f"a fragment begins at {first}, and the LAC is at least {self.shown} and at most {may}",
        )
        require(bool(replaced), "nobody is replaced")
        require(replaced.keys() <= known, f"{sorted(replaced.keys() - known)} are replaced, and did not fail")
        require(not set(replaced.values()) & set(mine), "a bookie comes in that is there already, or is replaced")
        self.shown = first - 1
        return ("ClientChangesEnsemble",)

    def closes(self, before: Stored, after: Stored) -> tuple[str, ...]:
        """META_CAS of the end: ``ClientClosesLedgerSuccess``."""
        may, self._end = self._may, after.last_entry
        self._may = min(may, after.last_entry)
        require(before.state != CLOSED, "a ledger is closed twice")
        require(after.fragments == before.fragments, "a close changes the fragments")
        require(
            self.shown <= after.last_entry <= may,
            f"it closes at {after.last_entry}, and the LAC is at least {self.shown} and at most {may}",
        )
        self.shown = after.last_entry
        return ("ClientClosesLedgerSuccess",) if before.state == OPEN else ("closes a ledger that is marked",)

    def wrote(self, entry: int, content: int | None) -> None:
        """Somebody found the entry (``NoOutOfOrderEntries``): it holds what was sent."""
        known = self._contents.get(entry)
        require(entry in self._contents, f"entry {entry} is found, and was never sent")
        require(None in {content, known} or content == known, f"entry {entry} is found with other bytes than were sent")
