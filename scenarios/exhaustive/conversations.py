"""A client together with what is under way from and to it, as a number.

What is under way is a bag of messages. Everything that happens to a client alone (an answer arrives, it gives up on a request,
the application acts) leads from one conversation to another, whatever the rest of the cluster is like; so it is computed
once. What happens at a bookie or in the metadata store depends on their states, and :mod:`scenarios.exhaustive.moves` joins them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bkclient.errors import Code
from bkclient.ledger import Versioned
from scenarios.exhaustive.automata import (
    APPEND,
    CLOSE,
    Answered,
    Ask,
    AskStore,
    AutomatonStep,
    ClientAutomaton,
    ClientFacts,
    Stimulus,
    Told,
)
from scenarios.exhaustive.configuration import Reductions, SmallCluster
from scenarios.machines.bookies import StoredEntry
from scenarios.machines.broken import BrokenClause

__all__ = ["Conversation", "Conversations", "Item", "LocalMove", "Overdue"]


class Overdue(NamedTuple):
    """A request that its client has given up on, and that may still arrive."""

    ask: Ask


#: What may be under way.
Item = Ask | Overdue | Answered | AskStore | Told


class LocalMove(NamedTuple):
    """Something that happens to a client alone; ``label`` says what, ``after`` is the next conversation."""

    label: tuple[str, object]
    after: int
    broken: BrokenClause | None


@dataclass(slots=True)
class Conversation:
    """A state of a client, and what is under way from and to it, sorted; and what it has left of its faults."""

    state: int
    items: tuple[int, ...]
    timeouts: int
    lost_answers: int
    facts: ClientFacts
    #: Requests that bookies have not handled: item and request, by the bookie's place.
    asks: dict[int, list[tuple[int, Ask, bool]]] = field(default_factory=dict)
    #: Actions that the store has not carried out.
    updates: list[tuple[int, AskStore]] = field(default_factory=list)
    #: Whether an answer is to come from a bookie or the store.
    is_waiting: bool = False
    #: The highest LAC in an entry under way.
    told_under_way: int = -1
    local: tuple[LocalMove, ...] | None = None


class Conversations:
    """All conversations of one automaton. Number 0 is that of a client that has not begun."""

    def __init__(self, cluster: SmallCluster, automaton: ClientAutomaton, reductions: Reductions) -> None:
        self._automaton: Final = automaton
        self._drops: Final = reductions.dead
        self._places: Final = {name: place for place, name in enumerate(cluster.names)}
        self._items: list[Item] = []
        self._item_numbers: dict[Item, int] = {}
        nobody = ClientFacts(
            -1, has_ended=False, sends_no_more=False, may_append=False, may_close=False, outcome="never", unsettled=None
        )
        self.all: list[Conversation] = [Conversation(0, (), 0, 0, nobody, local=())]
        self._numbers: dict[Hashable, int] = {}
        #: States of the machine with the answers that were not delivered there.
        self.dropped: set[tuple[int, Answered]] = set()
        self._first_timeouts = cluster.writer_timeouts if automaton.is_writer else cluster.recovery_timeouts
        self._first_lost_answers = cluster.lost_answers

    def begin(self, value: Versioned) -> int:
        """The conversation of a client that begins."""
        step = self._automaton.begin(value)
        return self._number(step.state, self._sent(step), self._first_timeouts, self._first_lost_answers)

    # ClusterMoves of the client alone ----------------------------------------------------------------------------------------

    def local(self, number: int) -> tuple[LocalMove, ...]:
        """What may happen to the client alone."""
        one = self.all[number]
        if one.local is None:
            one.local = tuple(self._local(one))
        return one.local

    def _local(self, one: Conversation) -> Iterable[LocalMove]:
        for item in dict.fromkeys(one.items):
            what = self._items[item]
            if isinstance(what, Answered | Told):
                yield self._stimulated(one, what, self._without(one, item), ("hears", what))
            if isinstance(what, Ask | Answered) and one.timeouts and not one.facts.has_ended:
                ask = what if isinstance(what, Ask) else what.ask
                left = self._without(one, item)
                if isinstance(what, Ask):
                    left.append(self._item(Overdue(ask)))
                heard = Answered(ask, Code.TIMEOUT, None)
                yield self._stimulated(one, heard, left, ("gives up on", ask), timeouts=one.timeouts - 1)
            if isinstance(what, AskStore) and what.is_done:
                told = Told(what.number, None)
                yield self._stimulated(one, told, self._without(one, item), ("hears", told))
        if one.facts.may_append:
            yield self._stimulated(one, APPEND, list(one.items), ("appends", None))
        if one.facts.may_close:
            yield self._stimulated(one, CLOSE, list(one.items), ("closes", None))

    def _stimulated(
        self,
        one: Conversation,
        stimulus: Stimulus,
        left: list[int],
        label: tuple[str, object],
        timeouts: int | None = None,
    ) -> LocalMove:
        step = self._automaton.step(one.state, stimulus)
        if step.broken is not None:
            return LocalMove(label, 0, step.broken)
        timeouts = one.timeouts if timeouts is None else timeouts
        after = self._number(step.state, [*left, *self._sent(step)], timeouts, one.lost_answers)
        return LocalMove(label, after, None)

    # ClusterMoves at bookies and in the store ------------------------------------------------------------------------------

    def handled(self, number: int, item: int, code: int, entry: StoredEntry | None) -> int:
        """The conversation after a bookie has handled the request ``item``."""
        one, what = self.all[number], self._items[item]
        left = self._without(one, item)
        if isinstance(what, Ask):
            left.append(self._item(Answered(what, code, entry)))
        return self._number(one.state, left, one.timeouts, one.lost_answers)

    def carried_out(self, number: int, item: int, value: Versioned | None, *, loses_answer: bool = False) -> int:
        """The conversation after the store has carried out the action ``item``."""
        one, what = self.all[number], self._items[item]
        assert isinstance(what, AskStore), "only actions are carried out"
        left = [*self._without(one, item), self._item(Told(what.number, value))]
        return self._number(one.state, left, one.timeouts, one.lost_answers - loses_answer)

    def described(self, number: int) -> list[Item]:
        """What is under way."""
        return [self._items[item] for item in self.all[number].items]

    # Numbers -----------------------------------------------------------------------------------------------------

    def _without(self, one: Conversation, item: int) -> list[int]:
        left = list(one.items)
        left.remove(item)
        return left

    def _sent(self, step: AutomatonStep) -> list[int]:
        items: tuple[Item, ...] = (*step.asks, *step.updates)
        return [self._item(what) for what in items]

    def _item(self, what: Item) -> int:
        number = self._item_numbers.get(what)
        if number is None:
            number = self._item_numbers[what] = len(self._items)
            self._items.append(what)
        return number

    def _is_kept(self, state: int, item: int) -> bool:
        what = self._items[item]
        if not self._drops or not isinstance(what, Answered) or not self._automaton.is_dead(state, what):
            return True
        self.dropped.add((state, what))
        return False

    def _number(self, state: int, items: list[int], timeouts: int, lost_answers: int) -> int:
        kept = tuple(sorted(item for item in items if self._is_kept(state, item)))
        facts = self._automaton.facts[state]
        if facts.has_ended and self._automaton.merges_ended:
            timeouts = lost_answers = 0
        key = (state, kept, timeouts, lost_answers)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.all)
            self.all.append(self._conversation(*key, facts))
        return number

    def _conversation(
        self, state: int, items: tuple[int, ...], timeouts: int, lost_answers: int, facts: ClientFacts
    ) -> Conversation:
        one = Conversation(state, items, timeouts, lost_answers, facts)
        for item in dict.fromkeys(items):
            what = self._items[item]
            if isinstance(what, Ask | Overdue):
                is_late = isinstance(what, Overdue)
                ask = what.ask if isinstance(what, Overdue) else what
                one.asks.setdefault(self._places[ask.bookie_id], []).append((item, ask, is_late))
                one.is_waiting |= not is_late
                if ask.add is not None:
                    one.told_under_way = max(one.told_under_way, ask.add.last_add_confirmed)
            elif isinstance(what, AskStore) and not what.is_done:
                one.updates.append((item, what))
                one.is_waiting = True
        return one
