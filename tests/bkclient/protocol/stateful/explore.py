"""Every order in which a few things can happen: an exhaustive search over the small world.

Machines cannot be copied, because what they hand to their updates refers to themselves. So a state is reached by playing its
moves again from the beginning, which is cheap in a world this small, and is recognised by what it consists of: two
orders of moves that lead to the same bookies, messages, metadata and machines are followed once. What ports a machine has
and what its updates would do is left out, since both follow from the rest.

A search that ends has seen every order of the moves it was allowed. One that meets its limit raises
:class:`SearchTooLarge`: an exhaustive search that was not one should not pass for one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from typing import Final

from bkclient.ledger import LedgerMetadata, Versioned
from tests.bkclient.protocol.world import Message, World

__all__ = ["EVERY_ORDER", "EVERY_ORDER_AT_BOOKIES", "Explored", "SearchTooLarge", "explore", "fingerprint"]

Step = tuple[str, int]

#: A request reaches its bookie, and the answer its client at once.
ROUND_TRIP: Final = "round trip"
#: Every order in which requests arrive, answers arrive and the store acts.
EVERY_ORDER: Final = ("request arrives", "answer arrives", "store acts")
#: Every order in which requests are handled, with answers that take no time: what decides most, at a fraction of the states.
EVERY_ORDER_AT_BOOKIES: Final = (ROUND_TRIP, "store acts")

#: What does not change, follows from the rest, or cannot be compared.
_LEAVE_OUT: Final = frozenset(
    {
        "_ports",
        "_world",
        "_play",
        "model",
        "world",
        "_failure_codes",
        "_needs_update",
        "_transform",
        "sizes",
        "_sizes",
        "request",
        "token",
    }
)
_NAMES: Final[dict[type, tuple[str, ...]]] = {}


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
    seen: set[Hashable] = set()
    explored = Explored()
    stack: list[tuple[Step, ...]] = [()]
    while stack:
        path = stack.pop()
        world = make()
        for step in path:
            _make(world, step)
        while (state := fingerprint(world)) not in seen:
            seen.add(state)
            explored.states += 1
            if explored.states > limit:
                raise SearchTooLarge(f"more than {limit} states")
            following = [(name, choice) for name in moves for choice in range(_choices(world, name))]
            if not following:
                metadata = world.store.metadata
                end = metadata.last_entry_id if metadata.is_closed else None
                explored.ends[end] = explored.ends.get(end, 0) + 1
                world.settle()
                break
            # The first goes on in the same world; the others have to play their way here again.
            stack.extend((*path, step) for step in following[1:])
            path = (*path, following[0])
            _make(world, following[0])
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


def fingerprint(world: World) -> Hashable:
    """Equal for worlds that cannot be told apart by anything that may still happen."""
    clients = [world.writer, *world.recoveries]
    number = {id(client): index for index, client in enumerate(clients)}

    def message(one: Message) -> Hashable:
        add = None if one.add is None else (one.add.entry_id, one.add.last_add_confirmed, one.add.length)
        return (
            number[id(one.client)],
            one.bookie_id,
            one.kind,
            one.entry_id,
            one.fence,
            add,
            one.answer,
            one.is_answered,
        )

    def order(item: Hashable) -> str:
        return repr(item)

    return (
        freeze(world.store.value),
        tuple(freeze(vars(bookie)) for bookie in world.bookies.values()),
        tuple(sorted(map(message, world.requests), key=order)),
        tuple(sorted(map(message, world.answers), key=order)),
        tuple(sorted(((number[id(client)], freeze(update)) for client, update in world.updates), key=order)),
        tuple((client.is_alive, client.endings, freeze(client.heard), freeze(client.machine)) for client in clients),
        freeze(world.guarantees),
        len(world.appended),
        world.replacements_offered,
    )


def freeze(value: object) -> Hashable:
    """A value by content; metadata, which is immutable and compares by content, stands for itself."""
    if value is None or type(value) in (int, str, bool) or isinstance(value, (int, bytes, Enum)):
        return value
    if isinstance(value, Versioned):
        return (value.version, freeze(value.metadata))
    if isinstance(value, LedgerMetadata):
        return (value.state, value.last_entry_id, value.length, value.fragments)
    if isinstance(value, Mapping):
        return tuple((freeze(key), freeze(item)) for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return tuple(sorted(map(repr, map(freeze, value))))
    if isinstance(value, (list, tuple)):
        return tuple(map(freeze, value))
    if callable(value):
        return None
    return (type(value).__name__, *(freeze(getattr(value, name)) for name in _names(value)))


def _names(value: object) -> tuple[str, ...]:
    """What an object consists of; all of one class consist of the same."""
    names = _NAMES.get(type(value))
    if names is None:
        all_names = [*getattr(value, "__dict__", ())]
        for cls in type(value).__mro__:
            all_names.extend(name for name in getattr(cls, "__slots__", ()) if hasattr(value, name))
        names = _NAMES[type(value)] = tuple(name for name in all_names if name not in _LEAVE_OUT)
    return names
