"""All steps that a search makes of the shipped machines, each with the actions of the specification that it consists of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bkclient.errors import Code
from bkclient.ledger import BookieId, Versioned
from bkclient.protocol.update import WriteMetadata
from scenarios.exhaustive.automata import Answered, ClientAutomaton, Stimulus
from scenarios.exhaustive.moves import ClusterMoves
from scenarios.machines.clients import MachineClient
from scenarios.specification.recovering import recovery_begins, recovery_step
from scenarios.specification.storing import Request, bookie_step
from scenarios.specification.values import NotSpecifiedError, SpecifiedClient, specified
from scenarios.specification.writing import Observed, writer_step

__all__ = ["ACTIONS", "DIFFERENCES", "Conformed", "conform"]

#: The actions of the specification that a cluster here can take; ledgers are created before a search begins.
ACTIONS: Final = (
    *("BookieSendsAddConfirmedResponse", "BookieSendsAddFencedResponse"),
    *("BookieSendsFencingReadLacResponse", "BookieSendsReadResponse"),
    *("ClientSendsAddEntryRequests", "ClientReceivesAddConfirmedResponse", "ClientReceivesAddFencedResponse"),
    *("ClientChangesEnsemble", "ClientResendsPendingAddOp", "ClientClosesLedgerSuccess", "ClientClosesLedgerFail"),
    *("ClientStartsRecovery", "ClientReceivesFencingReadLacResponse", "ClientSendsRecoveryReadRequests"),
    *("ClientReceivesRecoveryReadResponse", "ClientWritesBackEntry", "RecoveryClientReceivesAddConfirmedResponse"),
    *("RecoveryClientChangesEnsemble", "RecoveryClientSendsPendingAddOp", "RecoveryClientClosesLedger"),
)
#: What ours does otherwise; the page tells why it may.
DIFFERENCES: Final = (
    *("takes no notice", "asks for its metadata to be stored", "asks the metadata store again", "notes a failure"),
    *(
        "gives up what is pending",
        "withdraws",
        "closes after it failed",
        "lets an update end",
        "finds the ledger closed",
    ),
    *("begins", "gives up", "does without a bookie", "learns the length", "loses a request"),
)
_TOLD_MAX: Final = 5


@dataclass(slots=True)
class Conformed:
    """How often each action was taken and each difference met, and the steps that are neither."""

    actions: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every step consists of actions of the specification and of listed differences."""
        return not self.wrong

    def as_json(self) -> dict[str, object]:
        """Steps, actions by name, and what is wrong."""
        return {"steps": self.steps, "actions": dict(sorted(self.actions.items())), "wrong": self.wrong}

    def note(self, step: str, check: Callable[[], tuple[str, ...]]) -> None:
        """Check one step."""
        self.steps += 1
        try:
            self.actions.update(check())
        except NotSpecifiedError as error:
            if len(self.wrong) < _TOLD_MAX:
                self.wrong.append(f"{step}: {error}")


def conform(moves: ClusterMoves) -> Conformed:
    """Check all steps that a search has made."""
    conformed = Conformed()
    for stimulus, observed in _observed(moves.writer):
        conformed.note(f"writer: {_in_short(stimulus)}", partial(writer_step, moves.cluster, observed))
    for stimulus, observed in _observed(moves.recovery):
        conformed.note(f"recovery: {_in_short(stimulus)}", partial(recovery_step, moves.cluster, observed))
    for value in moves.values[:] if moves.cluster.recoveries else ():
        conformed.note(
            f"recovery: begins with version {value.version}", partial(recovery_begins, _begun(moves.recovery, value))
        )
    for (before, ask, of_writer), (after, code, entry) in moves.bookies.table.items():
        states = moves.bookies.bookie(before), moves.bookies.bookie(after)
        request = Request(ask, of_writer=of_writer, code=code, entry=entry)
        conformed.note(f"bookie: {ask} arrives", partial(bookie_step, *states, request))
    return conformed


def _observed(automaton: ClientAutomaton) -> Iterator[tuple[Stimulus, Observed]]:
    seen: dict[int, SpecifiedClient] = {}
    for (number, stimulus), step in list(automaton.table.items()):
        if step.broken is None:
            before, after = (
                seen[one] if one in seen else seen.setdefault(one, specified(automaton.client(one)))
                for one in (number, step.state)
            )
            client = automaton.client(number)
            yield (
                stimulus,
                Observed(before, stimulus, step.asks, step.updates, after, _written(client), _failed(client, stimulus)),
            )


def _begun(automaton: ClientAutomaton, value: Versioned) -> Observed:
    step = automaton.begin(value)
    after = specified(automaton.client(step.state))
    return Observed(after, "begins", step.asks, step.updates, after, {}, frozenset())


def _written(client: MachineClient) -> dict[int, Versioned]:
    written = {}
    for _, handle in client.world.updates:
        action = client.update(handle.number).action
        if isinstance(action, WriteMetadata):
            written[handle.number] = Versioned(action.metadata, action.expected_version + 1)
    return written


def _failed(client: MachineClient, stimulus: Stimulus) -> frozenset[BookieId]:
    this = {stimulus.ask.bookie_id} if isinstance(stimulus, Answered) and stimulus.code != Code.OK else set()
    return frozenset({*client.machine.adds.failure_codes, *this})


def _in_short(stimulus: Stimulus) -> str:
    if isinstance(stimulus, Answered):
        return f"hears from {stimulus.ask.bookie_id}: {stimulus.ask}: {Code(stimulus.code).name}"
    return stimulus if isinstance(stimulus, str) else "hears from the metadata store"
