"""A history, and what its events are in the specification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from scenarios.history.schema import Event
from scenarios.specification.histories.ledgers import RecordedLedger
from scenarios.specification.values import NotSpecifiedError

__all__ = ["ACTIONS", "DIFFERENCES", "ConformedHistory", "NotSpecified", "conform_history"]

#: The actions of the specification that histories show.
ACTIONS: Final = (
    *("ClientCreatesLedger", "ClientSendsAddEntryRequests", "ClientResendsPendingAddOp"),
    *("ClientReceivesAddConfirmedResponse", "ClientReceivesAddFencedResponse", "ClientChangesEnsemble"),
    *("ClientClosesLedgerSuccess", "ClientStartsRecovery", "ClientReceivesFencingReadLacResponse"),
    *("ClientSendsRecoveryReadRequests", "ClientReceivesRecoveryReadResponse", "ClientWritesBackEntry"),
    *("RecoveryClientReceivesAddConfirmedResponse", "RecoveryClientChangesEnsemble", "RecoveryClientSendsPendingAddOp"),
    *("RecoveryClientClosesLedger", "BookieSendsAddConfirmedResponse", "BookieSendsAddFencedResponse"),
    *("BookieSendsFencingReadLacResponse", "BookieSendsReadResponse"),
)
#: What is done otherwise, or is told by an event of its own; and what happens that the specification does not have.
DIFFERENCES: Final = (
    *(
        "creates it again",
        "marks the ledger",
        "is not stored",
        "finds the ledger closed",
        "closes a ledger that is marked",
        "stores what is stored",
    ),
    *("appends under a given id", "sends again", "acknowledges", "acknowledges before it is durable"),
    *("takes no notice", "notes a failure", "takes a late refusal for a failure"),
    *("reads ahead", "finds an entry", "finds the end", "gives up", "learns the length", "recovers twice at a time"),
    *("loses a request", "fences by itself", "answers with an altered copy", "loses an entry", "forgets its fence"),
    *("collects the ledger", "copies an entry", "repairs the ledger", "deletes the ledger"),
)
_TOLD_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class NotSpecified:
    """An event that is no action of the specification, nor anything listed."""

    seq: int
    actor: str
    kind: str
    ledger: int
    what: str

    def __str__(self) -> str:
        return f"event {self.seq}, {self.kind} of {self.actor}, ledger {self.ledger}: {self.what}"


@dataclass(slots=True)
class ConformedHistory:
    """How often each action was taken and each difference met; and the events that are neither, the first ones."""

    actions: Counter[str] = field(default_factory=Counter)
    events: int = 0
    steps: int = 0
    ledgers: int = 0
    #: Ledgers that were not judged to the end, and why.
    left: dict[int, str] = field(default_factory=dict)
    wrong: list[NotSpecified] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every step consists of actions of the specification and of listed differences."""
        return not self.wrong

    def as_json(self) -> dict[str, object]:
        """The shape that ``bk-chaos conform --json`` prints for each history."""
        return {
            "events": self.events,
            "steps": self.steps,
            "ledgers": self.ledgers,
            "left": {str(ledger): why for ledger, why in sorted(self.left.items())},
            "actions": dict(sorted(self.actions.items())),
            "wrong": [
                {"seq": one.seq, "actor": one.actor, "kind": one.kind, "ledger": one.ledger, "what": one.what}
                for one in self.wrong
            ],
        }


def conform_history(events: Iterable[Event]) -> ConformedHistory:
    """Hold every event to the specification, each ledger by itself; an event without a ledger happens to all of them."""
    conformed = ConformedHistory()
    recording: set[str] = set()
    ledgers: dict[int, RecordedLedger] = {}
    for event in events:
        conformed.events += 1
        if event.ledger < 0:
            concerned = tuple(ledgers.values())
        else:
            if event.ledger not in ledgers:
                ledgers[event.ledger] = RecordedLedger(recording)
            concerned = (ledgers[event.ledger],)
        for ledger in concerned:
            try:
                names = ledger.step(event)
            except NotSpecifiedError as error:
                conformed.steps += 1
                if len(conformed.wrong) < _TOLD_MAX:
                    conformed.wrong.append(NotSpecified(event.seq, event.actor, event.kind, event.ledger, str(error)))
            else:
                conformed.steps += bool(names)
                conformed.actions.update(names)
    conformed.ledgers = len(ledgers)
    conformed.left = {number: ledger.left for number, ledger in sorted(ledgers.items()) if ledger.left}
    return conformed
