"""The small world with more trouble in it, judged by the reference model alone.

On top of :class:`tests.bkclient.protocol.world.World`, whose writer, recoveries, network and store stay as they are:

* Bookies answer what changes them after a sync. A crash may forget everything since, and nobody was told of it.
* A bookie may lose its disk, as long as fewer than Qa do: more would be a loss that the protocol allows. It comes back in
  *limbo*: fenced, and instead of denying an entry it says that it does not know.
* Bookies refuse requests for reasons of their own.
* Older fragments, and all of a closed ledger's, are re-replicated: somebody copies them and replaces one member in place.
* Readers follow the ledger without recovering it: they read the LAC, then entries up to it.

``WEIGHTS`` says how often a walk makes which move.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from bkclient.errors import Code
from bkclient.ledger import BookieId, Fragment, LedgerMetadata
from bkclient.protocol.lac import LacOutcome, LacRead
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.read import EntryRead, ReadOutcome
from bkclient.protocol.recovery import EntryVerdict, RecoveryPhase
from tests.bkclient.protocol.guarantees import Guarantees, Heard
from tests.bkclient.protocol.stateful.model import Ledger
from tests.bkclient.protocol.world import Client, Configuration, Message, StoredEntry, World

__all__ = ["CONFIGURATIONS", "WEIGHTS", "Play", "walk"]

CONFIGURATIONS: Final = (
    Configuration(1, 1, 1, bookies=2, entries=4, recoveries=3),
    Configuration(2, 2, 2, bookies=3, entries=3, recoveries=3),
    Configuration(2, 2, 1, bookies=3, entries=3, recoveries=3),
    Configuration(3, 3, 2, bookies=4, entries=4, recoveries=3),
    Configuration(3, 3, 3, bookies=5, entries=3, recoveries=3),
    Configuration(3, 2, 2, bookies=4, entries=4, recoveries=3),
    Configuration(4, 3, 2, bookies=5, entries=5, recoveries=2),
)

#: How often which move is made; what is not here happens at the rate of ``TROUBLE``.
WEIGHTS: Final = {
    "request arrives": 6.0,
    "request arrives and waits for the sync": 2.0,
    "bookie syncs": 3.0,
    "answer arrives": 6.0,
    "store acts": 4.0,
    "append": 2.0,
    "bookie returns": 1.0,
    "reader asks": 1.0,
    "request times out": 0.5,
    "recovery starts": 0.3,
    "bookie crashes": 0.15,
    "bookie crashes and forgets": 0.15,
    "disk is lost": 0.1,
    "close": 0.1,
    "writer crashes": 0.1,
    "recovery crashes": 0.1,
}
TROUBLE: Final = 0.3

#: By which codes bookies refuse what they are asked, adds and reads.
_ADD_REFUSALS: Final = (Code.TOO_MANY_REQUESTS, Code.WRITE_ON_READ_ONLY_BOOKIE, Code.WRITE)
_READ_REFUSALS: Final = (Code.TOO_MANY_REQUESTS, Code.READ, Code.DIGEST_MATCH, Code.DATA_UNKNOWN)


@dataclass(eq=False)
class Disk:
    """What a bookie has synced, and whom it will answer when it has synced the rest."""

    entries: dict[int, StoredEntry] = field(default_factory=dict)
    is_fenced: bool = False
    waiting: list[Message] = field(default_factory=list)
    was_lost: bool = False


class Promises(Guarantees):
    """What happens, told to the reference model; besides, everybody gets an answer in the end, and no recovery gives up early."""

    OUTSIDE = frozenset({"_play", "_world", "model"})
    __slots__ = ("_play", "model")

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self._play = play
        self.model = play.model

    def on_sent(self, message: Message) -> None:
        """Of no concern to applications, but for what a recovery may hope for."""
        self._note_write_back(message)

    def on_stored(self, message: Message) -> None:
        """Of no concern to applications."""

    def on_decided(self, heard: Heard, entry_id: int, verdict: EntryVerdict) -> None:
        """Of no concern to applications."""

    def on_acknowledged(self, entry_id: int) -> None:
        self.model.acknowledge(entry_id)
        self.acknowledged = entry_id

    def on_failed(self, entry_id: int) -> None:
        self.model.fail(entry_id)
        self._failed.add(entry_id)

    def on_metadata(self, client: Client, before: LedgerMetadata) -> None:
        """The end counts from the moment it is stored; a recovery that saw no entry may not know the length."""
        del before
        after = self._play.store.metadata
        if after.is_closed:
            seen = client.heard is None or after.last_entry_id in client.heard.seen
            self.model.ends(after.last_entry_id, after.length if seen else None)

    def check(self) -> None:
        """Everybody who knows an end knows the same one, and everything confirmed is on enough disks."""
        play, model = self._play, self.model
        self.check_confirmed()
        for recovery in play.recoveries:
            if recovery.machine.phase is RecoveryPhase.DONE:
                model.ends(recovery.machine.last_add_confirmed, None)
        if play.writer.machine.metadata.is_closed:
            model.ends(play.writer.machine.metadata.last_entry_id, None)
        metadata = play.store.metadata
        end = metadata.last_entry_id if metadata.is_closed else model.acknowledged
        for entry_id in range(end + 1):
            disks = [play.disks[b] for b in play.write_set(metadata, entry_id)]
            copies = [disk.entries[entry_id].payload for disk in disks if entry_id in disk.entries]
            lost = sum(disk.was_lost and entry_id not in disk.entries for disk in disks)
            model.is_held(entry_id, copies, play.configuration.ack_quorum - lost)


class Reader(Client):
    """Follows the ledger: one LAC read over the last ensemble, then the entry at the LAC or below it."""

    def __init__(self, play: Play, choice: int) -> None:
        super().__init__(play)
        self._play = play
        self._choice = choice
        self._metadata = play.store.metadata
        self._sizes = QuorumSizes.of(self._metadata)
        self._entry: EntryRead | None = None
        if self._metadata.is_closed:
            self._on_lac(self._metadata.last_entry_id)
            return
        self._lac = LacRead(self._sizes, self._metadata.last_fragment.ensemble)
        for bookie_id in self._lac.bookies:
            play.send(Message(self, bookie_id, "lac"))

    def on_answer(self, message: Message, code: int, entry: StoredEntry | None) -> None:
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
            self._play.model.reads(read.entry_id, entry.payload)
        elif outcome is ReadOutcome.ABSENT and self._ensemble_is_current(read.entry_id):
            self._play.model.reads(read.entry_id, None)
        self._ask(read)

    def _on_lac(self, lac: int) -> None:
        self._play.model.sees_lac(lac)
        if lac >= 0:
            entry_id = self._choice % (lac + 1)
            ensemble = self._metadata.ensemble_at(entry_id)
            self._entry = EntryRead(entry_id, (ensemble[p] for p in self._sizes.write_set(entry_id)))
            self._ask(self._entry)

    def _ask(self, read: EntryRead) -> None:
        for bookie_id in read.to_ask():
            self._play.send(Message(self, bookie_id, "entry", read.entry_id))

    def _ensemble_is_current(self, entry_id: int) -> bool:
        """A reader with an old ensemble would look again before it believes that an entry is absent."""
        current = self._play.store.metadata.ensemble_at(entry_id)
        return self._metadata.ensemble_at(entry_id) == current


class Play(World):
    """See the module. ``model`` is told everything that applications see."""

    def __init__(self, configuration: Configuration) -> None:
        self.model = Ledger()
        #: How often each move was made.
        self.made: dict[str, int] = {}
        super().__init__(configuration)
        self.appended = self.model.entries
        self.disks = {name: Disk() for name in self.bookies}
        self.guarantees = Promises(self)
        self.moves |= {
            "request arrives and waits for the sync": (lambda: len(self.requests), self._request_waits),
            "bookie syncs": (lambda: len(self._unsynced()), lambda choice: self._sync(self._unsynced()[choice])),
            "request is refused": (lambda: len(self._unanswered()), self._request_is_refused),
            "bookie crashes and forgets": (lambda: len(self._bookies(is_up=True)), self._crashes_and_forgets),
            "disk is lost": (lambda: len(self._may_be_lost()), self._disk_is_lost),
            "fragment is re-replicated": (lambda: len(self._sealed()), self._re_replicate),
            "reader asks": (lambda: 8, lambda choice: void(Reader(self, choice))),
        }

    def move(self, move: str, choice: int) -> None:
        if self.choices(move):
            self.made[move] = self.made.get(move, 0) + 1
            super().move(move, choice)

    @property
    def steps(self) -> int:
        return sum(self.made.values())

    def settle(self) -> None:
        for bookie_id in self.bookies:
            self._sync(bookie_id)
        super().settle()

    def write_set(self, metadata: LedgerMetadata, entry_id: int) -> list[BookieId]:
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
        """Replace the first member that can be replaced, if every entry it should have is found on somebody who is up."""
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

    # Clients

    def _append(self, choice: int) -> None:
        del choice
        payload = b"x" * (len(self.appended) + 1)
        self.model.append(payload)
        self.writer.machine.append(payload)


def void(_: object) -> None:
    """For what is made for its effect."""


def walk(configuration: Configuration, seed: int, moves: int) -> Play:
    """Make so many random moves in a new world."""
    rng = Random(seed)
    play = Play(configuration)
    names = tuple(play.moves)
    weights = [WEIGHTS.get(name, TROUBLE) for name in names]
    for _ in range(moves):
        (name,) = rng.choices(names, weights)
        choices = play.choices(name)
        if choices:
            play.move(name, rng.randrange(choices))
    return play
