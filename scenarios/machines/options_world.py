"""A :mod:`~scenarios.machines.world` whose writer uses its options: given ids, deferred sync, delayed and disabled changes.

Besides what happens in any world, entry ids come in any order and more than once, forces are sent, ensemble changes are
disabled and enabled, idle times and timers pass.

Bookies keep entries of a writer with deferred sync in memory until a force or a recovery makes them sync, and a power failure
loses these entries. A bookie that lost entries in this way answers no force any more: the protocol cannot report to a force that
entries are missing, so a bookie must not return under the same id without entries that it acknowledged. Forced entries must
survive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bkclient.errors import BookKeeperError, Code, DuplicateEntryId
from bkclient.ledger import BookieId, LedgerMetadata
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.force import ForceMachine
from scenarios.machines.bookies import Message, StoredEntry
from scenarios.machines.broken import BrokenClause
from scenarios.machines.clients import MachineClient, WriterClient
from scenarios.machines.guarantees import Guarantees
from scenarios.machines.world import Configuration, MachineWorld

__all__ = ["OptionsGuarantees", "OptionsWorld"]


@dataclass(eq=False)
class ForceMessage(Message):
    """The request of one force to one bookie."""

    force: Force | None = None


class OptionsGuarantees(Guarantees):
    """With deferred sync it is forced entries that must not be lost, instead of acknowledged ones."""

    clauses = (*Guarantees.clauses, "A13", "C12", "D16", "G4", "L11")
    OUTSIDE = frozenset({"_options_world", "_world"})
    __slots__ = ("_options_world", "forced")

    def __init__(self, world: OptionsWorld) -> None:
        super().__init__(world)
        self._options_world = world
        self.forced = -1

    @property
    def confirmed(self) -> int:
        """With deferred sync the last entry forced, else the last one acknowledged."""
        return self.forced if self._options_world.options.deferred_sync else self.acknowledged

    def on_acknowledged(self, entry_id: int) -> None:
        """A13: in several fault domains, if that was asked."""
        super().on_acknowledged(entry_id)
        if self._options_world.options.enforce_fault_domains:
            ensemble = self._writers_metadata.ensemble_at(entry_id)
            confirmed = [b for b in self._write_set(entry_id, ensemble) if (entry_id, b) in self._stored_for_writer]
            if not self._options_world.spans_fault_domains(confirmed):
                raise BrokenClause(
                    "A13", f"entry {entry_id} was acknowledged by {confirmed}, which share a fault domain"
                )

    def on_metadata(self, client: MachineClient, before: LedgerMetadata) -> None:
        """C12: the ensemble does not change with deferred sync."""
        super().on_metadata(client, before)
        if self._options_world.options.deferred_sync and client is self._options_world.writer:
            after = self._options_world.store.metadata
            if after.fragments != before.fragments:
                raise BrokenClause("C12", "the ensemble changed although sync is deferred")

    def _check_length(self, client: MachineClient, closed: LedgerMetadata) -> None:
        """B6, but headers tell a recovery approximate lengths where ids were given."""
        if client.heard is None or not self._options_world.options.entry_ids_given:
            super()._check_length(client, closed)

    def on_force_finished(self, entry_id: int, error: BookKeeperError | None) -> None:
        """D16: a force that succeeds was carried out by every bookie, for all that was acknowledged when it began."""
        if error is None and self._options_world.options.deferred_sync:
            self.forced = max(self.forced, entry_id)
            if self._options_world.writer.machine.last_add_confirmed < entry_id:
                raise BrokenClause("D16", f"entry {entry_id} was forced and is not confirmed")


class Force:
    """One force of the writer, and its ports."""

    def __init__(self, world: OptionsWorld) -> None:
        self._world = world
        self.covers = world.guarantees.acknowledged
        self.endings = 0
        self.machine = ForceMachine(world.writer.machine, self)

    def send_force(self, bookie_id: BookieId) -> None:
        """Send the request."""
        self._world.send(ForceMessage(self._world.writer, bookie_id, "force", force=self))

    def force_finished(self, error: BookKeeperError | None) -> None:
        """The force has ended."""
        self.endings += 1
        self._world.options_guarantees.on_force_finished(self.covers, error)


class OptionsWriter(WriterClient):
    """The writer; handles the answers to its forces too."""

    world: OptionsWorld

    def on_answer(self, message: Message, code: int, entry: StoredEntry | None) -> None:
        """An add or a force has an outcome."""
        if isinstance(message, ForceMessage):
            assert message.force is not None, "it belongs to one"
            message.force.machine.on_force_reply(message.bookie_id, code)
        else:
            super().on_answer(message, code, entry)

    def spans_fault_domains(self, bookies: tuple[BookieId, ...]) -> bool:
        """Whether they are in more than one."""
        return self.world.spans_fault_domains(bookies)


class OptionsWorld(MachineWorld):
    """See the module."""

    #: The moves that are new come about as often as appends.
    weights = MappingProxyType(
        {
            **MachineWorld.weights,
            "force": 1.0,
            "idle": 0.5,
            "changes are disabled or enabled": 0.5,
            "it is time to retry": 2.0,
            "clock ticks": 0.5,
            "request times out": 0.8,
            "recovery starts": 0.1,
            "close": 0.05,
            "writer crashes": 0.05,
        }
    )

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.options = configuration.options
        self.guarantees = self.options_guarantees = OptionsGuarantees(self)
        self.writer = OptionsWriter(self)
        #: The entries that each bookie would lose at a power failure, and the bookies that have lost entries.
        self.unsynced: dict[BookieId, dict[int, None]] = {name: {} for name in self.bookies}
        self.forgetful: dict[BookieId, None] = {}
        self.forces: list[Force] = []
        self.taken: dict[int, None] = {}
        self.now = 0.0
        self.moves |= {"idle": (self._is_alive, lambda _: self.writer.machine.act_on_late_failures())}
        if configuration.may_disable_changes:
            self.moves["changes are disabled or enabled"] = (lambda: 1, self._disable_or_enable)
            self.moves["it is time to retry"] = (lambda: int(self._may_retry()), lambda _: self._retry())
        if self.options.deferred_sync:
            self.moves["force"] = (lambda: int(self._is_alive() and len(self.forces) < 3), lambda _: self._force())
            self.moves["bookie forgets"] = (lambda: len(self._may_forget()), self._forgets)
        if self.options.quorum_timeout_s is not None:
            self.moves["clock ticks"] = (self._is_alive, lambda _: self._tick())

    # Entries

    @property
    def entries_appended(self) -> int:
        """How many entries the writer took."""
        return len(self.taken)

    def payload_of(self, entry_id: int) -> bytes:
        """What the application appended as ``entry_id``."""
        if entry_id not in self.taken:
            raise BrokenClause("B8", f"entry {entry_id} was never appended")
        return b"x" * (entry_id + 1)

    def _may_append(self) -> int:
        if not self._is_alive() or not self.writer.machine.is_writable:
            return 0
        if self.options.entry_ids_given:
            return self.configuration.entries
        return int(len(self.taken) < self.configuration.entries)

    def _append(self, choice: int) -> None:
        machine: AppendMachine = self.writer.machine
        if not self.options.entry_ids_given:
            entry_id = len(self.taken)
            self.taken[entry_id] = None
            machine.append(b"x" * (entry_id + 1))
            return
        was_taken = choice in self.taken
        self.taken[choice] = None
        try:
            machine.append_at(choice, b"x" * (choice + 1))
        except DuplicateEntryId:
            if not was_taken:
                raise BrokenClause("G4", f"entry {choice} was refused as a duplicate, but is none") from None
        else:
            if was_taken:
                raise BrokenClause("G4", f"entry {choice} was taken twice")

    # Forces and power failures

    def _process(self, message: Message) -> tuple[int, StoredEntry | None]:
        bookie_id = message.bookie_id
        bookie = self.bookies[bookie_id]
        if isinstance(message, ForceMessage):
            if not bookie.is_up or bookie_id in self.forgetful:
                return Code.BOOKIE_NOT_AVAILABLE, None
            self.unsynced[bookie_id].clear()
            return Code.OK, None
        is_new = message.entry_id not in bookie.entries
        code, entry = super()._process(message)
        if message.add is not None and code == Code.OK and self.options.deferred_sync:
            if message.client is not self.writer:
                self.unsynced[bookie_id].pop(message.entry_id, None)
            elif is_new:
                self.unsynced[bookie_id][message.entry_id] = None
        return code, entry

    def _force(self) -> None:
        force = Force(self)
        self.forces.append(force)
        force.machine.start()

    def _may_forget(self) -> list[BookieId]:
        return [bookie_id for bookie_id, entries in self.unsynced.items() if entries]

    def _forgets(self, choice: int) -> None:
        bookie_id = self._may_forget()[choice]
        for entry_id in self.unsynced[bookie_id]:
            del self.bookies[bookie_id].entries[entry_id]
        self.unsynced[bookie_id].clear()
        self.forgetful[bookie_id] = None

    # Time

    def _is_alive(self) -> int:
        return int(self.writer.is_alive)

    def _disable_or_enable(self, _: int) -> None:
        self.is_change_disabled = not self.is_change_disabled

    def _may_retry(self) -> bool:
        return self.writer.is_alive and self.writer.is_retry_due

    def _retry(self) -> None:
        self.writer.is_retry_due = False
        self.writer.machine.on_retry()

    def _tick(self) -> None:
        self.now += 1.0
        self.writer.machine.check_quorum_timeout(self.now)

    def spans_fault_domains(self, bookies: tuple[BookieId, ...] | list[BookieId]) -> bool:
        """Bookies with an even place in the alphabet are in one domain, those with an odd one in another."""
        return len({ord(bookie_id) % 2 for bookie_id in bookies}) > 1

    def _subjects(self) -> dict[str, Sequence[object]]:
        return super()._subjects() | {"bookie forgets": self._may_forget()}

    # The end

    def _let_everything_arrive(self) -> None:
        self.is_change_disabled = False
        super()._let_everything_arrive()
        while self._may_retry():
            self._retry()
            super()._let_everything_arrive()
        if self._is_alive() and self.options.entry_ids_given and self.writer.machine.pending_count:
            self.writer.machine.close()  # no append will fill the gaps
            super()._let_everything_arrive()

    def settle(self) -> None:
        """Also check that every force has ended."""
        super().settle()
        if self._is_alive() and any(force.endings != 1 for force in self.forces):
            raise BrokenClause("L11", f"forces ended {[force.endings for force in self.forces]} times")
