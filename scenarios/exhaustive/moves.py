"""The moves from a state of the cluster, and which of them suffice.

A state is one integer: the numbers of the writer's conversation, of each recovery's, of each bookie's state, of what the metadata
store holds, and of crashes left, each in a field of its own. Every move adds a constant to it, which depends on the fields that
it changes and is computed once.

Usually the order of two moves does not matter, and one order stands for both. A move, or all moves of one client, may go
first, alone, if no move that others can still make reaches or notices it (a *persistent set*):

* a client with no request under way, but with something to do: nobody else can send anything to it;
* a request to a bookie that is down;
* a request to a fenced bookie that does not crash any more, if its answer and effect are always the same there: an add of the
  writer, a read of an entry that it has;
* a request to such a bookie that no other client can send to any more: what else the same client sends there does not matter;
* an action in the metadata store, if no other client will ask it any more.

:mod:`scenarios.exhaustive.verifying` checks these assumptions against the automata after the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from bkclient.errors import Code
from bkclient.ledger import LedgerMetadata, LedgerState, Versioned
from scenarios.exhaustive.automata import Ask, AskStore, ClientAutomaton
from scenarios.exhaustive.bookies import BookieAutomaton
from scenarios.exhaustive.configuration import Reductions, SmallCluster
from scenarios.exhaustive.conversations import Conversations
from scenarios.machines.bookies import MachineBookie, StoredEntry
from scenarios.machines.broken import BrokenClause
from scenarios.machines.store import ensembles_of, ledger

__all__ = ["BrokenMove", "ClusterMoves", "Free", "StepOfCluster", "TooManyNumbersError", "broken_by_write", "in_short"]

#: Bits of each field. Conversations come first: they vary most, and the low bits decide where a set keeps a number.
_CONVERSATION: Final = 22
_PART: Final = 12
_MASK: Final = (1 << _CONVERSATION) - 1
_PART_MASK: Final = (1 << _PART) - 1


class TooManyNumbersError(Exception):
    """A field of the state is too small for this search."""


class StepOfCluster(NamedTuple):
    """A move in words: who, does what, with what; and the state after it."""

    client: int
    label: tuple[str, object]
    after: int
    broken: BrokenClause | None = None


class BrokenMove(NamedTuple):
    """A move from ``before`` that breaks a clause by itself."""

    before: int
    step: StepOfCluster


class Free(NamedTuple):
    """A request that went first at a bookie in this state; ``is_alone``: since no other client could send to it."""

    bookie: int
    ask: Ask
    of_writer: bool
    is_alone: bool


class _AtBookie(NamedTuple):
    """What one client may have handled at one bookie: all of it, and what may go first: always, or if nobody else sends to it."""

    deltas: tuple[int, ...]
    always: int | None
    alone: int | None


class _Traits(NamedTuple):
    """Of a conversation: whether it is over, whether it waits for an answer, and the bookies that it has requests to.

    ``reaches`` is the set of bookies that it has requests to, or may send some to, as a mask.
    """

    number: int
    is_over: bool
    is_waiting: bool
    places: tuple[int, ...]
    reaches: int


class ClusterMoves:
    """All moves of a cluster. Clients are numbered: the writer is 0, recoveries follow."""

    def __init__(self, cluster: SmallCluster, reductions: Reductions, wanted: frozenset[str] | None = None) -> None:
        self.cluster = cluster
        self.reductions = reductions
        #: The clauses whose breach ends the search; None for all.
        self.wanted = wanted
        merges = reductions.ended
        self.writer = ClientAutomaton(cluster, is_writer=True, merges_ended=merges, wanted=wanted)
        self.recovery = ClientAutomaton(cluster, is_writer=False, merges_ended=merges, wanted=wanted)
        self.bookies = BookieAutomaton(wanted)
        self.of_writer = Conversations(cluster, self.writer, reductions)
        self.of_recovery = Conversations(cluster, self.recovery, reductions)
        self.values: list[Versioned] = [ledger(cluster.sizes, "".join(cluster.names[: cluster.ensemble_size]))]
        self._value_numbers: dict[Versioned, int] = {self.values[0]: 0}
        clients = 1 + cluster.recoveries
        self.client_shifts = [_CONVERSATION * client for client in range(clients)]
        self.parts_shift = _CONVERSATION * clients
        self.bookie_shifts = [self.parts_shift + _PART * place for place in range(cluster.bookies)]
        self.store_shift = self.parts_shift + _PART * cluster.bookies
        has_rivals = cluster.recoveries > 1 and reductions.rivals
        self._rivals = (self.client_shifts[1], self.client_shifts[2]) if has_rivals else None
        #: ClusterMoves that break a clause by themselves, as they were computed: the search stops at the first.
        self.broken: list[BrokenMove] = []
        self.free: set[Free] = set()
        self._local: list[dict[int, tuple[int, ...]]] = [{} for _ in range(clients)]
        self._at_bookies: list[dict[int, _AtBookie]] = [{} for _ in range(clients)]
        self._in_store: list[dict[int, tuple[int, ...]]] = [{} for _ in range(clients)]
        self._traits: list[dict[int, _Traits]] = [{} for _ in range(clients)]
        self._state = 0

    def first(self) -> list[int]:
        """The states in which nothing has happened yet: one for each choice of bookies that may crash."""
        begun = self.of_writer.begin(self.values[0])
        doomed = combinations(self.bookie_shifts, self.cluster.crashes)
        return [begun | sum(1 << shift for shift in chosen) for chosen in doomed]

    # Fields ------------------------------------------------------------------------------------------------------

    def conversation(self, state: int, client: int) -> int:
        """The number of the client's conversation."""
        return state >> self.client_shifts[client] & _MASK

    def bookie(self, state: int, place: int) -> int:
        """The number of the bookie's state."""
        return state >> self.bookie_shifts[place] & _PART_MASK

    def value(self, state: int) -> int:
        """The number of what the store holds."""
        return state >> self.store_shift & _PART_MASK

    def conversations(self, client: int) -> Conversations:
        """The table that the client's conversations are in."""
        return self.of_recovery if client else self.of_writer

    def canonical(self, state: int) -> int:
        """The state in which recoveries have the order of their numbers; theirs are interchangeable."""
        if self._rivals is None:
            return state
        one, other = self._rivals
        first, second = state >> one & _MASK, state >> other & _MASK
        if len(self.client_shifts) == 3:
            return state if first >= second else state + (second - first << one) - (second - first << other)
        shifts = self.client_shifts[1:]
        fields = [state >> shift & _MASK for shift in shifts]
        for shift, field, instead in zip(shifts, fields, sorted(fields, reverse=True), strict=True):
            state += instead - field << shift
        return state

    # The fast path -----------------------------------------------------------------------------------------------

    def successors(self, state: int) -> list[int]:
        """The states after one move, those that suffice; not canonical. Empty for a final state."""
        self._state = state
        traits = []
        for client, shift in enumerate(self.client_shifts):
            number = state >> shift & _MASK
            traits.append(self._traits[client].get(number) or self._traits_of(client, number))
        deltas: Sequence[int] | None = None
        if self.reductions.ended and all(one.is_over for one in traits):
            return []
        if self.reductions.alone:
            deltas = self._first(state, traits)
        if deltas is None:
            deltas = self._all(state, traits)
        return [state + delta for delta in deltas]

    def _first(self, state: int, traits: list[_Traits]) -> Sequence[int] | None:
        """The moves that may go first, or None."""
        for client, (number, is_over, is_waiting, _, _) in enumerate(traits):
            if not (is_over or is_waiting):
                local = self._local[client].get(number)
                if local is None:
                    local = self._local_of(client, number)
                if local:
                    return local
        for client, (number, _, _, places, _) in enumerate(traits):
            at_bookies = self._at_bookies[client]
            for place in places:
                bookie = state >> self.bookie_shifts[place] & _PART_MASK
                key = (number << 3 | place) << _PART | bookie
                _, always, alone = at_bookies.get(key) or self._at_bookie(client, number, place, bookie)
                if always is not None:
                    return (always,)
                if alone is not None and all(
                    not one.reaches >> place & 1 for other, one in enumerate(traits) if other != client
                ):
                    return (alone,)
        busy = [client for client, one in enumerate(traits) if not one.is_over]
        if len(busy) == 1 and busy[0]:
            # A recovery has one action under way at a time; a writer may have a change and a close.
            value = state >> self.store_shift & _PART_MASK
            return self._store_deltas(busy[0], traits[busy[0]].number, value) or None
        return None

    def _all(self, state: int, traits: list[_Traits]) -> list[int]:
        value = state >> self.store_shift & _PART_MASK
        deltas: list[int] = []
        for client, (number, _, _, places, _) in enumerate(traits):
            if not number:
                deltas.append(self._beginning(client, value))
                break  # recoveries begin one after the other
            local = self._local[client].get(number)
            deltas += self._local_of(client, number) if local is None else local
            at_bookies = self._at_bookies[client]
            for place in places:
                bookie = state >> self.bookie_shifts[place] & _PART_MASK
                at = at_bookies.get((number << 3 | place) << _PART | bookie)
                deltas += (at or self._at_bookie(client, number, place, bookie)).deltas
            deltas += self._store_deltas(client, number, value)
        return deltas

    # Tables ------------------------------------------------------------------------------------------------------

    def _traits_of(self, client: int, number: int) -> _Traits:
        table = self.conversations(client)
        one = table.all[number]
        is_passive = bool(number) and not one.items and not table.local(number)
        is_over = is_passive or (
            one.facts.has_ended and not any(isinstance(w, AskStore) for w in table.described(number))
        )
        reaches = sum(1 << place for place in one.asks) if is_over or one.facts.sends_no_more else -1
        found = self._traits[client][number] = _Traits(number, is_over, one.is_waiting, tuple(one.asks), reaches)
        return found

    def _local_of(self, client: int, number: int) -> tuple[int, ...]:
        shift = self.client_shifts[client]
        deltas = []
        for label, after, broken in self.conversations(client).local(number):
            if self._is_sound(client, label, broken):
                deltas.append(self._checked(after - number, after, _MASK) << shift)
        found = self._local[client][number] = tuple(deltas)
        return found

    def _at_bookie(self, client: int, number: int, place: int, bookie: int) -> _AtBookie:
        deltas: list[int] = []
        always = alone = None
        state, may_crash = self.bookies.bookie(bookie), self.bookies.crashed(bookie) is not None
        for ask, delta, _ in self._handled(client, number, place, bookie):
            deltas.append(delta)
            if not state.is_up:
                always = delta
            elif may_crash:
                pass  # before the crash or after it
            elif self.is_settled(state, ask, of_writer=not client):
                always = delta
                self.free.add(Free(bookie, ask, not client, is_alone=False))
            else:
                alone = delta
                self.free.add(Free(bookie, ask, not client, is_alone=True))
        key = (number << 3 | place) << _PART | bookie
        found = self._at_bookies[client][key] = _AtBookie(tuple(deltas), always, alone)
        return found

    @staticmethod
    def is_settled(bookie: MachineBookie, ask: Ask, *, of_writer: bool) -> bool:
        """Whether answer and effect of ``ask`` stay as they are, whatever else the bookie handles before."""
        if not bookie.is_fenced:
            return False
        return of_writer if ask.add is not None else ask.kind != "fence" and ask.entry_id in bookie.entries

    def _handled(self, client: int, number: int, place: int, bookie: int) -> Iterator[tuple[Ask, int, int]]:
        """The requests that the bookie may handle, what each changes, and the code of the answer."""
        table = self.conversations(client)
        for item, ask, is_late in table.all[number].asks[place]:
            outcomes: list[tuple[int, int, StoredEntry | None]] = []
            try:
                outcomes.append(self.bookies.step(bookie, ask, of_writer=not client))
            except BrokenClause as broken:
                self._is_sound(client, ("arrives late" if is_late else "arrives", ask), broken)
            crashed = self.bookies.crashed(bookie)
            if crashed is not None:
                outcomes.append((crashed, Code.BOOKIE_NOT_AVAILABLE, None))
            for next_bookie, code, entry in outcomes:
                after = table.handled(number, item, code, entry)
                delta = self._checked(after - number, after, _MASK) << self.client_shifts[client]
                delta += self._checked(next_bookie - bookie, next_bookie, _PART_MASK) << self.bookie_shifts[place]
                yield ask, delta, code

    def _store_deltas(self, client: int, number: int, value: int) -> tuple[int, ...]:
        key = number << _PART | value
        found = self._in_store[client].get(key)
        if found is None:
            found = self._in_store[client][key] = tuple(delta for _, delta in self._carried_out(client, number, value))
        return found

    def _carried_out(self, client: int, number: int, value: int) -> Iterator[tuple[str, int]]:
        table = self.conversations(client)
        one, stored = table.all[number], self.values[value]
        for item, action in one.updates:
            next_value, answer, loss = value, stored if action.write is None else None, False
            if action.write is not None and action.write.version == stored.version + 1:
                broken = broken_by_write(stored.metadata, action.write.metadata)
                is_wanted = broken is not None and self.is_wanted(broken)
                words = _words_of(action, is_written=True, is_lost=False)
                if is_wanted and not self._is_sound(client, ("store", words), broken):
                    continue
                next_value, answer = self._value(action.write), action.write
            for loss in (False, True)[: 1 + bool(one.lost_answers and action.write is not None and answer is not None)]:
                after = table.carried_out(number, item, None if loss else answer, loses_answer=loss)
                delta = self._checked(after - number, after, _MASK) << self.client_shifts[client]
                delta += self._checked(next_value - value, next_value, _PART_MASK) << self.store_shift
                yield _words_of(action, is_written=next_value != value, is_lost=loss), delta

    def _value(self, value: Versioned) -> int:
        number = self._value_numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def _beginning(self, client: int, value: int) -> int:
        number = self.of_recovery.begin(self.values[value])
        return self._checked(number, number, _MASK) << self.client_shifts[client]

    def is_wanted(self, broken: BrokenClause) -> bool:
        """Whether the search is for this clause. Assertions of machines are always."""
        return self.wanted is None or not broken.clause or broken.clause in self.wanted

    def _is_sound(self, client: int, label: tuple[str, object], broken: BrokenClause | None) -> bool:
        if broken is not None and self.is_wanted(broken):
            self.broken.append(BrokenMove(self._state, StepOfCluster(client, label, self._state, broken)))
        return broken is None

    @staticmethod
    def _checked(delta: int, number: int, mask: int) -> int:
        if number > mask:
            raise TooManyNumbersError(f"more than {mask} numbers of one kind")
        return delta

    # The slow path -----------------------------------------------------------------------------------------------

    def in_words(self, state: int) -> Iterator[StepOfCluster]:
        """Every move from ``state``, in words; the states after them are not canonical."""
        self._state = state
        value = self.value(state)
        for client in range(len(self.client_shifts)):
            number = self.conversation(state, client)
            if not number:
                yield StepOfCluster(client, ("begins", None), state + self._beginning(client, value))
                break
            table = self.conversations(client)
            for label, after, broken in table.local(number):
                yield StepOfCluster(client, label, state + (after - number << self.client_shifts[client]), broken)
            for place in table.all[number].asks:
                known = len(self.broken)
                for ask, delta, code in self._handled(client, number, place, self.bookie(state, place)):
                    yield StepOfCluster(client, ("arrives", (ask, code)), state + delta)
                yield from [one.step for one in self.broken[known:]]
            known = len(self.broken)
            for words, delta in self._carried_out(client, number, value):
                yield StepOfCluster(client, ("store", words), state + delta)
            yield from [one.step for one in self.broken[known:]]


def broken_by_write(before: LedgerMetadata, after: LedgerMetadata) -> BrokenClause | None:
    """B2, C3, C7: what no write to the metadata store may do."""
    if before.is_closed:
        return BrokenClause("B2", "a closed ledger was changed")
    if after.state < before.state:
        return BrokenClause("C3", f"{before.state.name} became {after.state.name}")
    if after.state is LedgerState.IN_RECOVERY and after.fragments != before.fragments:
        return BrokenClause("C7", "the ensemble changed during recovery")
    return None


def _words_of(action: AskStore, *, is_written: bool, is_lost: bool) -> str:
    if action.write is None:
        return "tells what it holds"
    what = in_short(action.write)
    if not is_written:
        return f"refuses {what}: another version is stored"
    return f"stores {what}" + ("; the answer is lost" if is_lost else "")


def in_short(value: Versioned) -> str:
    """What the metadata store holds, in a few words."""
    metadata = value.metadata
    fragments = ", ".join(f"{first}: {bookies}" for first, bookies in ensembles_of(metadata).items())
    end = f" at {metadata.last_entry_id}, {metadata.length} bytes" if metadata.is_closed else ""
    return f"{metadata.state.name}{end}, ensembles {{{fragments}}}"
