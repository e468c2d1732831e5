"""The guarantees of a :mod:`~scenarios.machines.world`, checked independently of the machines.

They use messages, stored entries and results of applications, and have their own quorum arithmetic. A violation has the number
of its clause (:mod:`scenarios.clauses`), as in the checkers of recorded histories.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, Final

from bkclient.errors import BookKeeperError, Code, NotEnoughBookies
from bkclient.ledger import BookieId, Ensemble, LedgerMetadata, LedgerState
from bkclient.protocol.value import Value
from scenarios.machines.broken import BrokenClause

if TYPE_CHECKING:
    from scenarios.machines.bookies import Message
    from scenarios.machines.clients import MachineClient
    from scenarios.machines.world import MachineWorld

__all__ = ["Guarantees", "Heard"]

#: The codes by which a bookie denies an entry.
_DENIALS: Final = frozenset({Code.NO_SUCH_ENTRY, Code.NO_SUCH_LEDGER_ON_BOOKIE})


class Heard(Value):
    """The answers that one recovery got, and its write-backs."""

    __slots__ = ("denials", "fenced", "has_read", "seen", "started_with", "write_backs")

    def __init__(self) -> None:
        self.started_with: LedgerMetadata | None = None
        self.fenced: set[BookieId] = set()
        self.denials: set[tuple[int, BookieId]] = set()
        #: Entries it has seen, and with them the ledger's length.
        self.seen: set[int] = set()
        self.has_read = False
        #: The code of the last attempt to write an entry back to a bookie; None before its answer.
        self.write_backs: dict[tuple[int, BookieId], int | None] = {}


class Guarantees(Value):
    """The clauses that must hold after every move; ``clauses`` has their numbers."""

    clauses: ClassVar[tuple[str, ...]] = (
        *("A1", "A2", "A3", "A5", "A6", "B2", "B4", "B6", "B8", "C3", "C6", "C7", "D4", "D6", "E2", "E3", "E5", "G2"),
        *("L2", "L4", "L9", "L10", "L12"),
    )
    OUTSIDE = frozenset({"_world"})
    __slots__ = (
        "_closed",
        "_confirmed_by_writer",
        "_denied_by",
        "_failed",
        "_stored_for_writer",
        "_world",
        "_writers_metadata",
        "acknowledged",
    )

    def __init__(self, world: MachineWorld) -> None:
        self._world = world
        self.acknowledged = -1
        self._confirmed_by_writer = -1
        self._failed: set[int] = set()
        #: The entries that bookies confirmed to the writer.
        self._stored_for_writer: set[tuple[int, BookieId]] = set()
        #: The metadata that the writer itself stored last.
        self._writers_metadata = world.store.metadata
        self._denied_by: dict[int, set[BookieId]] = {}
        self._closed: LedgerMetadata | None = None

    def bind(self, world: MachineWorld) -> None:
        """Use ``world`` from now on."""
        self._world = world

    def forget_what_is_decided(self, *, of_writer: bool) -> None:
        """Forget what no later check asks for in a world where one client alone acts: the writer, or a recovery."""
        if not of_writer:
            self._denied_by = {}  # by bookies that nobody writes to
        last = self.acknowledged
        if self._failed:
            last = self._world.entries_appended
        stored = self._stored_for_writer
        self._stored_for_writer = {(entry_id, bookie) for entry_id, bookie in stored if entry_id > last}

    @property
    def confirmed(self) -> int:
        """The last entry that must not be lost: the last one acknowledged."""
        return self.acknowledged

    # Events

    def on_sent(self, message: Message) -> None:
        """D4, E2: reads begin after coverage, at the ensemble recovery started with. D6: no header tells too high a LAC."""
        client = message.client
        if message.add is not None:
            lac = message.add.last_add_confirmed
            if lac > self.confirmed:
                raise BrokenClause("D6", f"entry {message.entry_id} has LAC {lac}, {self.confirmed} is confirmed")
        heard = client.heard
        if heard is None:
            return
        if message.kind == "fence" and heard.started_with is None:
            heard.started_with = client.machine.metadata
        self._note_write_back(message)
        if message.kind == "read":
            assert heard.started_with is not None, "fences go out first"
            ensemble = heard.started_with.last_fragment.ensemble
            if not heard.has_read and not self._is_covered(ensemble, heard.fenced):
                raise BrokenClause("D4", f"reading began with {sorted(heard.fenced)} of {ensemble} fenced")
            heard.has_read = True
            if message.bookie_id not in self._write_set(message.entry_id, ensemble):
                raise BrokenClause("E2", f"entry {message.entry_id} was asked of {message.bookie_id}")

    def _note_write_back(self, message: Message) -> None:
        if message.client.heard is not None and message.kind == "add":
            message.client.heard.write_backs[message.entry_id, message.bookie_id] = None

    def on_answer(self, message: Message, code: int) -> None:
        """Note the answer that a client gets."""
        heard = message.client.heard
        if heard is None:
            if code == Code.OK:
                self._stored_for_writer.add((message.entry_id, message.bookie_id))
        elif message.kind == "fence" and (code == Code.OK or code in _DENIALS):
            heard.fenced.add(message.bookie_id)
        elif message.kind == "read" and code in _DENIALS:
            heard.denials.add((message.entry_id, message.bookie_id))
        elif message.kind in ("read", "measure") and code == Code.OK:
            heard.seen.add(message.entry_id)
        elif message.kind == "add":
            heard.write_backs[message.entry_id, message.bookie_id] = code

    def on_stored(self, message: Message) -> None:
        """E5: a bookie that denied an entry to a recovery does not store it for the writer. B8: the payload is the writer's."""
        assert message.add is not None, "only adds are stored"
        if message.client is self._world.writer and message.bookie_id in self._denied_by.get(message.entry_id, ()):
            raise BrokenClause("E5", f"{message.bookie_id} stored entry {message.entry_id} after denying it")
        if message.add.payload != self._world.payload_of(message.entry_id):
            raise BrokenClause("B8", f"entry {message.entry_id} has another payload than was appended")

    def on_ruled_out(self, heard: Heard, entry_id: int) -> None:
        """E3: only enough explicit negatives of the write set deny an entry."""
        assert heard.started_with is not None, "fences go out first"
        _, write_quorum, ack_quorum = self._world.configuration.sizes
        write_set = self._write_set(entry_id, heard.started_with.last_fragment.ensemble)
        deniers = {bookie_id for denied, bookie_id in heard.denials if denied == entry_id} & set(write_set)
        if write_quorum - len(deniers) >= ack_quorum:
            raise BrokenClause("E3", f"entry {entry_id} was ruled out by denials of {sorted(deniers)}")
        self._denied_by.setdefault(entry_id, set()).update(deniers)

    def on_gave_up(self, client: MachineClient, error: BookKeeperError) -> None:
        """L10: a recovery ends for lack of bookies only if some entry cannot get an ack quorum from answers still to come."""
        heard = client.heard
        if heard is None or not isinstance(error.__cause__, NotEnoughBookies):
            return
        outcomes, ensemble = heard.write_backs, client.machine.ensemble
        unconfirmed = {entry_id for entry_id, _ in outcomes if entry_id > client.machine.last_add_confirmed}
        copies = [
            sum(outcomes[entry_id, bookie_id] in (None, Code.OK) for bookie_id in self._write_set(entry_id, ensemble))
            for entry_id in unconfirmed
        ]
        if min(copies, default=len(ensemble)) >= self._world.configuration.ack_quorum:
            raise BrokenClause("L10", f"a recovery gave up although every entry may still be stored: {outcomes}")

    def on_acknowledged(self, entry_id: int) -> None:
        """A2, A3, A6: acknowledged with a quorum of the stored ensemble, in order, and never after a failure."""
        if entry_id != self.acknowledged + 1:
            raise BrokenClause("A3", f"entry {entry_id} was acknowledged after {self.acknowledged}")
        if self._failed:
            raise BrokenClause("A6", f"entry {entry_id} was acknowledged after an earlier one had failed")
        self.acknowledged = entry_id
        write_set = self._write_set(entry_id, self._writers_metadata.ensemble_at(entry_id))
        confirmed = [bookie_id for bookie_id in write_set if (entry_id, bookie_id) in self._stored_for_writer]
        if len(confirmed) < self._world.configuration.ack_quorum:
            raise BrokenClause("A2", f"entry {entry_id} was acknowledged with {confirmed}")

    def on_failed(self, entry_id: int) -> None:
        """A6: what was acknowledged does not fail later, and nothing fails twice."""
        if entry_id <= self.acknowledged or entry_id in self._failed:
            raise BrokenClause("A6", f"entry {entry_id} failed after it had been decided")
        self._failed.add(entry_id)

    def on_metadata(self, client: MachineClient, before: LedgerMetadata) -> None:
        """B2, C3, C6, C7: a closed ledger stays as it is; ensembles change where the writer's confirmations end."""
        after = self._world.store.metadata
        if self._closed is not None:
            raise BrokenClause("B2", "a closed ledger was changed")
        if client is self._world.writer:
            self._writers_metadata = after
        if after.state < before.state:
            raise BrokenClause("C3", f"{before.state.name} became {after.state.name}")
        if after.is_closed:
            self._closed = after
            self._check_length(client, after)
        elif after.fragments != before.fragments:
            if after.state is LedgerState.IN_RECOVERY:
                raise BrokenClause("C7", "the ensemble changed during recovery")
            if after.last_fragment.first_entry_id != self.acknowledged + 1:
                raise BrokenClause("C6", f"a fragment starts at {after.last_fragment.first_entry_id}")

    def _check_length(self, client: MachineClient, closed: LedgerMetadata) -> None:
        """B6: the length is that of the entries; a recovery that recovered nothing and could not measure may err."""
        if client.heard is not None and closed.last_entry_id not in client.heard.seen:
            return
        expected = sum(len(self._world.payload_of(entry_id)) for entry_id in range(closed.last_entry_id + 1))
        if closed.length != expected:
            raise BrokenClause("B6", f"closed with {closed.length} bytes instead of {expected}")

    # States

    def check(self) -> None:
        """A1, A5, B4: acknowledged entries are inside the ledger, and with it on enough of the right bookies."""
        self.check_confirmed()
        metadata = self._world.store.metadata
        end = self.confirmed
        if metadata.is_closed:
            if self.confirmed > metadata.last_entry_id:
                raise BrokenClause("A1", f"closed at {metadata.last_entry_id}, {self.confirmed} was confirmed")
            end = metadata.last_entry_id
        for entry_id in range(end + 1):
            write_set = self._write_set(entry_id, metadata.ensemble_at(entry_id))
            holders = [b for b in write_set if entry_id in self._world.bookies[b].entries]
            if len(holders) < self._world.configuration.ack_quorum:
                raise BrokenClause("B4" if metadata.is_closed else "A5", f"entry {entry_id} is only on {holders}")

    def check_confirmed(self) -> None:
        """G2: what a writer has confirmed is never taken back."""
        confirmed = self._world.writer.machine.last_add_confirmed
        if confirmed < self._confirmed_by_writer:
            raise BrokenClause("G2", f"the writer's LAC went from {self._confirmed_by_writer} back to {confirmed}")
        self._confirmed_by_writer = confirmed

    def check_settled(self) -> None:
        """L2, L9, L12: every entry is decided, and closing and recovering ended, once."""
        world, writer = self._world, self._world.writer
        if writer.is_alive:
            decided = self.acknowledged + 1 + len(self._failed)
            if decided != world.entries_appended:
                raise BrokenClause("L2", f"{decided} of {world.entries_appended} entries were decided")
            if writer.endings != writer.is_closed:
                raise BrokenClause(
                    "L12", f"closing ended {writer.endings} times, the writer is closed: {writer.is_closed}"
                )
        for recovery in world.recoveries:
            if recovery.is_alive and recovery.endings != 1:
                raise BrokenClause("L9", f"a recovery ended {recovery.endings} times")

    def check_closed(self) -> None:
        """L4: a recovery that nothing disturbed closed the ledger."""
        state = self._world.store.metadata.state
        if state is not LedgerState.CLOSED:
            raise BrokenClause("L4", f"a recovery without any trouble left the ledger {state.name}")

    def _write_set(self, entry_id: int, ensemble: Ensemble) -> list[BookieId]:
        return [ensemble[(entry_id + i) % len(ensemble)] for i in range(self._world.configuration.write_quorum)]

    def _is_covered(self, ensemble: Ensemble, known: Iterable[BookieId]) -> bool:
        silent = set(ensemble) - set(known)
        return not any(
            silent.issuperset(quorum)
            for first in range(len(ensemble))
            for quorum in combinations(self._write_set(first, ensemble), self._world.configuration.ack_quorum)
        )
