"""Entries on their way to their bookies, and the order in which they are done.

:class:`PendingAdds` is a part of a writer, and of the client that recovers a ledger. It counts answers, and completes entries
strictly in order: an entry is done when an ack quorum stored it and every entry before it is done (W-21).

Three numbers say how far it got. LAP is the highest id handed in. The sequence head is the highest id reported to the
application with everything before it. The LAC follows the sequence head, or with deferred sync the last force: what lies
between LAC and sequence head is acknowledged and not yet durable, and a close cuts it off (W-57).

Where callers choose ids (W-5), any id above the sequence head that is not pending is legal. How far ahead it is does not
matter: what is pending is bounded by the driver of the machine, by entries and bytes, and a gap costs nothing. Entries
are reported in id order, so those above a gap wait until it is filled, and fail when the ledger is closed before. The length in
an entry's header is that of all entries handed in so far up to it; so it is exact if no smaller id is handed in
later, and the length of the closed ledger always is (H-4).

For each entry every position of its write set is in one of three states: it acknowledged, it failed, or its answer is still
to come. An entry is *stuck* when the answers to come cannot make it durable any more. The owner must end that state, by
another bookie or by an error, and then no entry waits for ever.

This part decides nothing and asks for nothing: it says what an answer means, and its owner acts on it. While the ensemble
is being changed the owner completes nothing. That freeze is what makes an ensemble change safe: the new fragment starts at
LAC + 1, so the LAC must not move between that decision and its taking effect (W-22, W-34).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache
from itertools import accumulate, count, repeat
from typing import Final, NamedTuple

from bkclient._core import has_twins
from bkclient.errors import Code, Refusal
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.value import NOTHING, Value, own

__all__ = ["Effect", "NewEntry", "PendingAdd", "PendingAdds", "Spans"]

#: Answers that end the handle instead of the bookie's membership (W-17).
_FATAL_CODES: Final = frozenset(
    {int(Code.CLIENT_CLOSED), int(Code.ILLEGAL_OPERATION), int(Code.LEDGER_FENCED), int(Code.UNAUTHORIZED)}
)

Spans = Callable[[tuple[BookieId, ...]], bool]
"""Says whether these bookies span enough fault domains for an ack quorum (W-19)."""


@lru_cache(maxsize=1024)
def _write_sets(ensemble: Ensemble, sizes: QuorumSizes) -> tuple[tuple[BookieId, ...], ...]:
    """The bookies of each write set; one object for all ledgers with the same bookies."""
    return tuple(tuple(ensemble[position] for position in positions) for positions in sizes.write_sets)


class NewEntry(NamedTuple):
    """One entry as it is sent. Header and payload never change, so every replica of it is the same, resent ones too (W-11).

    ``last_add_confirmed`` and ``length`` are what the entry's header says.
    """

    entry_id: int
    payload: bytes
    last_add_confirmed: int
    length: int

    def __repr__(self) -> str:
        """Without the payload, which is the application's and may be secret."""
        return (
            f"NewEntry(entry_id={self.entry_id}, payload=..., last_add_confirmed={self.last_add_confirmed}, "
            f"length={self.length})"
        )


class PendingAdd(Value):
    """An entry that is not done, and what its bookies said.

    ``acknowledged`` and ``failed`` are sets of ensemble positions, as bit masks. A position in both stores the entry: it
    failed one sending and acknowledged another (DS-6).
    """

    __slots__ = ("acknowledged", "entry", "failed", "has_quorum")

    def __init__(self, entry: NewEntry) -> None:
        self.entry = entry
        self.acknowledged = 0
        self.failed = 0
        self.has_quorum = False


_unmade: Final[Callable[[type[PendingAdd]], PendingAdd]] = PendingAdd.__new__


class Effect(Enum):
    """What a failure of a bookie means."""

    #: Nothing: the bookie was replaced meanwhile, or is not needed for the entry any more.
    NONE = "none"
    #: The entry has its ack quorum without it (W-16).
    LATE = "late"
    #: Going on is impossible (W-17).
    REFUSED = "refused"
    #: The entry still needs the bookie, or another one in its place (W-24).
    NEEDED = "needed"


