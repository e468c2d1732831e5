"""A client as the specification sees it.

Entry ids begin with 0 here and with 1 there. What the specification keeps of entries that are confirmed, and never looks at
again, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from bkclient.ledger import BookieId, Ensemble, LedgerMetadata, LedgerState
from bkclient.protocol.append import AppendMachine, WriterState
from bkclient.protocol.recovery import RecoveryMachine, RecoveryPhase, starting_lac
from scenarios.exhaustive.configuration import SmallCluster
from scenarios.machines.clients import MachineClient, RecoveryClient

__all__ = [
    "ClientStatus",
    "Fragments",
    "NotSpecifiedError",
    "Phase",
    "SpecifiedClient",
    "fragments_of",
    "specified",
    "write_set",
]

# ruff: noqa: SLF001 - what the specification sees of a recovery is not all for others to see

Fragments = tuple[tuple[int, Ensemble], ...]
"""First entry id and ensemble of each fragment."""


class NotSpecifiedError(Exception):
    """No action of the specification, nor any listed difference from it, is like the step; says what is wrong."""


class ClientStatus(Enum):
    """What a client is doing about the ledger."""

    NONE = "none"
    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"
    ABORTED = "aborted"


class Phase(Enum):
    """The phase of a recovery."""

    NOT_STARTED = "not started"
    FENCING = "fencing"
    READ_WRITE = "reading and writing"


@dataclass(frozen=True, slots=True)
class SpecifiedClient:
    """A client. ``confirmed`` has who stored which pending entry; ``denied`` who lacks which entry, fenced.

    ``fragments`` are those that it works with. ``version`` is that of the metadata it knows, and ``stored`` has their fragments;
    ``is_marked`` says whether a recovery had begun by then, and ``known_end`` where the ledger ends if it is closed.
    ``last_recoverable`` is None until a recovery has found the end.
    """

    status: ClientStatus
    version: int
    lap: int
    lac: int
    fragments: Fragments
    stored: Fragments = ()
    is_marked: bool = False
    known_end: int | None = None
    pending: frozenset[int] = frozenset()
    confirmed: frozenset[tuple[int, BookieId]] = frozenset()
    phase: Phase = Phase.NOT_STARTED
    fenced: frozenset[BookieId] = frozenset()
    denied: frozenset[tuple[int, BookieId]] = frozenset()
    last_recoverable: int | None = None
    recovery_ensemble: Ensemble = ()

    @property
    def ensemble(self) -> Ensemble:
        """The ensemble of the last fragment."""
        return self.fragments[-1][1]

    @property
    def has_ended(self) -> bool:
        """Whether it does nothing any more; the specification does not look at the rest of such a client."""
        return self.status in {ClientStatus.CLOSED, ClientStatus.WITHDRAWN, ClientStatus.ABORTED}


def write_set(cluster: SmallCluster, ensemble: Ensemble, entry_id: int) -> tuple[BookieId, ...]:
    """The bookies of an entry. The specification has no striping, so there it is the ensemble."""
    return tuple(ensemble[(entry_id + i) % len(ensemble)] for i in range(cluster.write_quorum))


def fragments_of(metadata: LedgerMetadata) -> Fragments:
    """The fragments in ``metadata``."""
    return tuple((fragment.first_entry_id, fragment.ensemble) for fragment in metadata.fragments)


def _in_effect(stored: Fragments, ensemble: Ensemble) -> Fragments:
    """The fragments that a writer works with: one that is stored is not in effect as long as another change follows it."""
    if stored[-1][1] == ensemble:
        return stored
    if len(stored) > 1 and stored[-2][1] == ensemble:
        return stored[:-1]
    return (*stored[:-1], (stored[-1][0], ensemble))


def _end_of(metadata: LedgerMetadata) -> int | None:
    return metadata.last_entry_id if metadata.is_closed else None


_OF_WRITER: Final = {WriterState.FAILED: ClientStatus.WITHDRAWN, WriterState.CLOSED: ClientStatus.CLOSED}
_OF_RECOVERY: Final = {
    RecoveryPhase.MARKING: ClientStatus.NONE,
    RecoveryPhase.DONE: ClientStatus.CLOSED,
    RecoveryPhase.FAILED: ClientStatus.ABORTED,
}


def specified(client: MachineClient) -> SpecifiedClient:
    """One of our clients as the specification sees it."""
    machine = client.machine
    adds, value = machine.adds, machine.local.value
    confirmed = {
        (entry_id, machine.ensemble[position])
        for entry_id, add in adds.pending.items()
        for position in range(len(machine.ensemble))
        if add.acknowledged >> position & 1
    }
    if isinstance(machine, AppendMachine):
        return SpecifiedClient(
            _OF_WRITER.get(machine.state, ClientStatus.OPEN),
            value.version,
            adds.last_add_pushed,
            adds.last_add_confirmed,
            _in_effect(fragments_of(value.metadata), machine.ensemble),
            fragments_of(value.metadata),
            value.metadata.state is LedgerState.IN_RECOVERY,
            _end_of(value.metadata),
            frozenset(adds.pending),
            frozenset(confirmed),
        )
    assert isinstance(client, RecoveryClient), "there are two kinds of clients"
    return _recovery(client, machine, frozenset(confirmed))


def _recovery(
    client: RecoveryClient, machine: RecoveryMachine, confirmed: frozenset[tuple[int, BookieId]]
) -> SpecifiedClient:
    phase, metadata, heard = machine.phase, machine.metadata, client.heard
    fragments = dict(fragments_of(metadata)) | machine._new_ensembles
    lap, lac = machine.adds.last_add_pushed, machine.adds.last_add_confirmed
    is_fencing = phase is RecoveryPhase.FENCING
    is_reading = not is_fencing and phase is not RecoveryPhase.MARKING
    if is_fencing:
        assert machine._lac_read is not None, "fencing reads the LAC"
        lap = lac = starting_lac(machine._lac_read.last_add_confirmed, metadata.last_fragment.first_entry_id)
    return SpecifiedClient(
        _OF_RECOVERY.get(phase, ClientStatus.IN_RECOVERY),
        machine.local.value.version,
        lap,
        lac,
        tuple(sorted(fragments.items())),
        fragments_of(metadata),
        metadata.state is LedgerState.IN_RECOVERY,
        _end_of(metadata),
        frozenset(machine.adds.pending),
        confirmed,
        Phase.FENCING if is_fencing else Phase.READ_WRITE if is_reading else Phase.NOT_STARTED,
        frozenset(heard.fenced) if is_fencing else frozenset(),
        frozenset(heard.denials) if is_reading else frozenset(),
        lap if machine._end_found else None,
        machine._snapshot.last_fragment.ensemble,
    )
