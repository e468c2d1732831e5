"""The clients of a world: each has a shipped machine and implements its ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from bkclient.errors import BookKeeperError, LedgerTruncated
from bkclient.ledger import BookieId, Ensemble, Versioned
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.append import AppendMachine, WriterState
from bkclient.protocol.recovery import EntryVerdict, RecoveryMachine, RecoveryPhase
from bkclient.protocol.update import MetadataUpdate, UpdateHandle
from scenarios.machines.bookies import Message, StoredEntry
from scenarios.machines.broken import BrokenClause
from scenarios.machines.guarantees import Heard

if TYPE_CHECKING:
    from scenarios.machines.world import MachineWorld

__all__ = ["MachineClient", "RecoveryClient", "WriterClient"]


class MachineClient:
    """The common part of writers and recoveries. A crashed client gets no answers; requests that it sent still arrive."""

    machine: AppendMachine | RecoveryMachine
    name: str
    heard: Heard | None = None

    def __init__(self, world: MachineWorld) -> None:
        self.world = world
        self.is_alive = True
        #: How many times the machine reported its end: of the close for the writer, of the recovery for a recovery.
        self.endings = 0
        #: Whether copies of this client share the machine, which is unchanged since the copy.
        self.is_shared = False
        #: The number of this state in a search, if the search has visited it.
        self.number: int | None = None

    def copy(self, world: MachineWorld) -> Self:
        """The same client in a copy of its world."""
        self.is_shared = True
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), world=world)
        return twin

    def wake(self) -> None:
        """Prepare for a change of the machine: if copies of the client share it, copy it."""
        self.number = None
        if self.is_shared:
            self.is_shared = False
            self.machine = self.machine.copy()
            self.machine.ports = self  # type: ignore[assignment]  # a client of either kind has the ports of its machine
            self.heard = None if self.heard is None else self.heard.copy()

    def crash(self) -> None:
        """Crash: the client gets no answers any more."""
        self.wake()
        self.is_alive = False

    def update(self, number: int) -> MetadataUpdate:
        """An update of the machine, for the store."""
        return self.machine.update(number)

    def on_update_answer(self, number: int, answer: Versioned | BookKeeperError | None) -> None:
        """The store answers."""
        self.wake()
        self.machine.on_update_answer(number, answer)

    def on_answer(self, message: Message, code: int, entry: StoredEntry | None) -> None:
        """Handle the outcome of a request."""
        raise NotImplementedError

    # Ports of both machines

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        """Send the entry to these bookies."""
        for bookie_id in bookies:
            self.world.send(Message(self, bookie_id, "add", entry.entry_id, add=entry))

    def send_adds(self, entries: Sequence[NewEntry], write_sets: tuple[tuple[BookieId, ...], ...]) -> None:
        """Send each entry to its write set."""
        for entry in entries:
            self.send_add(entry, write_sets[entry.entry_id % len(write_sets)])

    def run_update(self, number: int) -> None:
        """Start the update."""
        self.world.updates.append((self, UpdateHandle(self, number)))

    def replace_bookie(self, ensemble: Ensemble, _position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        """Return a bookie that replaces another one."""
        return self.world.replace_bookie(ensemble, excluded)


class WriterClient(MachineClient):
    """The writer."""

    name = "writer"

    def __init__(self, world: MachineWorld) -> None:
        super().__init__(world)
        self.is_retry_due = False
        self.machine: AppendMachine = AppendMachine(world.store.value, self, options=world.configuration.options)

    @property
    def is_closed(self) -> bool:
        """Whether the machine says that it has closed the ledger, or found it closed."""
        return self.machine.state is WriterState.CLOSED

    def on_answer(self, message: Message, code: int, _entry: StoredEntry | None) -> None:
        """An add has an outcome."""
        self.machine.on_add_reply(message.bookie_id, message.entry_id, code)

    # Ports

    def confirm_adds(self, entries: list[NewEntry]) -> None:
        """Note the acknowledgements."""
        for entry in entries:
            self.world.guarantees.on_acknowledged(entry.entry_id)

    def fail_add(self, entry: NewEntry, _error: BookKeeperError) -> None:
        """Note the failure."""
        self.world.guarantees.on_failed(entry.entry_id)

    def is_ensemble_change_disabled(self) -> bool:
        """Whether ensemble changes are disabled now."""
        return self.world.is_change_disabled

    def retry_later(self, _delay_s: float) -> None:
        """A timer is set."""
        assert not self.is_retry_due, "one retry at a time"
        self.is_retry_due = True

    def spans_fault_domains(self, bookies: tuple[BookieId, ...]) -> bool:
        """Asked of writers with that option only."""
        raise NotImplementedError

    def ledger_truncated(self, error: LedgerTruncated) -> None:
        """The machine reports that the ledger was closed below an acknowledged entry."""
        raise BrokenClause("A1", str(error))

    def close_finished(self, _error: BookKeeperError | None) -> None:
        """Closing ended."""
        self.endings += 1


class RecoveryClient(MachineClient):
    """One recovery; the answers that it gets are noted for the guarantees."""

    def __init__(self, world: MachineWorld) -> None:
        super().__init__(world)
        self.name = f"recovery {len(world.recoveries)}"
        self.heard: Heard = Heard()
        self.machine: RecoveryMachine = RecoveryMachine(
            world.store.value, self, read_ahead=world.configuration.read_ahead
        )

    @property
    def has_ended(self) -> bool:
        """Whether the recovery has succeeded or failed."""
        return self.machine.phase in (RecoveryPhase.DONE, RecoveryPhase.FAILED)

    @property
    def has_closed(self) -> bool:
        """Whether it closed the ledger, or found it closed."""
        return self.machine.phase is RecoveryPhase.DONE

    def on_answer(self, message: Message, code: int, entry: StoredEntry | None) -> None:
        """An add, a fence or a read has an outcome."""
        machine = self.machine
        if message.kind == "add":
            machine.on_add_reply(message.bookie_id, message.entry_id, code)
        elif message.kind == "fence" and entry is not None:
            length_before = entry.length - len(entry.payload)
            machine.on_fence_reply(message.bookie_id, code, entry.last_add_confirmed, length_before)
        elif message.kind == "fence":
            machine.on_fence_reply(message.bookie_id, code)
        elif entry is not None:
            machine.on_read_reply(message.bookie_id, message.entry_id, code, entry.payload, entry.length)
        else:
            machine.on_read_reply(message.bookie_id, message.entry_id, code)

    # Ports

    def send_fence(self, bookie_id: BookieId) -> None:
        """Send a fencing read of the last entry."""
        self.world.send(Message(self, bookie_id, "fence", fence=True))

    def send_read(self, entry_id: int, bookie_id: BookieId, *, fence: bool) -> None:
        """Send a read."""
        kind = "read" if self.machine.phase is RecoveryPhase.READING else "measure"
        self.world.send(Message(self, bookie_id, kind, entry_id, fence=fence))

    def entry_decided(self, entry_id: int, verdict: EntryVerdict, _bookies: tuple[BookieId, ...]) -> None:
        """The machine has decided about an entry."""
        if verdict is EntryVerdict.NEGATIVE:
            self.world.guarantees.on_ruled_out(self.heard, entry_id)

    def recovery_finished(self, error: BookKeeperError | None) -> None:
        """It ended."""
        self.endings += 1
        if error is not None:
            self.world.guarantees.on_gave_up(self, error)
