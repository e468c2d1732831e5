"""Every order in which a few things can happen: an exhaustive search over a small world.

A world can be copied and compared, because all that is in it are values. So every state is made once from the one before, and
two orders of moves that lead to equal worlds are followed once. The search is breadth first: what it finds is found by a schedule
that no shorter one finds.

A search that ends has seen every order of the moves it was allowed. One that meets a bound has not, and says so.
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
#: Every order in which requests are handled, with answers that take no time: what decides most, at a fraction of the states.
EVERY_ORDER_AT_BOOKIES: Final = (ROUND_TRIP, "store acts")


class SearchTooLargeError(AssertionError):
    """There are more states than the search was allowed to visit."""


@dataclass
class Explored:
    """What a search has seen.

    ``states`` counts different worlds, ``depth`` the moves to the last of them. ``ends`` counts the worlds in which nothing was
    left to happen, by the last entry of the ledger, None for one that is not closed. ``is_whole`` says whether every order was
    seen. ``broken`` is what ended the search, with the ``schedule`` that leads to it.
    """

    states: int = 0
    depth: int = 0
    ends: dict[int | None, int] = field(default_factory=dict)
    is_whole: bool = True
    broken: BrokenClause | None = None
    schedule: list[Move] = field(default_factory=list)


@dataclass(slots=True)
class _Path:
    """How a state was reached first: from which one, by which moves."""

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

    Where none is left, everything settles, so that nobody may be left waiting either. The search ends at the first broken clause,
    after so many ``states``, and goes no deeper than ``depth``.
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
    """Like :func:`explore`, for those who rely on what it proves.

    :class:`~scenarios.machines.broken.BrokenClause` for what it finds, :class:`SearchTooLargeError` if there are more states than
    ``limit``.
    """
    explored = explore(make, moves, states=limit)
    if explored.broken is not None:
        raise explored.broken
    if not explored.is_whole:
        raise SearchTooLargeError(f"more than {limit} states")
    return explored


def _following(world: MachineWorld, moves: Sequence[str]) -> Iterator[tuple[Move, ...]]:
    """What may happen next, in moves of the world."""
    for name in moves:
        if name == ROUND_TRIP:
            for choice in range(len(world.requests)):
                yield Move("request arrives", choice), Move("answer arrives", len(world.answers))
        else:
            for choice in range(world.choices(name)):
                yield (Move(name, choice),)


#: Numbers of all states of clients and messages that were ever seen. They are few, and come again and again.
_NUMBERS: Final[dict[Hashable, int]] = {}


def _number(state: Hashable) -> int:
    return _NUMBERS.setdefault(state, len(_NUMBERS))


def fingerprint(world: MachineWorld) -> Hashable:
    """Equal for worlds that cannot be told apart by anything that may still happen."""
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
