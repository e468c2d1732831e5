"""Every order in which a few things can happen: an exhaustive search over the small world.

A world can be copied and compared, because all that is in it are values. So every state is made once from the one before, and
two orders of moves that lead to equal worlds are followed once.

A search that ends has seen every order of the moves it was allowed. One that meets its limit raises
:class:`SearchTooLarge`: an exhaustive search that was not one should not pass for one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from bkclient.protocol.value import freeze
from scenarios.machines.bookies import Message
from scenarios.machines.world import World

__all__ = ["EVERY_ORDER", "EVERY_ORDER_AT_BOOKIES", "Explored", "SearchTooLarge", "explore", "fingerprint"]

Step = tuple[str, int]

#: A request reaches its bookie, and the answer its client at once.
ROUND_TRIP: Final = "round trip"
#: Every order in which requests arrive, answers arrive and the store acts.
EVERY_ORDER: Final = ("request arrives", "answer arrives", "store acts")
#: Every order in which requests are handled, with answers that take no time: what decides most, at a fraction of the states.
EVERY_ORDER_AT_BOOKIES: Final = (ROUND_TRIP, "store acts")


class SearchTooLarge(AssertionError):
    """There are more states than the search was allowed to visit."""


class Explored:
    """What a search has seen: how many states, and which ends, as last entry ids (None for a ledger left open)."""

    def __init__(self) -> None:
        self.states = 0
        self.ends: dict[int | None, int] = {}


def explore(make: Callable[[], World], moves: Sequence[str] = EVERY_ORDER, *, limit: int) -> Explored:
    """Make every sequence of ``moves`` from the world that ``make`` returns, checking its guarantees after each.

    Where none is left, everything settles, so that nobody may be left waiting either.
    """
    first = make()
    seen: set[Hashable] = {fingerprint(first)}
    explored = Explored()
    stack = [first]
    while stack:
        world = stack.pop()
        explored.states += 1
        if explored.states > limit:
            raise SearchTooLarge(f"more than {limit} states")
        following = [(name, choice) for name in moves for choice in range(_choices(world, name))]
        if not following:
            metadata = world.store.metadata
            end = metadata.last_entry_id if metadata.is_closed else None
            explored.ends[end] = explored.ends.get(end, 0) + 1
            world.settle()
        for step in following:
            after = world.copy()
            _make(after, step)
            state = fingerprint(after)
            if state not in seen:
                seen.add(state)
                stack.append(after)
    return explored


def _choices(world: World, name: str) -> int:
    return len(world.requests) if name == ROUND_TRIP else world.choices(name)


def _make(world: World, step: Step) -> None:
    name, choice = step
    if name != ROUND_TRIP:
        world.move(name, choice)
        return
    world.move("request arrives", choice)
    world.move("answer arrives", len(world.answers) - 1)


#: Numbers of all states of clients and messages that were ever seen. They are few, and come again and again.
_NUMBERS: Final[dict[Hashable, int]] = {}


def _number(state: Hashable) -> int:
    return _NUMBERS.setdefault(state, len(_NUMBERS))


def fingerprint(world: World) -> Hashable:
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
