"""The actions of a recovery."""

from __future__ import annotations

from typing import Any

from scenarios.specification.histories.messages import RecordedMessages, RecordedRequest
from scenarios.specification.histories.values import (
    CLOSED,
    DENIALS,
    IN_RECOVERY,
    OK,
    Ensemble,
    Fragments,
    Stored,
    require,
)
from scenarios.specification.histories.writing import replaced_in

__all__ = ["RecordedRecovery"]


class RecordedRecovery:
    """One recovery, from its first fence on.

    Its ensemble changes show in the write-backs that it sends, and in the metadata with which it closes the ledger.
    """

    def __init__(self, actor: str, stored: Stored, messages: RecordedMessages) -> None:
        self.actor = actor
        self._messages = messages
        self._stored = stored
        self._ensemble = stored.ensemble
        self._start: int | None = None
        self._fenced: set[str] = set()
        self._lac = stored.fragments[-1][0] - 1
        #: LACs of bookies that tell nothing of themselves, or had lost entries: the client may not have believed them.
        self._doubted: set[int] = set()
        self._asked_to = -1
        self._answers: dict[int, dict[str, tuple[int, int | None]]] = {}
        #: The last entry that was found, and the one that was ruled out.
        self._lap = -1
        self.ruled_out: int | None = None
        self._has_given_up = False
        self._contents: dict[int, int | None] = {}
        self._sent: dict[int, set[str]] = {}
        self._confirmed: dict[int, set[str]] = {}
        self._failed: set[str] = set()
        self._newcomers: set[str] = set()
        self._end: int | None = None

    def found(self, entry: int) -> int | None:
        """What was found of an entry."""
        return self._contents.get(entry)

    # Fencing ---------------------------------------------------------------------------------------------------------

    def begins(self, first_entry: int, ensemble: Ensemble) -> tuple[str, ...]:
        """REC_START: ``ClientStartsRecovery``."""
        stored = self._stored
        require(stored.state == IN_RECOVERY, f"fencing begins, and the ledger is {stored.state}")
        require(
            (first_entry, ensemble) == stored.fragments[-1],
            f"it begins with the fragment of {first_entry} on {', '.join(ensemble)}, and not with the last one",
        )
        return ("ClientStartsRecovery",)

    def sends_fence(self, fields: dict[str, Any]) -> tuple[str, ...]:
        """FENCE_SEND."""
        self._messages.send(self.actor, fields.get("request"), RecordedRequest(self, fields["bookie"], "fence", -1))
        require(fields["bookie"] in self._ensemble, f"{fields['bookie']} is fenced, and is not in the last ensemble")
        return ()

    def hears_of_fence(self, fields: dict[str, Any], told: set[int]) -> tuple[str, ...]:
        """FENCE_RESP: ``ClientReceivesFencingReadLacResponse``; ``told`` are the LACs that the bookie could tell, if known."""
        code, lac = fields["code"], fields["lac"]
        if code != OK and code not in DENIALS:
            return ("notes a failure",)
        if self._start is not None:
            return ("takes no notice",)
        self._fenced.add(fields["bookie"])
        if code == OK and lac is not None:
            require(not told or lac in told, f"{fields['bookie']} tells the LAC {lac}, and not that of its last entry")
            if told:
                self._lac = max(self._lac, lac)
            else:
                self._doubted.add(lac)
        return ("ClientReceivesFencingReadLacResponse",)

    # Reading ---------------------------------------------------------------------------------------------------------

    def sends_read(self, fields: dict[str, Any]) -> tuple[str, ...]:
        """REC_READ_SEND: ``ClientSendsRecoveryReadRequests``."""
        entry, bookie = fields["entry"], fields["bookie"]
        self._messages.send(self.actor, fields.get("request"), RecordedRequest(self, bookie, "recovery-read", entry))
        if not fields["fence"]:
            require(self.ruled_out is not None and entry == self.ruled_out - 1, "a recovery read does not fence")
            return ("learns the length",)
        if self._start is None:
            self._start, self._lap, self._asked_to = entry, entry - 1, entry - 1
            require(
                self._stored.is_covered(self._ensemble, self._fenced),
                f"reading begins with {sorted(self._fenced)} fenced",
            )
            is_doubted = entry - 1 in self._doubted and entry > self._lac
            require(entry == self._lac + 1 or is_doubted, f"reading begins at {entry}, and the LAC is {self._lac}")
        asked_to, self._asked_to = self._asked_to, max(self._asked_to, entry)
        require(not self._has_given_up, "it reads after it has given up")
        require(self.ruled_out is None, f"it reads entry {entry} after it ruled out {self.ruled_out}")
        require(self._lap < entry <= asked_to + 1, f"it reads entry {entry}, and has read to {asked_to}")
        members = self._stored.write_set(self._ensemble, entry)
        require(bookie in members, f"read {entry} is sent to {bookie}, and not to {', '.join(members)}")
        return ("ClientSendsRecoveryReadRequests",) if entry == self._lap + 1 else ("reads ahead",)

    def hears_of_read(self, asked: RecordedRequest, code: int, content: int | None) -> tuple[str, ...]:
        """REC_READ_RESP: ``ClientReceivesRecoveryReadResponse``, which decides later."""
        self._answers.setdefault(asked.entry, {})[asked.bookie] = (code, content)
        return ("ClientReceivesRecoveryReadResponse",) if code == OK or code in DENIALS else ("notes a failure",)

    def decides(self, entry: int, verdict: str, bookies: tuple[str, ...]) -> tuple[str, ...]:
        """REC_DECIDE: what ``ReadStatus`` says."""
        answers, lap = self._answers.get(entry, {}), self._lap
        members = self._stored.write_set(self._ensemble, entry)
        if verdict == "positive":
            self._lap = entry
            require(
                bool(bookies) and all(answers.get(one, (None, None))[0] == OK for one in bookies),
                f"entry {entry} is recovered that nobody has sent",
            )
            self._contents[entry] = answers[bookies[0]][1]
            names: tuple[str, ...] = ("finds an entry",)
        elif verdict == "negative":
            self.ruled_out = entry
            deniers = {one for one in bookies if answers.get(one, (None, None))[0] in DENIALS} & set(members)
            needed = self._stored.write_quorum - self._stored.ack_quorum + 1
            require(len(deniers) >= needed, f"entry {entry} is ruled out by {sorted(deniers)}")
            names = ("finds the end",)
        else:
            self._has_given_up = True
            names = ("gives up",)
        require(entry == lap + 1, f"entry {entry} is decided after {lap}")
        return names

    # Writing back ----------------------------------------------------------------------------------------------------

    def sends(self, fields: dict[str, Any]) -> tuple[str, ...]:
        """ADD_SEND: ``ClientWritesBackEntry``, or ``RecoveryClientSendsPendingAddOp`` after an ensemble change."""
        entry, bookie, content = fields["entry"], fields["bookie"], fields["content"]
        self._messages.send(
            self.actor, fields.get("request"), RecordedRequest(self, bookie, "write-back", entry, content)
        )
        self._sent.setdefault(entry, set()).add(bookie)
        require(entry in self._contents, f"entry {entry} is written back, and was not found")
        found = self._contents[entry]
        require(
            content is None or found in {None, content},
            f"entry {entry} is written back with other bytes than were found",
        )
        require(
            self._start is not None and fields["lac"] < self._start,
            f"entry {entry} is written back with the LAC {fields['lac']}, and reading began at {self._start}",
        )
        require(not self._has_given_up, "it writes back after it has given up")
        require(self._end is None, f"entry {entry} is written back after the ledger was closed at {self._end}")
        if bookie in self._stored.write_set(self._ensemble, entry):
            return ("ClientWritesBackEntry",)
        comes, self._newcomers = bookie not in self._newcomers, self._newcomers | {bookie}
        gone = self._failed & {*self._ensemble, *self._newcomers}
        require(
            bookie not in self._ensemble and len(self._newcomers) <= len(gone),
            f"entry {entry} is written back to {bookie}, and only {sorted(gone)} failed",
        )
        return ("RecoveryClientChangesEnsemble",) * comes + ("RecoveryClientSendsPendingAddOp",)

    def hears(self, asked: RecordedRequest, code: int) -> tuple[str, ...]:
        """ADD_RESP: ``RecoveryClientReceivesAddConfirmedResponse``."""
        if code != OK:
            self._failed.add(asked.bookie)
            return ("notes a failure",)
        self._confirmed.setdefault(asked.entry, set()).add(asked.bookie)
        return ("RecoveryClientReceivesAddConfirmedResponse",)

    # Closing ---------------------------------------------------------------------------------------------------------

    def closes(self, before: Stored, after: Stored) -> tuple[str, ...]:
        """META_CAS of the end: ``RecoveryClientClosesLedger``."""
        self._end = after.last_entry
        require(
            (before.state, after.state) == (IN_RECOVERY, CLOSED), f"a recovery closes a ledger that is {before.state}"
        )
        require(not self._has_given_up, "it closes the ledger after it has given up")
        require(
            self.ruled_out is not None and self._start is not None, "it closes the ledger, and has not found the end"
        )
        assert self.ruled_out is not None, "just looked at"
        assert self._start is not None, "just looked at"
        require(
            after.last_entry == self.ruled_out - 1 == self._lap,
            f"it closes at {after.last_entry}, and has ruled out {self.ruled_out}",
        )
        self._check_fragments(before.fragments, after)
        for entry in range(self._start, after.last_entry + 1):
            members = after.write_set(after.ensemble_of(entry), entry)
            safe = [one for one in members if one in self._confirmed.get(entry, ())]
            require(len(safe) >= after.ack_quorum, f"it closes with entry {entry} written back to {safe}")
        return ("RecoveryClientClosesLedger",)

    def _check_fragments(self, before: Fragments, after: Stored) -> None:
        """The fragments are those that were, and those of the recovery's own ensemble changes (``ChangeEnsemble``)."""
        assert self._start is not None, "reading has begun"
        kept = [one for one in after.fragments if one[0] < self._start and one in before]
        added = after.fragments[len(kept) :]
        stays = before[: len(kept)]
        require(tuple(kept) == stays and len(before) - len(kept) <= 1, "fragments are lost, or others than before")
        ensemble = before[-1][1]
        for first, following in added:
            require(first >= self._start, f"a fragment begins at {first}, and reading began at {self._start}")
            replaced = replaced_in(ensemble, following)
            require(
                replaced.keys() <= self._failed,
                f"{sorted(replaced.keys() - self._failed)} are replaced, and did not fail",
            )
            require(
                not set(replaced.values()) & set(ensemble), "a bookie comes in that is there already, or is replaced"
            )
            ensemble = following
        if len(kept) < len(before):
            require(bool(added) and added[0][0] == before[-1][0], "the last fragment is lost")
