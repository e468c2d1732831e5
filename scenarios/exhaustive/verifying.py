"""Checks after a search that everything was as its reductions assumed.

A reduction leaves something out because it assumes something about what was left out. Each of these assumptions is a statement
about automata, which are small; so it is checked on all that the search has seen of them, by the shipped machines again:

``dead``
    An answer that was not delivered changes nothing in any state that the client can still come to.
``ended``
    States that counted as one react alike to everything that came in one of them; and a client that has ended does nothing.
``alone``
    A request that went first at a bookie has the same answer and effect after any other requests that may come before it, and so
    have they after it. Where that is not so, nobody listens to the answer any more, or the other request is never sent. A
    client that was thought to send no more sends no more, and a recovery has one action at a time in the metadata store.

``rivals`` needs no check: recoveries share one automaton. Nor do the moves of a client that nobody can reach: a conversation is
changed by its own messages only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from scenarios.exhaustive.automata import Answered, Ask, AutomatonStep, ClientAutomaton, Stimulus
from scenarios.exhaustive.conversations import Conversations
from scenarios.exhaustive.moves import ClusterMoves, Free
from scenarios.machines.broken import BrokenClause

__all__ = ["Verified", "verify"]

_TOLD_MAX: Final = 5


@dataclass(slots=True)
class Verified:
    """How often each reduction was checked, and what was wrong."""

    checks: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether all was as assumed."""
        return not self.wrong

    def note(self, reduction: str, problems: Iterable[str | None]) -> None:
        """Count the checks of a reduction, each of which yields what is wrong, or None."""
        for problem in problems:
            self.checks[reduction] = self.checks.get(reduction, 0) + 1
            if problem is not None and len(self.wrong) < _TOLD_MAX:
                self.wrong.append(f"{reduction}: {problem}")


def verify(moves: ClusterMoves) -> Verified:
    """Check what the reductions of a search assumed; the automata may grow by it."""
    verified = Verified(dict.fromkeys(moves.reductions.used, 0))
    clients = [(moves.writer, moves.of_writer)]
    if moves.cluster.recoveries:
        clients.append((moves.recovery, moves.of_recovery))
    for automaton, conversations in clients:
        verified.note("dead", _dead(automaton, conversations))
        verified.note("ended", _ended(automaton))
        if moves.reductions.alone:
            verified.note("alone", _silent(automaton))
    if moves.reductions.alone:
        verified.note("alone", _one_at_a_time(moves.of_recovery))
        verified.note("alone", _free(moves))
    return verified


# Of one client -----------------------------------------------------------------------------------------------------


def _following(automaton: ClientAutomaton) -> dict[int, set[int]]:
    following: dict[int, set[int]] = defaultdict(set)
    for (state, _), step in automaton.table.items():
        if step.broken is None:
            following[state].add(step.state)
    return following


def _reached(starts: Iterable[int], following: dict[int, set[int]]) -> set[int]:
    reached = set(starts)
    waiting = list(reached)
    while waiting:
        new = following.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


def _does_nothing(automaton: ClientAutomaton, state: int, heard: Answered) -> bool:
    return automaton.step(state, heard)[:3] == (state, (), ())


def _dead(automaton: ClientAutomaton, conversations: Conversations) -> Iterator[str | None]:
    following = _following(automaton)
    states: dict[Answered, set[int]] = defaultdict(set)
    for state, heard in conversations.dropped:
        states[heard].add(state)
    for heard, starts in states.items():
        for state in _reached(starts, following):
            is_dead = not state or _does_nothing(automaton, state, heard)
            yield None if is_dead else f"the answer to {heard.ask} of {heard.ask.bookie_id} matters in a later state"


def _ended(automaton: ClientAutomaton) -> Iterator[str | None]:
    steps: dict[int, list[tuple[Stimulus, AutomatonStep]]] = defaultdict(list)
    for (state, stimulus), step in list(automaton.table.items()):
        steps[state].append((stimulus, step))
        if automaton.facts[state].has_ended and automaton.merges_ended and step.broken is None:
            yield None if step.state == state and not (step.asks or step.updates) else "a client that has ended acts"
    checked: set[tuple[int, int]] = set()
    while True:  # what is checked may lead to more states that count as one
        worlds = [(n, i, w) for n, all_ in automaton.merged.items() for i, w in enumerate(all_.values())]
        worlds = [(number, index, world) for number, index, world in worlds if (number, index) not in checked]
        if not worlds:
            return
        for number, index, world in worlds:
            checked.add((number, index))
            for stimulus, expected in steps[number]:
                found = automaton.step_of(world, stimulus)
                yield None if _is_same(found, expected) else f"{_words(stimulus)} tells states apart that count as one"


def _words(stimulus: Stimulus) -> str:
    if isinstance(stimulus, Answered):
        return f"the answer to {stimulus.ask} of {stimulus.ask.bookie_id}"
    return f"{stimulus!r}" if isinstance(stimulus, str) else f"the answer to update {stimulus.number}"


