"""The search itself, over packed states, with limits.

Breadth first finds a shortest way to a violation; depth first often finds some way sooner, where the way is long.

States are integers that are equal only if the states are, so a set of them is all that is kept. Where a state came from is not
kept: to tell the way to a violation the search is repeated up to it, with predecessors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from scenarios.exhaustive.configuration import Reductions, SmallCluster
from scenarios.exhaustive.judging import Judge
from scenarios.exhaustive.moves import ClusterMoves, StepOfCluster
from scenarios.machines.broken import BrokenClause
from simbookie.collector_off import collector_off

__all__ = ["Found", "Search", "Searched", "Watch"]

#: How many states to expand at a time, and between two looks at the limits.
_BATCH: Final = 1024
_LOOK: Final = 256
#: And how many at a time, depth first.
_DEEP_BATCH: Final = 4

Watch = Callable[["Searched"], str | None]
"""Looks at the search from time to time; what it returns is why the search is to stop, None to go on."""


@dataclass(frozen=True, slots=True)
class Found:
    """A violation: the clause, the state before it and, if the clause concerns a move, that move."""

    broken: BrokenClause
    state: int
    step: StepOfCluster | None = None


@dataclass(slots=True)
class Searched:
    """What a search has found so far.

    ``ends`` counts final states by what became of the ledger and its clients. ``stopped`` says why the search is not complete.
    """

    states: int = 0
    expanded: int = 0
    edges: int = 0
    depth: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    found: Found | None = None
    stopped: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every state was visited."""
        return self.stopped is None and self.found is None


class Search:
    """One search. ``moves`` has the tables, which grow with it."""

    def __init__(
        self,
        cluster: SmallCluster,
        reductions: Reductions = Reductions(),  # noqa: B008
        *,
        clauses: frozenset[str] | None = None,
        watch: Watch | None = None,
        is_depth_first: bool = False,
    ) -> None:
        self.cluster = cluster
        self.moves = ClusterMoves(cluster, reductions, clauses)
        self.judge = Judge(self.moves)
        self.is_depth_first = is_depth_first
        self.searched = Searched()
        #: Every state that was reached.
        self.seen: set[int] = set()
        self._watch = watch

    def run(self) -> Searched:
        """Visit all states, until a clause breaks or a limit is met."""
        with collector_off():  # integers are no garbage, and there are millions
            self._run()
        return self.searched

    def _run(self) -> None:
        searched, look_at = self.searched, 0
        for batch, following in self._batches():
            if self._watch is not None and searched.expanded >= look_at:
                searched.states, look_at = len(self.seen), searched.expanded + _LOOK
                searched.stopped = self._watch(searched)
                if searched.stopped is not None:
                    break
            self._expand(batch, following)
            if searched.found is not None:
                break
        searched.states = len(self.seen)

    def _batches(self) -> Iterator[tuple[list[int], list[int]]]:
        """States to expand, and the list to which what follows is to be added; in the order of the search."""
        first = self.moves.first()
        self.seen.update(first)
        if self.is_depth_first:
            stack = list(first)
            while stack:
                batch = stack[-_DEEP_BATCH:]
                del stack[-_DEEP_BATCH:]
                yield batch, stack
            return
        layer = list(first)
        while layer:
            following: list[int] = []
            for start in range(0, len(layer), _BATCH):
                yield layer[start : start + _BATCH], following
            layer = following
            self.searched.depth += bool(layer)

    def _expand(self, batch: list[int], following: list[int]) -> None:
        searched, seen, moves, judge = self.searched, self.seen, self.moves, self.judge
        successors, judged, add, later = moves.successors, judge.broken, seen.add, following.append
        has_rivals = self.cluster.recoveries > 1 and moves.reductions.rivals
        canonical = moves.canonical
        for state in batch:
            after = successors(state)
            if moves.broken:
                self._note_broken_moves()
                return
            if not after:
                self._note_end(state)
                if searched.found is not None:
                    return
                continue
            searched.edges += len(after)
            for new in after:
                if has_rivals:
                    new = canonical(new)  # noqa: PLW2901
                if new not in seen:
                    add(new)
                    later(new)
                    broken = judged(new)
                    if broken is not None:
                        searched.found = Found(broken, new)
                        return
        searched.expanded += len(batch)

    def _note_broken_moves(self) -> None:
        before, step = self.moves.broken[0]
        assert step.broken is not None, "only such moves are noted"
        self.searched.found = Found(step.broken, before, step)

    def _note_end(self, state: int) -> None:
        kind = self.judge.kind(state)
        self.searched.ends[kind] = self.searched.ends.get(kind, 0) + 1
        broken = self.judge.broken_at_end(state)
        if broken is not None:
            self.searched.found = Found(broken, state)

    def way_to(self, target: int) -> list[int]:
        """The canonical states on the way by which a search like this one, in the same order, first reaches ``target``."""
        again = Search(self.cluster, self.moves.reductions, is_depth_first=self.is_depth_first)
        again.moves = moves = self.moves
        before: dict[int, int | None] = dict.fromkeys(moves.first())
        for batch, following in again._batches():
            for state in batch:
                for new in map(moves.canonical, moves.successors(state)):
                    if new not in before:
                        before[new] = state
                        following.append(new)
            if target in before:
                break
        way, at = [target], before[target]
        while at is not None:
            way.append(at)
            at = before[at]
        return way[::-1]
