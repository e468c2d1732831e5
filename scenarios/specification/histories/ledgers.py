"""One ledger of a history: which event is whose action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from scenarios.history.schema import Event, Kind
from scenarios.specification.histories.bookies import RecordedBookie
from scenarios.specification.histories.messages import RecordedMessages, RecordedRequest
from scenarios.specification.histories.recovering import RecordedRecovery
from scenarios.specification.histories.values import (
    CLOSED,
    DENIALS,
    FENCED,
    IN_RECOVERY,
    OK,
    OPEN,
    Stored,
    require,
    stored_by,
)
from scenarios.specification.histories.writing import RecordedWriter
from scenarios.specification.values import NotSpecifiedError

__all__ = ["RecordedLedger"]

Names = tuple[str, ...]

#: What only a bookie can say; every other code may be the client's own.
_OF_BOOKIES: Final = frozenset({OK, FENCED, *DENIALS})


class RecordedLedger:
    """What is known of one ledger, and the actions that its events are.

    :meth:`step` raises :class:`~scenarios.specification.values.NotSpecifiedError` for an event that is none.
    """

    def __init__(self, recording: set[str]) -> None:
        self._messages = RecordedMessages(recording)
        self._stored: Stored | None = None
        self._versions: dict[int, Stored] = {}
        self._writer: RecordedWriter | None = None
        self._recoveries: dict[str, RecordedRecovery] = {}
        self._recovering: dict[str, int] = {}
        self._bookies: dict[str, RecordedBookie] = {}
        #: Why nothing of the ledger is judged any more.
        self.left = ""

    def step(self, event: Event) -> Names:
        """The actions that an event consists of."""
        if self.left:
            return ()
        if self._stored is None and event.kind != Kind.META_CAS:
            return ()
        handle = self._TABLE.get(event.kind)
        return () if handle is None else handle(self, event)

    def _bookie(self, name: str) -> RecordedBookie:
        bookie = self._bookies.get(name)
        return bookie if bookie is not None else self._bookies.setdefault(name, RecordedBookie(name, self._messages))

    # The metadata store ----------------------------------------------------------------------------------------------

    def _on_cas(self, event: Event) -> Names:
        fields, before = event.fields, self._stored
        if fields["outcome"] != "ok":
            return () if before is None else ("is not stored",)
        cause = fields["cause"]
        if cause == "delete":
            self.left = "it was deleted"
            return ("deletes the ledger",)
        if before is None and cause != "create":
            self.left = "its creation is not recorded"
            return ()
        after = stored_by(dict(fields))
        if cause == "create" and after == before:
            return ("creates it again",)
        self._stored = self._versions[after.version] = after
        if before is None:
            return self._creates(event.actor, after)
        require(fields["expected_version"] == before.version, "a write does not follow the version that is stored")
        sizes = (before.ensemble_size, before.write_quorum, before.ack_quorum)
        require(sizes == (after.ensemble_size, after.write_quorum, after.ack_quorum), "the quorums change")
        return self._writes(event, cause, before, after)

    def _creates(self, actor: str, after: Stored) -> Names:
        self._writer = RecordedWriter(actor, after, self._messages)
        require(after.state == OPEN and len(after.fragments) == 1, f"a ledger is created {after.state}")
        return ("ClientCreatesLedger",)

    def _writes(self, event: Event, cause: str, before: Stored, after: Stored) -> Names:
        writer, actor = self._writer, event.actor
        assert writer is not None, "there is metadata, so somebody created the ledger"
        if cause == "rereplicate":
            require((before.state, before.last_entry) == (after.state, after.last_entry), "a repair changes the end")
            return ("repairs the ledger",)
        if cause == "recover":
            require(before.state in {OPEN, IN_RECOVERY}, f"a ledger is marked that is {before.state}")
            require(before.fragments == after.fragments, "a mark changes the fragments")
            return ("marks the ledger",)
        if cause == "ensemble":
            require(actor == writer.actor, f"{actor} changes the ensemble, and {writer.actor} created the ledger")
            return writer.changes(before, after)
        require(before.state != CLOSED, "a ledger is closed twice")
        recovery = self._recoveries.pop(actor, None) if before.state == IN_RECOVERY else None
        if recovery is None:
            if actor != writer.actor and self._recovering.get(actor, 0) > 1:
                return ("recovers twice at a time",)
            require(actor == writer.actor, f"{actor} closes the ledger without a recovery")
            return writer.closes(before, after)
        try:
            return recovery.closes(before, after)
        except NotSpecifiedError:
            if actor != writer.actor:
                raise
            return writer.closes(before, after)  # it recovers its own ledger beside a writer that it did not close

    def _on_read(self, event: Event) -> Names:
        if event.fields["state"] == CLOSED and self._recoveries.pop(event.actor, None) is not None:
            return ("finds the ledger closed",)
        return ()

    # Clients ---------------------------------------------------------------------------------------------------------

    def _on_open_start(self, event: Event) -> Names:
        if event.fields["recovery"]:
            self._recovering[event.actor] = self._recovering.get(event.actor, 0) + 1
        return ()

    def _on_open_result(self, event: Event) -> Names:
        if event.fields["recovery"]:
            self._recovering[event.actor] = max(self._recovering.get(event.actor, 0) - 1, 0)
            if not self._recovering[event.actor]:
                self._recoveries.pop(event.actor, None)
        return ()

    def _on_client_crash(self, event: Event) -> Names:
        self._recovering.pop(event.actor, None)
        self._recoveries.pop(event.actor, None)
        return ()

    def _on_recovery_start(self, event: Event) -> Names:
        actor, fields = event.actor, event.fields
        stored = self._versions.get(fields["version"])
        require(stored is not None, f"fencing begins with version {fields['version']}, which was never stored")
        assert stored is not None, "just looked at"
        recovery = RecordedRecovery(actor, stored, self._messages)
        if self._recovering.get(actor, 0) > 1:
            self._recoveries.pop(actor, None)
            return ("recovers twice at a time",)
        self._recoveries[actor] = recovery
        return recovery.begins(fields["first_entry"], tuple(fields["bookies"].split(",")))

    def _on_add_send(self, event: Event) -> Names:
        writer = self._writer
        assert writer is not None, "somebody created the ledger"
        if not event.fields["recovery"]:
            return writer.sends(event.actor, dict(event.fields))
        return self._of_recovery(event, lambda recovery: recovery.sends(dict(event.fields)), "write-back")

    def _of_recovery(self, event: Event, act: Callable[[RecordedRecovery], Names], operation: str) -> Names:
        """What the recovery of this client does; without one it copies entries, which the specification does not know."""
        recovery = self._recoveries.get(event.actor)
        if recovery is not None:
            return act(recovery)
        fields = event.fields
        asked = RecordedRequest(None, fields["bookie"], operation, fields.get("entry", -1), fields.get("content"))
        self._messages.send(event.actor, fields.get("request"), asked)
        return ("copies an entry",) if operation == "write-back" else ("recovers twice at a time",)

    def _on_add_answer(self, event: Event) -> Names:
        fields = event.fields
        operation = "write-back" if fields["recovery"] else "add"
        asked = self._asked(event, operation, fields["entry"])
        if isinstance(asked.owner, RecordedWriter | RecordedRecovery):
            return asked.owner.hears(asked, fields["code"])
        return ()

    def _asked(self, event: Event, operation: str, entry: int) -> RecordedRequest:
        """The request that an event is the outcome of."""
        fields = event.fields
        if fields.get("request") is None:  # by a recorder that numbers nothing
            return RecordedRequest(None, fields["bookie"], operation, entry)
        asked = self._messages.asked(event.actor, fields["request"])
        require(asked is not None, f"an answer comes to {operation} {entry}, which was never sent")
        assert asked is not None, "just looked at"
        require(
            (asked.bookie, asked.operation, asked.entry) == (fields["bookie"], operation, entry),
            f"an answer comes to {operation} {entry}, and {asked.operation} {asked.entry} was sent",
        )
        if fields["code"] in _OF_BOOKIES:
            self._messages.hears(event.actor, asked.bookie, operation, entry, fields["code"])
        return asked

    def _on_fence_send(self, event: Event) -> Names:
        return self._of_recovery(event, lambda recovery: recovery.sends_fence(dict(event.fields)), "fence")

    def _on_fence_answer(self, event: Event) -> Names:
        asked = self._asked(event, "fence", -1)
        if not isinstance(asked.owner, RecordedRecovery):
            return ()
        bookie = self._bookies.get(asked.bookie)
        told = set() if bookie is None else bookie.told_lacs(event.actor)
        return asked.owner.hears_of_fence(dict(event.fields), told)

    def _on_recovery_read(self, event: Event) -> Names:
        return self._of_recovery(event, lambda recovery: recovery.sends_read(dict(event.fields)), "recovery-read")

    def _on_recovery_answer(self, event: Event) -> Names:
        fields = event.fields
        asked = self._asked(event, "recovery-read", fields["entry"])
        if isinstance(asked.owner, RecordedRecovery):
            return asked.owner.hears_of_read(asked, fields["code"], fields["content"])
        return ()

    def _on_decision(self, event: Event) -> Names:
        recovery, fields = self._recoveries.get(event.actor), event.fields
        if recovery is None:
            return ("recovers twice at a time",)
        names = recovery.decides(fields["entry"], fields["verdict"], tuple(fields["bookies"].split(",")))
        if fields["verdict"] == "positive":
            assert self._writer is not None, "somebody created the ledger"
            self._writer.wrote(fields["entry"], recovery.found(fields["entry"]))
        return names

    def _on_append(self, event: Event) -> Names:
        assert self._writer is not None, "somebody created the ledger"
        return self._writer.appends(event.fields["entry"], given=event.fields["given"])

    def _on_ack(self, event: Event) -> Names:
        assert self._writer is not None, "somebody created the ledger"
        return self._writer.acknowledges(dict(event.fields))

    # Bookies ---------------------------------------------------------------------------------------------------------

    def _on_arrival(self, event: Event) -> Names:
        return self._bookie(event.actor).arrives(dict(event.fields))

    def _on_answer(self, event: Event) -> Names:
        return self._bookie(event.actor).answers(dict(event.fields))

    def _on_store(self, event: Event) -> Names:
        return self._bookie(event.actor).stores(dict(event.fields))

    def _on_fence(self, event: Event) -> Names:
        return self._bookie(event.actor).fences(dict(event.fields))

    def _on_fence_lost(self, event: Event) -> Names:
        return self._bookie(event.actor).forgets()

    def _on_loss(self, event: Event) -> Names:
        return self._bookie(event.actor).loses(event.fields["entry"])

    def _on_collection(self, event: Event) -> Names:
        return self._bookie(event.actor).collects()

    def _on_crash(self, event: Event) -> Names:
        if event.actor in self._bookies:
            self._bookies[event.actor].crashes()
        return ()

    #: What is done about each kind of event; the specification has no readers, so nothing is done about others.
    _TABLE: ClassVar[Mapping[str, Callable[[RecordedLedger, Event], Names]]] = {
        Kind.META_CAS: _on_cas,
        Kind.META_READ: _on_read,
        Kind.OPEN_START: _on_open_start,
        Kind.OPEN_RESULT: _on_open_result,
        Kind.CLIENT_CRASH: _on_client_crash,
        Kind.APP_ADD: _on_append,
        Kind.APP_ACK: _on_ack,
        Kind.ADD_SEND: _on_add_send,
        Kind.ADD_RESP: _on_add_answer,
        Kind.REC_START: _on_recovery_start,
        Kind.FENCE_SEND: _on_fence_send,
        Kind.FENCE_RESP: _on_fence_answer,
        Kind.REC_READ_SEND: _on_recovery_read,
        Kind.REC_READ_RESP: _on_recovery_answer,
        Kind.REC_DECIDE: _on_decision,
        Kind.BK_RECV: _on_arrival,
        Kind.BK_ANSWER: _on_answer,
        Kind.BK_STORE: _on_store,
        Kind.FENCE_SET: _on_fence,
        Kind.FENCE_LOST: _on_fence_lost,
        Kind.BK_LOSS: _on_loss,
        Kind.BK_GC: _on_collection,
        Kind.BK_CRASH: _on_crash,
    }
