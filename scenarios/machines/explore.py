"""Exhaustive search over the orders of moves in a small world.

The state of a world is a value, so it can be copied and compared: every state is visited once, even if several orders of moves
lead to it. The search is breadth first, so a schedule that breaks a clause is as short as possible.

A search that completes has visited every order of the given moves. A search that meets a limit is marked as incomplete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bkclient.protocol.value import freeze
from scenarios.machines.bookies import Message
from scenarios.machines.broken import BrokenClause
from scenarios.machines.walks import Move
from scenarios.machines.world import MachineWorld

__all__ = [
    "EVERY_ORDER",
    "EVERY_ORDER_AT_BOOKIES",
    "Explored",
    "SearchTooLargeError",
    "explore",
    "explore_whole",
    "fingerprint",
]

#: A request reaches its bookie, and the answer its client at once.
ROUND_TRIP: Final = "round trip"
#: Every order in which requests arrive, answers arrive and the store acts.
EVERY_ORDER: Final = ("request arrives", "answer arrives", "store acts")
#: Every order in which bookies handle requests, with immediate answers: most outcomes, at a fraction of the states.
EVERY_ORDER_AT_BOOKIES: Final = (ROUND_TRIP, "store acts")


class SearchTooLargeError(AssertionError):
    """The search has more states than its limit."""


@dataclass
class Explored:
    """The result of a search.

    ``states`` counts distinct states, ``depth`` the moves to the last of them. ``ends`` counts the states without a further move
    by the last entry of the ledger, None for a ledger that is not closed. ``is_whole`` is true if every order was visited.
    ``broken`` is the clause that ended the search, ``schedule`` the moves that break it.
    """

    states: int = 0
    depth: int = 0
    ends: dict[int | None, int] = field(default_factory=dict)
    is_whole: bool = True
    broken: BrokenClause | None = None
    schedule: list[Move] = field(default_factory=list)


@dataclass(slots=True)
class _Path:
    """The previous state and the moves by which a state was reached first."""

    before: _Path | None = None
    moves: tuple[Move, ...] = ()
    depth: int = 0

    def schedule(self) -> list[Move]:
        """All moves from the beginning."""
        steps: list[tuple[Move, ...]] = []
        path: _Path | None = self
        while path is not None:
            steps.append(path.moves)
            path = path.before
        return [move for moves in reversed(steps) for move in moves]


def explore(
    make: Callable[[], MachineWorld], moves: Sequence[str] = EVERY_ORDER, *, states: int, depth: int | None = None
) -> Explored:
    """Make every sequence of ``moves`` from the world that ``make`` returns, checking its guarantees after each.

    A state without a further move is settled, which checks that every operation has ended. The search ends at the first broken
    clause or after ``states`` states, and goes no deeper than ``depth`` moves.
    """
    first = make()
    seen: set[Hashable] = {fingerprint(first)}
    explored = Explored()
    waiting = deque([(first, _Path())])
    while waiting:
        if explored.states == states:
            explored.is_whole = False
            break
        world, path = waiting.popleft()
        explored.states += 1
        explored.depth = path.depth
        following = list(_following(world, moves))
        if following and path.depth == depth:
            explored.is_whole = False
            continue
        step = path
        try:
            if not following:
                metadata = world.store.metadata
                end = metadata.last_entry_id if metadata.is_closed else None
                explored.ends[end] = explored.ends.get(end, 0) + 1
                world.settle()
            for made in following:
                step = _Path(path, made, path.depth + 1)
                after = world.copy()
                for move in made:
                    after.move(*move)
                state = fingerprint(after)
                if state not in seen:
                    seen.add(state)
                    waiting.append((after, step))
        except BrokenClause as broken:
            explored.is_whole = False
            explored.broken, explored.schedule = broken, step.schedule()
            break
    return explored


def explore_whole(make: Callable[[], MachineWorld], moves: Sequence[str] = EVERY_ORDER, *, limit: int) -> Explored:
    """Like :func:`explore`, but raises if the search finds a broken clause or is incomplete.

    Raises :class:`~scenarios.machines.broken.BrokenClause`, or :class:`SearchTooLargeError` if there are more states than
    ``limit``.
    """
    explored = explore(make, moves, states=limit)
    if explored.broken is not None:
        raise explored.broken
    if not explored.is_whole:
        raise SearchTooLargeError(f"more than {limit} states")
    return explored


def _following(world: MachineWorld, moves: Sequence[str]) -> Iterator[tuple[Move, ...]]:
    """The moves that are possible now."""
    for name in moves:
        if name == ROUND_TRIP:
            for choice in range(len(world.requests)):
                yield Move("request arrives", choice), Move("answer arrives", len(world.answers))
        else:
            for choice in range(world.choices(name)):
                yield (Move(name, choice),)


#: Numbers of the states of clients and messages: few distinct states, which occur in many worlds.
_NUMBERS: Final[dict[Hashable, int]] = {}


def _number(state: Hashable) -> int:
    return _NUMBERS.setdefault(state, len(_NUMBERS))


def fingerprint(world: MachineWorld) -> Hashable:
    """A value that is equal for two worlds if no sequence of moves can distinguish them."""
    clients = [world.writer, *world.recoveries]
    index = {id(client): index for index, client in enumerate(clients)}

    def message(one: Message) -> int:
        client = index[id(one.client)]
        return _number((client, one.bookie_id, one.kind, one.entry_id, one.fence, one.add, one.answer, one.is_answered))

    for client in clients:
        if client.number is None:
            state = (client.is_alive, client.endings, freeze(client.heard), client.machine.snapshot())
            client.number = _number(state)
    return (
        _number(world.store.value),
        tuple([bookie.snapshot() for bookie in world.bookies.values()]),
        tuple(sorted([message(one) for one in world.requests])),
        tuple(sorted([message(one) for one in world.answers])),
        tuple(sorted([(index[id(client)], update.number) for client, update in world.updates])),
        tuple([client.number for client in clients]),
        world.guarantees.snapshot(),
        len(world.appended),
        world.replacements_offered,
    )
