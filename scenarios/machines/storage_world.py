"""A world with more faults: disks that sync and are lost, readers, re-replication. The reference model alone checks it.

In addition to :class:`~scenarios.machines.world.MachineWorld`:

* Bookies answer a request that changes their state after a sync. A crash may lose changes since the last sync; no client had an
  answer to these.
* A bookie may lose its disk, as long as fewer than Qa do: after more losses the protocol guarantees nothing. It returns in
  *limbo*: fenced, and it answers that data is unknown instead of denying an entry.
* Bookies refuse requests with various codes.
* Fragments that get no more entries are re-replicated: a spare bookie gets copies and replaces one member in place.
* Readers follow the ledger without recovering it: they read the LAC, then entries up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from bkclient.errors import Code
from bkclient.ledger import BookieId, Fragment, LedgerMetadata
from bkclient.protocol.lac import LacOutcome, LacRead
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.read import EntryRead, ReadOutcome
from scenarios.machines.bookies import Message, StoredEntry
from scenarios.machines.clients import MachineClient
from scenarios.machines.guarantees import Guarantees, Heard
from scenarios.machines.model import LedgerModel
from scenarios.machines.world import Configuration, MachineWorld

__all__ = ["StorageGuarantees", "StorageWorld"]

#: By which codes bookies refuse what they are asked, adds and reads.
_ADD_REFUSALS: Final = (Code.TOO_MANY_REQUESTS, Code.WRITE_ON_READ_ONLY_BOOKIE, Code.WRITE)
_READ_REFUSALS: Final = (Code.TOO_MANY_REQUESTS, Code.READ, Code.DIGEST_MATCH, Code.DATA_UNKNOWN)


@dataclass(eq=False)
class SyncedState:
    """The synced state of a bookie, and the requests that are answered after the next sync."""

    entries: dict[int, StoredEntry] = field(default_factory=dict)
    is_fenced: bool = False
    waiting: list[Message] = field(default_factory=list)
    was_lost: bool = False


class StorageGuarantees(Guarantees):
    """Passes results to the reference model; also checks that all operations end, and that no recovery gives up early."""

    clauses = (*LedgerModel.clauses, "G2", "L2", "L4", "L9", "L10", "L12")

    OUTSIDE = frozenset({"_storage", "_world", "model"})
    __slots__ = ("_storage", "model")

    def __init__(self, world: StorageWorld) -> None:
        super().__init__(world)
        self._storage = world
        self.model = world.model

    def on_sent(self, message: Message) -> None:
        """Of no concern to applications, but for what a recovery may hope for."""
        self._note_write_back(message)

    def on_stored(self, message: Message) -> None:
        """Of no concern to applications."""

    def on_ruled_out(self, heard: Heard, entry_id: int) -> None:
        """Of no concern to applications."""

    def on_acknowledged(self, entry_id: int) -> None:
        """The model is told."""
        self.model.acknowledge(entry_id)
        self.acknowledged = entry_id

    def on_failed(self, entry_id: int) -> None:
        """The model is told."""
        self.model.fail(entry_id)
        self._failed.add(entry_id)

    def on_metadata(self, client: MachineClient, before: LedgerMetadata) -> None:
        """The end counts from the moment it is stored; a recovery that saw no entry may not know the length."""
        del before
        after = self._storage.store.metadata
        if after.is_closed:
            seen = client.heard is None or after.last_entry_id in client.heard.seen
            self.model.ends(after.last_entry_id, after.length if seen else None)

    def check(self) -> None:
        """Check that all clients know the same end, and that every confirmed entry is on enough disks."""
        world, model = self._storage, self.model
        self.check_confirmed()
        for recovery in world.recoveries:
            if recovery.has_closed:
                model.ends(recovery.machine.last_add_confirmed, None)
        if world.writer.machine.metadata.is_closed:
            model.ends(world.writer.machine.metadata.last_entry_id, None)
        metadata = world.store.metadata
        end = metadata.last_entry_id if metadata.is_closed else model.acknowledged
        for entry_id in range(end + 1):
            disks = [world.disks[b] for b in world.write_set(metadata, entry_id)]
            copies = [disk.entries[entry_id].payload for disk in disks if entry_id in disk.entries]
            lost = sum(disk.was_lost and entry_id not in disk.entries for disk in disks)
            model.is_held(entry_id, copies, world.configuration.ack_quorum - lost)


class Reader(MachineClient):
    """Follows the ledger: one LAC read over the last ensemble, then the entry at the LAC or below it."""

    name = "reader"

    def __init__(self, world: StorageWorld, choice: int) -> None:
        super().__init__(world)
        self._storage = world
        self._choice = choice
        self._metadata = world.store.metadata
        self._sizes = QuorumSizes.of(self._metadata)
        self._entry: EntryRead | None = None
        if self._metadata.is_closed:
            self._on_lac(self._metadata.last_entry_id)
            return
        self._lac = LacRead(self._sizes, self._metadata.last_fragment.ensemble)
        for bookie_id in self._lac.bookies:
            world.send(Message(self, bookie_id, "lac"))

    def on_answer(self, message: Message, code: int, entry: StoredEntry | None) -> None:
        """The LAC read or the entry read goes on."""
        if message.kind == "lac":
            if self._lac.outcome is LacOutcome.WAITING:
                lac = -1 if entry is None else entry.last_add_confirmed
                if self._lac.on_reply(message.bookie_id, code, lac) is LacOutcome.COVERED:
                    self._on_lac(self._lac.last_add_confirmed)
            return
        read = self._entry
        assert read is not None, "it was asked for"
        if read.outcome is not ReadOutcome.WAITING:
            return
        outcome = read.on_reply(message.bookie_id, code)
        if outcome is ReadOutcome.FOUND:
            assert entry is not None, "found"
            self._storage.model.reads(read.entry_id, entry.payload)
        elif outcome is ReadOutcome.ABSENT and self._ensemble_is_current(read.entry_id):
            self._storage.model.reads(read.entry_id, None)
        self._ask(read)

    def _on_lac(self, lac: int) -> None:
        self._storage.model.sees_lac(lac)
        if lac >= 0:
            entry_id = self._choice % (lac + 1)
            ensemble = self._metadata.ensemble_at(entry_id)
            self._entry = EntryRead(entry_id, (ensemble[p] for p in self._sizes.write_set(entry_id)))
            self._ask(self._entry)

    def _ask(self, read: EntryRead) -> None:
        for bookie_id in read.to_ask():
            self._storage.send(Message(self, bookie_id, "entry", read.entry_id))

    def _ensemble_is_current(self, entry_id: int) -> bool:
        """Whether the ensemble is current: a reader with an old one would read the metadata again."""
        current = self._storage.store.metadata.ensemble_at(entry_id)
        return self._metadata.ensemble_at(entry_id) == current


class StorageWorld(MachineWorld):
    """See the module. ``model`` gets the calls and results of applications."""

    weights = MappingProxyType(
        {
            **MachineWorld.weights,
            "request arrives and waits for the sync": 2.0,
            "bookie syncs": 3.0,
            "reader asks": 1.0,
            "bookie crashes": 0.15,
            "bookie crashes and forgets": 0.15,
            "disk is lost": 0.1,
        }
    )

    def __init__(self, configuration: Configuration) -> None:
        self.model = LedgerModel()
        #: How often each move was made.
        self.made: dict[str, int] = {}
        super().__init__(configuration)
        self.appended = self.model.entries
        self.disks = {name: SyncedState() for name in self.bookies}
        self.guarantees = StorageGuarantees(self)
        self.moves |= {
            "request arrives and waits for the sync": (lambda: len(self.requests), self._request_waits),
            "bookie syncs": (lambda: len(self._unsynced()), lambda choice: self._sync(self._unsynced()[choice])),
            "request is refused": (lambda: len(self._unanswered()), self._request_is_refused),
            "bookie crashes and forgets": (lambda: len(self._bookies(is_up=True)), self._crashes_and_forgets),
            "disk is lost": (lambda: len(self._may_be_lost()), self._disk_is_lost),
            "fragment is re-replicated": (lambda: len(self._sealed()), self._re_replicate),
            "reader asks": (lambda: 8, self._reader_asks),
        }

    def move(self, move: str, choice: int) -> None:
        """Also count the move."""
        if self.choices(move):
            self.made[move] = self.made.get(move, 0) + 1
            super().move(move, choice)

    @property
    def steps(self) -> int:
        """How many moves were made."""
        return sum(self.made.values())

    def settle(self) -> None:
        """Sync all disks first."""
        for bookie_id in self.bookies:
            self._sync(bookie_id)
        super().settle()

    def write_set(self, metadata: LedgerMetadata, entry_id: int) -> list[BookieId]:
        """The bookies that should have the entry under this metadata."""
        ensemble = metadata.ensemble_at(entry_id)
        return [ensemble[(entry_id + i) % len(ensemble)] for i in range(self.configuration.write_quorum)]

    # Syncs and crashes

    def _request_arrives(self, choice: int) -> None:
        bookie_id = self.requests[choice].bookie_id
        self._request_waits(choice)
        self._sync(bookie_id)

    def _request_waits(self, choice: int) -> None:
        """Processed; what changes the bookie, or depends on a change that is not safe yet, is answered after the sync."""
        message = self.requests.pop(choice)
        message.answer = self._process(message)
        disk, bookie = self.disks[message.bookie_id], self.bookies[message.bookie_id]
        changes = message.add is not None or (message.fence and not disk.is_fenced)
        if changes and bookie.is_up:
            disk.waiting.append(message)
        elif not message.is_answered:
            self.answers.append(message)

    def _request_is_repeated(self, choice: int) -> None:
        super()._request_is_repeated(choice)
        self._sync(self.requests[choice].bookie_id)

    def _unsynced(self) -> list[BookieId]:
        return [bookie_id for bookie_id, disk in self.disks.items() if disk.waiting]

    def _sync(self, bookie_id: BookieId) -> None:
        disk, bookie = self.disks[bookie_id], self.bookies[bookie_id]
        disk.entries, disk.is_fenced = dict(bookie.entries), bookie.is_fenced
        waiting, disk.waiting = disk.waiting, []
        self.answers.extend(message for message in waiting if not message.is_answered)

    def _waiting(self) -> list[Message]:
        unsynced = [message for disk in self.disks.values() for message in disk.waiting if not message.is_answered]
        return [*super()._waiting(), *unsynced]

    def _bookie_crashes(self, choice: int) -> None:
        bookie_id = [name for name, bookie in self.bookies.items() if bookie.is_up][choice]
        self._sync_without_answers(bookie_id)
        super()._bookie_crashes(choice)

    def _sync_without_answers(self, bookie_id: BookieId) -> None:
        disk = self.disks[bookie_id]
        waiting, disk.waiting = disk.waiting, []
        self._sync(bookie_id)
        self._break_connections(waiting)

    def _crashes_and_forgets(self, choice: int) -> None:
        bookie_id = [name for name, bookie in self.bookies.items() if bookie.is_up][choice]
        disk, bookie = self.disks[bookie_id], self.bookies[bookie_id]
        bookie.entries, bookie.is_fenced, bookie.is_up = dict(disk.entries), disk.is_fenced, False
        waiting, disk.waiting = disk.waiting, []
        self._break_connections(waiting)

    def _break_connections(self, waiting: list[Message]) -> None:
        for message in waiting:
            if not message.is_answered:
                self._answer(message, Code.BOOKIE_NOT_AVAILABLE, None)

    def _may_be_lost(self) -> list[BookieId]:
        lost = sum(disk.was_lost for disk in self.disks.values())
        allowed = lost < self.configuration.ack_quorum - 1
        return [bookie_id for bookie_id, disk in self.disks.items() if allowed and not disk.was_lost]

    def _disk_is_lost(self, choice: int) -> None:
        bookie_id = self._may_be_lost()[choice]
        bookie, disk = self.bookies[bookie_id], self.disks[bookie_id]
        bookie.entries.clear()
        bookie.is_fenced = disk.was_lost = True
        self._sync_without_answers(bookie_id)

    # Requests

    def _process(self, message: Message) -> tuple[int, StoredEntry | None]:
        kind = message.kind
        if kind == "lac":
            message.kind = "fence"  # of the last entry too, but without the flag
        code, entry = super()._process(message)
        message.kind = kind
        if code == Code.NO_SUCH_ENTRY and self.disks[message.bookie_id].was_lost:
            return Code.DATA_UNKNOWN, None
        return code, entry

    def _request_is_refused(self, choice: int) -> None:
        message = self._unanswered()[choice]
        self.requests.remove(message)
        refusals = _READ_REFUSALS if message.add is None else _ADD_REFUSALS
        self._answer(message, refusals[choice % len(refusals)], None)

    # Re-replication

    def _sealed(self) -> list[Fragment]:
        metadata = self.store.metadata
        return list(metadata.fragments if metadata.is_closed else metadata.fragments[:-1])

    def _re_replicate(self, choice: int) -> None:
        """Replace a member of the fragment, if every entry that it should have is on a bookie that is up."""
        metadata, fragment = self.store.metadata, self._sealed()[choice]
        later = [f.first_entry_id for f in metadata.fragments if f.first_entry_id > fragment.first_entry_id]
        end = later[0] if later else metadata.last_entry_id + 1
        spares = [b for b, bookie in self.bookies.items() if bookie.is_up and b not in fragment.ensemble]
        position = choice % len(fragment.ensemble)
        if not spares:
            return
        copies: dict[int, StoredEntry] = {}
        for entry_id in range(fragment.first_entry_id, end):
            members = self.write_set(metadata, entry_id)
            if fragment.ensemble[position] in members:
                found = [self.bookies[b].entries.get(entry_id) for b in members if self.bookies[b].is_up]
                copy = next((entry for entry in found if entry is not None), None)
                if copy is None:
                    return
                copies[entry_id] = copy
        self.bookies[spares[0]].entries.update(copies)
        self._sync(spares[0])
        ensemble = tuple(spares[0] if p == position else b for p, b in enumerate(fragment.ensemble))
        fragments = tuple(replace(f, ensemble=ensemble) if f is fragment else f for f in metadata.fragments)
        self.store.edit(lambda metadata: replace(metadata, fragments=fragments))

    def _subjects(self) -> dict[str, Sequence[object]]:
        found = super()._subjects()
        return found | {
            "request arrives and waits for the sync": self.requests,
            "request is refused": self._unanswered(),
            "bookie syncs": self._unsynced(),
            "bookie crashes and forgets": found["bookie crashes"],
            "disk is lost": self._may_be_lost(),
        }

    # Clients

    def _reader_asks(self, choice: int) -> None:
        Reader(self, choice)

    def _append(self, _: int) -> None:
        payload = b"x" * (len(self.appended) + 1)
        self.model.append(payload)
        self.writer.machine.append(payload)