class PendingAdds(Value):
    """See the module. Positions are those of ``ensemble``; what was sent to bookies that were replaced counts for nothing."""

    __slots__ = (
        "defers_lac",
        "ensemble",
        "failure_codes",
        "last_add_acknowledged",
        "last_add_confirmed",
        "last_add_pushed",
        "length",
        "pending",
        "sizes",
        "write_sets",
    )

    def __init__(self, sizes: QuorumSizes, ensemble: Ensemble, *, defers_lac: bool = False) -> None:
        self.sizes: Final = sizes
        self.go_on_with(ensemble)
        #: Whether the LAC waits for a force instead of following the sequence head.
        self.defers_lac: Final = defers_lac
        #: Highest entry id done, in order: the sequence head.
        self.last_add_acknowledged = -1
        #: Highest entry id known to be durable with everything before it (LAC).
        self.last_add_confirmed = -1
        #: Highest entry id handed in (LAP).
        self.last_add_pushed = -1
        #: Payload bytes of all entries handed in (and not taken back), from the start of the ledger.
        self.length = 0
        self.pending: dict[int, PendingAdd] = {}
        #: By which code each bookie failed last; for error messages.
        self.failure_codes: dict[BookieId, int] = NOTHING

    def go_on_with(self, ensemble: Ensemble) -> None:
        """What follows is stored by ``ensemble``."""
        self.ensemble = ensemble
        #: Its write sets: that of entry ``n`` is the one at ``n`` modulo E.
        self.write_sets = _write_sets(ensemble, self.sizes)

    # Entries -----------------------------------------------------------------------------------------------------

    def write_set(self, entry_id: int) -> tuple[BookieId, ...]:
        """The bookies that are to store the entry."""
        return self.write_sets[entry_id % self.sizes.ensemble_size]

    def push(self, payload: bytes, header_lac: int) -> NewEntry:
        """Take the next entry (W-4, W-10)."""
        assert self.last_add_confirmed <= self.last_add_acknowledged <= self.last_add_pushed, "LAC, head, LAP"
        entry_id = self.last_add_pushed = self.last_add_pushed + 1
        length = self.length = self.length + len(payload)
        # As their own constructors, which are Python functions, and every entry would pay.
        entry = tuple.__new__(NewEntry, (entry_id, payload, header_lac, length))
        add = self.pending[entry_id] = _unmade(PendingAdd)
        add.entry = entry
        add.acknowledged = add.failed = 0
        add.has_quorum = False
        return entry

    def push_all(self, payloads: Sequence[bytes], header_lac: int) -> list[NewEntry]:
        """Take the next entries, each as :meth:`push` does; there is one at least."""
        assert self.last_add_confirmed <= self.last_add_acknowledged <= self.last_add_pushed, "LAC, head, LAP"
        first, pending = self.last_add_pushed + 1, self.pending
        lengths = list(accumulate(map(len, payloads), initial=self.length))
        values = zip(count(first), payloads, repeat(header_lac), lengths[1:], strict=False)
        entries = list(map(tuple.__new__, repeat(NewEntry), values))
        for entry_id, entry in enumerate(entries, start=first):
            add = pending[entry_id] = _unmade(PendingAdd)
            add.entry = entry
            add.acknowledged = add.failed = 0
            add.has_quorum = False
        self.last_add_pushed, self.length = first + len(entries) - 1, lengths[-1]
        return entries

    def push_at(self, entry_id: int, payload: bytes, header_lac: int) -> NewEntry:
        """Take an entry under an id of the caller's choice, which is not taken (W-5)."""
        assert entry_id > self.last_add_acknowledged >= self.last_add_confirmed, "done entries are below the head"
        assert entry_id not in self.pending, "an id is used once"
        self.length += len(payload)
        length = self.length
        if entry_id < self.last_add_pushed:
            length -= sum(len(add.entry.payload) for add in self.pending.values() if add.entry.entry_id > entry_id)
        else:
            self.last_add_pushed = entry_id
        entry = NewEntry(entry_id, payload, header_lac, length)
        self.pending[entry_id] = PendingAdd(entry)
        return entry

    @property
    def acknowledged_length(self) -> int:
        """Payload bytes up to the sequence head."""
        return self.length - sum(len(add.entry.payload) for add in self.pending.values())

    def in_id_order(self) -> list[PendingAdd]:
        """The pending adds by id; where callers choose ids, adds need not have come in that order."""
        return [self.pending[entry_id] for entry_id in sorted(self.pending)]

    def drain(self) -> list[NewEntry]:
        """Take back everything that is not done, its bytes included (W-51.1)."""
        drained = [add.entry for add in self.in_id_order()]
        self.pending.clear()
        self.length -= sum(len(entry.payload) for entry in drained)
        self.last_add_pushed = self.last_add_acknowledged
        return drained

    def cut_off(self, forced_length: int) -> None:
        """The ledger is to end at the LAC; ``forced_length`` is the length there if the LAC waits for forces."""
        assert not self.pending, "what is pending was taken back"
        self.last_add_pushed = self.last_add_confirmed
        if self.defers_lac:
            self.length = forced_length

    def end_at(self, last_entry_id: int, length: int) -> None:
        """The ledger is known to end there, whatever was counted."""
        self.last_add_acknowledged = self.last_add_confirmed = self.last_add_pushed = last_entry_id
        self.length = length + sum(len(add.entry.payload) for add in self.pending.values())

    # Answers -----------------------------------------------------------------------------------------------------

    def acknowledge(self, bookie_id: BookieId, entry_id: int) -> PendingAdd | None:
        """The bookie stored the entry. Returns the add if an ack quorum has, and it is not known to have its quorum."""
        add = self.pending.get(entry_id)
        if add is None:
            return None
        acknowledged = add.acknowledged
        ensemble, sizes = self.ensemble, self.sizes
        found = -1
        for position in sizes.write_sets[entry_id % sizes.ensemble_size]:
            if ensemble[position] == bookie_id:
                found = position
                if not acknowledged >> position & 1:
                    break  # else look on: old metadata may name a bookie twice, and it answers once for each place
        if found < 0:
            return None  # W-14: it was replaced meanwhile, so its answer counts for nothing.
        acknowledged = add.acknowledged = acknowledged | 1 << found
        assert acknowledged.bit_count() <= sizes.write_quorum_size, "only the write set acknowledges"
        return None if add.has_quorum or not sizes.is_ack_quorum(acknowledged) else add

    def acknowledge_all(self, bookie_id: BookieId, entry_ids: Iterable[int]) -> bool:
        """The bookie stored these entries; tells whether any has its ack quorum by that.

        Does what :meth:`acknowledge` does for each of them in order, where every add it returns has its quorum. This is what
        most answers come to, so the bookie is looked for once.
        """
        ensemble, sizes, pending = self.ensemble, self.sizes, self.pending
        if ensemble.count(bookie_id) != 1:  # replaced meanwhile, or named twice by old metadata
            return self.acknowledge_each(bookie_id, entry_ids)
        size, quorum, has_any = sizes.ensemble_size, sizes.ack_quorum_size, False
        bit = 1 << ensemble.index(bookie_id)
        if sizes.is_striped:
            write_sets = sizes.masks
            entry_ids = [entry_id for entry_id in entry_ids if write_sets[entry_id % size] & bit]
        for add in map(pending.get, entry_ids):
            if add is None:
                continue
            acknowledged = add.acknowledged = add.acknowledged | bit
            if not add.has_quorum and acknowledged.bit_count() >= quorum:
                add.has_quorum = has_any = True
        return has_any

    def acknowledge_each(self, bookie_id: BookieId, entry_ids: Iterable[int]) -> bool:
        """What :meth:`acknowledge_all` does, in the words in which it is defined."""
        has_any = False
        for entry_id in entry_ids:
            add = self.acknowledge(bookie_id, entry_id)
            if add is not None:
                add.has_quorum = has_any = True
        return has_any

    def fail(self, bookie_id: BookieId, entry_id: int, code: int) -> tuple[Effect, int, PendingAdd | None]:
        """The bookie did not store the entry, or it is not known that it did; ``code`` says why.

        Returns what that means, the bookie's position, and the add if it is not done.
        """
        self.failure_codes = own(self.failure_codes)
        self.failure_codes[bookie_id] = code
        add = self.pending.get(entry_id)
        if add is None:
            if entry_id > self.last_add_acknowledged:
                return Effect.NONE, -1, None  # The add was drained: the bookie is not needed for it any more.
            position = self._position_of(bookie_id, entry_id, 0)
            return (Effect.NONE if position < 0 else Effect.LATE), position, None
        position = self._position_of(bookie_id, entry_id, add.acknowledged)
        if position < 0:
            return Effect.NONE, position, add  # W-14
        if add.has_quorum:
            add.failed |= 1 << position
            return Effect.LATE, position, add
        if code in _FATAL_CODES and not isinstance(code, Refusal):
            return Effect.REFUSED, position, add
        add.failed |= 1 << position
        add.acknowledged &= ~(1 << position)  # DS-7: who says both is not relied upon
        return Effect.NEEDED, position, add

    def _position_of(self, bookie_id: BookieId, entry_id: int, acknowledged: int) -> int:
        """Where in the write set the bookie is, as :meth:`acknowledge` finds it; -1 if nowhere."""
        found = -1
        for position in self.sizes.write_set(entry_id):
            if self.ensemble[position] == bookie_id:
                found = position
                if not acknowledged >> position & 1:
                    break
        return found

    # What the answers prove --------------------------------------------------------------------------------------

    def spans(self, add: PendingAdd, spans: Spans) -> bool:
        """Whether those who acknowledged ``add`` span enough fault domains (W-19)."""
        write_set = self.sizes.write_set(add.entry.entry_id)
        return spans(tuple(self.ensemble[p] for p in write_set if add.acknowledged >> p & 1))

    def is_stuck(self, add: PendingAdd) -> bool:
        """Whether no answer that is still to come can make ``add`` durable (DS-7)."""
        if add.has_quorum:
            return False
        sizes = self.sizes
        failed = (add.failed & ~add.acknowledged).bit_count()
        is_lost = failed > sizes.write_quorum_size - sizes.ack_quorum_size
        return is_lost or failed + add.acknowledged.bit_count() == sizes.write_quorum_size

    def failures_of(self, add: PendingAdd) -> dict[int, BookieId]:
        """The positions that failed ``add`` and have not been asked again since."""
        failed = add.failed & ~add.acknowledged
        return {p: self.ensemble[p] for p in self.sizes.write_set(add.entry.entry_id) if failed >> p & 1}

    # Completion and change ---------------------------------------------------------------------------------------

    def complete(self) -> list[NewEntry]:
        """Take out what is done now, in order: the entries above the sequence head that have their quorum (W-21)."""
        pending, head = self.pending, self.last_add_acknowledged
        done = []
        while (add := pending.get(head + 1)) is not None and add.has_quorum:
            head += 1
            done.append(add.entry)
            del pending[head]
        if done:
            assert head - done[0].entry_id + 1 == len(done), "entries are done one after the other"
            assert done[-1].entry_id == head, "entries are done under their own ids"
            self.last_add_acknowledged = head
            if not self.defers_lac:
                self.last_add_confirmed = head
            assert self.last_add_confirmed <= head <= self.last_add_pushed, "LAC, head, LAP"
        return done

    def take_stored(self, entry_ids: Sequence[int]) -> list[NewEntry] | None:
        """Take out these entries, which an ack quorum stored, and what waited for them, as :meth:`complete` does.

        Their ids count up. None, and nothing is done, if they are not the next ones, or a bookie has failed, so that it matters
        which bookies stored what.
        """
        pending, head = self.pending, self.last_add_acknowledged
        if self.failure_codes or entry_ids[0] != head + 1 or entry_ids[0] not in pending:
            return None
        is_one = len(entry_ids) == 1  # as when a thousand ledgers are written in turn; a loop is a call more
        done = [pending.pop(head + 1).entry] if is_one else [pending.pop(entry_id).entry for entry_id in entry_ids]
        head += len(done)
        assert done[-1].entry_id == head, "entries are done one after the other"
        self.last_add_acknowledged = head
        if not self.defers_lac:
            self.last_add_confirmed = head
        assert self.last_add_confirmed <= head <= self.last_add_pushed, "LAC, head, LAP"
        following = pending.get(head + 1)
        if following is not None and following.has_quorum:  # it waited for these
            done += self.complete()
        return done

    def switch(
        self, ensemble: Ensemble, positions: Iterable[int], spans: Spans | None = None
    ) -> list[tuple[NewEntry, tuple[BookieId, ...]]]:
        """Go on with ``ensemble``: ``positions`` start from nothing, so pending adds are sent there again (W-36..W-39).

        Returns what to send, by bookie. What replaced bookies acknowledged is void. Positions may also name bookies that stayed:
        then the entry is simply sent once more, which is harmless (W-13). Entries that only waited for the change to end can be
        completed then (W-39).
        """
        changed = tuple(sorted(positions))
        assert len(ensemble) == len(self.ensemble), "an ensemble keeps its size"
        assert all(a == b or p in changed for p, (a, b) in enumerate(zip(self.ensemble, ensemble, strict=True)))
        still_valid = ~sum(1 << position for position in changed)
        self.go_on_with(ensemble)
        resent = []
        for add in self.in_id_order():
            add.acknowledged &= still_valid
            add.failed &= still_valid
            add.has_quorum = self.sizes.is_ack_quorum(add.acknowledged) and (spans is None or self.spans(add, spans))
            entry_id = add.entry.entry_id
            bookies = tuple(ensemble[position] for position in changed if self.sizes.stores(position, entry_id))
            if bookies:
                resent.append((add.entry, bookies))
        return resent


has_twins("counting", PendingAdds, "push", "acknowledge_all", "complete", "take_stored", knows=(PendingAdd, NewEntry))