def _is_same(one: AutomatonStep, other: AutomatonStep) -> bool:
    clauses = [None if step.broken is None else step.broken.clause for step in (one, other)]
    return one[:3] == other[:3] and clauses[0] == clauses[1]


def _silent(automaton: ClientAutomaton) -> Iterator[str | None]:
    for (state, _), step in automaton.table.items():
        if automaton.facts[state].sends_no_more and step.broken is None:
            is_silent = not step.asks and automaton.facts[step.state].sends_no_more
            yield None if is_silent else "a client that was to send no more sends"


def _one_at_a_time(conversations: Conversations) -> Iterator[str | None]:
    for one in conversations.all:
        yield None if len(one.updates) <= 1 else "a recovery has two actions under way"


# At bookies --------------------------------------------------------------------------------------------------------


def _free(moves: ClusterMoves) -> Iterator[str | None]:
    asks: dict[str, set[tuple[Ask, bool]]] = defaultdict(set)
    for _, ask, of_writer in moves.bookies.table:
        asks[ask.bookie_id].add((ask, of_writer))
    after = _AfterSending(moves)
    for free in moves.free:
        others = {one for one in asks[free.ask.bookie_id] if not free.is_alone or one[1] == free.of_writer}
        for bookie in _bookies_from(moves, free.bookie, others):
            for other, of_writer in others:
                yield _order_matters(moves, free, bookie, other, of_writer, after)


def _bookies_from(moves: ClusterMoves, bookie: int, asks: Iterable[tuple[Ask, bool]]) -> set[int]:
    reached = {bookie}
    waiting = [bookie]
    while waiting:
        one = waiting.pop()
        for ask, of_writer in asks:
            try:
                after = moves.bookies.step(one, ask, of_writer=of_writer)[0]
            except BrokenClause:
                continue
            if after not in reached:
                reached.add(after)
                waiting.append(after)
    return reached


def _order_matters(
    moves: ClusterMoves,
    free: Free,
    bookie: int,
    other: Ask,
    of_writer: bool,  # noqa: FBT001
    after: _AfterSending,
) -> str | None:
    def handle(state: int, ask: Ask, *, of_writer: bool) -> tuple[int, object]:
        following, *answer = moves.bookies.step(state, ask, of_writer=of_writer)
        return following, answer

    try:
        first, answer = handle(bookie, free.ask, of_writer=free.of_writer)
        both, answer_of_other = handle(first, other, of_writer=of_writer)
        first, answer_of_other_first = handle(bookie, other, of_writer=of_writer)
        both_other, answer_then = handle(first, free.ask, of_writer=free.of_writer)
    except BrokenClause as broken:
        return f"{free.ask} and {other} break {broken.clause}"
    is_same, is_same_other = answer == answer_then, answer_of_other == answer_of_other_first
    if both == both_other and is_same and is_same_other:
        return None
    if free.is_alone:
        comes_later = not after.is_never_sent(free.ask, other)
        if not comes_later and after.is_never_sent(other, free.ask):
            return None  # no recovery sends both
        is_unheard = is_same or after.is_unheard(free.ask, other)
        is_other_unheard = is_same_other or not (comes_later or not after.is_unheard(other, free.ask))
        if both == both_other and is_unheard and is_other_unheard:
            return None
    return f"{free.ask} went first at {free.ask.bookie_id}, where {other} may come before it"


class _AfterSending:
    """What a recovery takes no notice of, and does not ask, once it has sent something."""

    def __init__(self, moves: ClusterMoves) -> None:
        self._automaton = moves.recovery
        self._following = _following(moves.recovery)
        self._heard: dict[Ask, set[Answered]] = defaultdict(set)
        self._sending: dict[Ask, set[int]] = defaultdict(set)
        self._asked: dict[int, set[Ask]] = defaultdict(set)
        for (state, stimulus), step in moves.recovery.table.items():
            if isinstance(stimulus, Answered):
                self._heard[stimulus.ask].add(stimulus)
            self._asked[state].update(step.asks)
            for ask in step.asks:
                self._sending[ask].add(step.state)
        self._known: dict[tuple[str, Ask, Ask], bool] = {}

    def is_unheard(self, ask: Ask, sent: Ask) -> bool:
        """Whether no answer to ``ask`` matters after ``sent`` was sent."""
        return self._remembered("unheard", ask, sent, lambda: self._is_unheard(ask, sent))

    def is_never_sent(self, ask: Ask, other: Ask) -> bool:
        """Whether ``other`` is never sent after ``ask``."""
        return self._remembered("never sent", ask, other, lambda: self._is_never_sent(ask, other))

    def _remembered(self, what: str, one: Ask, other: Ask, find: Callable[[], bool]) -> bool:
        key = (what, one, other)
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    def _is_unheard(self, ask: Ask, sent: Ask) -> bool:
        states = _reached(self._sending[sent], self._following)
        return all(_does_nothing(self._automaton, state, heard) for heard in self._heard[ask] for state in states)

    def _is_never_sent(self, ask: Ask, other: Ask) -> bool:
        return not any(other in self._asked[state] for state in _reached(self._sending[ask], self._following))
