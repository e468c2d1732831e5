"""The way to a violation, in words: numbered moves, and what the cluster is like at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from bkclient.errors import Code
from scenarios.exhaustive.automata import Answered, Ask, AskStore, Told
from scenarios.exhaustive.conversations import Item, Overdue
from scenarios.exhaustive.moves import ClusterMoves, StepOfCluster, in_short
from scenarios.exhaustive.search import Found, Search

__all__ = ["MoveKind", "Trace", "TracedMove", "trace"]


class MoveKind(Enum):
    """What sort of thing happens in a move."""

    APPENDS = "appends"
    CLOSES = "closes"
    BEGINS = "begins"
    ARRIVES = "arrives"
    CRASHES = "crashes"
    HEARS = "hears"
    GIVES_UP = "gives up"
    STORES = "stores"
    REFUSES = "refuses"
    TELLS = "tells"
    IS_TOLD = "is told"


@dataclass(frozen=True, slots=True)
class TracedMove:
    """A move as a value. ``client`` is 0 for the writer, and numbers recoveries from 1.

    ``ask`` is the request that it is about, or its answer; ``state`` that of the ledger in what is written to the store.
    """

    kind: MoveKind
    client: int
    ask: Ask | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A way to a violation: what happened, one line for each move, and what there is in the end.

    ``steps`` are the moves as values. ``asked`` are all requests that clients made on the way, and ``wanted`` the states that
    they wanted stored, each with its client.
    """

    moves: tuple[str, ...]
    at_the_end: tuple[str, ...]
    steps: tuple[TracedMove, ...] = ()
    asked: tuple[tuple[int, Ask], ...] = ()
    wanted: tuple[tuple[int, str], ...] = ()


def trace(search: Search, found: Found) -> Trace:
    """How a search came to a violation. It is repeated for this, with predecessors."""
    moves = search.moves
    moves.broken.clear()
    state, *way = search.way_to(found.state)
    lines, steps, under_way = [], [], list(_items(moves, state))
    for target in way:
        step = next(one for one in moves.in_words(state) if one.broken is None and moves.canonical(one.after) == target)
        lines.append(_words(moves, state, step))
        steps.append(_move(moves, state, step))
        state = step.after
        under_way += _items(moves, state)
    if found.step is not None:
        lines.append(_words(moves, state, found.step))
        steps.append(_move(moves, state, found.step))
    asked = {(client, item): None for client, item in under_way if isinstance(item, Ask)}
    wanted = {
        (client, item.write.metadata.state.name): None
        for client, item in under_way
        if isinstance(item, AskStore) and item.write is not None
    }
    return Trace(tuple(lines), tuple(_at_the_end(moves, state)), tuple(steps), tuple(asked), tuple(wanted))


def _items(moves: ClusterMoves, state: int) -> Iterator[tuple[int, Item]]:
    """What is under way, with its client."""
    for client in range(len(moves.client_shifts)):
        table, number = moves.conversations(client), moves.conversation(state, client)
        yield from ((client, item) for item in table.described(number))


def _move(moves: ClusterMoves, state: int, step: StepOfCluster) -> TracedMove:
    what, about = step.label
    if isinstance(about, Ask):
        return TracedMove(MoveKind.GIVES_UP if step.broken is None else MoveKind.ARRIVES, step.client, about)
    if what == "arrives" and isinstance(about, tuple):
        ask, _ = about
        return TracedMove(
            MoveKind.CRASHES if _crashes(moves, state, step.after, ask) else MoveKind.ARRIVES, step.client, ask
        )
    if isinstance(about, Answered):
        return TracedMove(MoveKind.HEARS, step.client, about.ask)
    if isinstance(about, Told):
        return TracedMove(MoveKind.IS_TOLD, step.client)
    if what == "store":
        verb, written = str(about).split()[:2]
        kind = MoveKind(verb)
        return TracedMove(kind, step.client, state="" if kind is MoveKind.TELLS else written.rstrip(","))
    return TracedMove(MoveKind(what), step.client)


def _words(moves: ClusterMoves, state: int, step: StepOfCluster) -> str:
    what, about = step.label
    who = _name(moves, step.client)
    if isinstance(about, Ask):
        if step.broken is not None:
            return f"{about.bookie_id}: {about} of {who} arrives: {step.broken.witness}"
        return f"{who} gives up on {about} of {about.bookie_id}"
    if what == "arrives" and isinstance(about, tuple):
        ask, code = about
        crash = "crashes; " if _crashes(moves, state, step.after, ask) else ""
        return f"{ask.bookie_id}: {crash}{ask} of {who} arrives: {_code(code)}"
    if isinstance(about, Answered):
        return f"{who} hears from {about.ask.bookie_id}: {about.ask}: {_code(about.code)}"
    if isinstance(about, Told):
        return f"{who} hears from the store: {_told(about)}"
    if what == "store":
        return f"store: {about}, for {who}"
    if what == "appends":
        entries = len(moves.writer.world(moves.of_writer.all[moves.conversation(state, 0)].state).appended)
        return f"{who} appends entry {entries}"
    return f"{who} {what}"


def _name(moves: ClusterMoves, client: int) -> str:
    if client == 0:
        return "writer"
    return "recovery" if moves.cluster.recoveries == 1 else f"recovery {client}"


def _crashes(moves: ClusterMoves, before: int, after: int, ask: Ask) -> bool:
    place = moves.cluster.names.index(ask.bookie_id)
    was_up, is_up = (moves.bookies.bookie(moves.bookie(state, place)).is_up for state in (before, after))
    return was_up and not is_up


def _code(code: int) -> str:
    return Code(code).name.replace("_", " ").lower() if code else "ok"


def _told(told: Told) -> str:
    return "a conflict, or nothing" if told.value is None else in_short(told.value)


def _at_the_end(moves: ClusterMoves, state: int) -> list[str]:
    lines = [f"metadata: {in_short(moves.values[moves.value(state)])}"]
    for place, name in enumerate(moves.cluster.names):
        bookie = moves.bookies.bookie(moves.bookie(state, place))
        entries = [f"{number} with LAC {one.last_add_confirmed}" for number, one in sorted(bookie.entries.items())]
        is_so = [word for word, holds in (("fenced", bookie.is_fenced), ("down", not bookie.is_up)) if holds]
        lines.append(f"bookie {name}: {', '.join([*is_so, 'entries ' + ', '.join(entries) if entries else 'empty'])}")
    for client in range(len(moves.client_shifts)):
        table, number = moves.conversations(client), moves.conversation(state, client)
        facts = table.all[number].facts
        acknowledged = f", acknowledged {facts.acknowledged}" if client == 0 else ""
        under_way = "; ".join(_under_way(item) for item in table.described(number))
        lines.append(f"{_name(moves, client)}: {facts.outcome}{acknowledged}; under way: {under_way or 'nothing'}")
    return lines


def _under_way(item: Item) -> str:
    if isinstance(item, Ask):
        return f"{item} to {item.bookie_id}"
    if isinstance(item, Overdue):
        return f"{item.ask} to {item.ask.bookie_id}, given up on"
    if isinstance(item, Answered):
        return f"{_code(item.code)} from {item.ask.bookie_id} for {item.ask}"
    if isinstance(item, Told):
        return f"from the store: {_told(item)}"
    return "to the store: " + ("a read" if item.write is None else in_short(item.write))
