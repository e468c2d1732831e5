"""One history of the histories of many processes.

Each process has an order of its own, its *part*. Between parts it is known that

* a message was sent before it arrived: the nth request of a client to a bookie about an entry before the nth such one that the
  bookie takes up, and the nth answer to it before the nth that the client takes;
* what the director does to a process frames the process's life: its start comes first, and its crash after all it did;
* a version of metadata is stored before somebody works with it.

These relations are kept, whatever clocks say. What they leave open is decided by the machine's monotonic clock, which all
processes read. How often it contradicts a relation is counted: on one machine it never does.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bkclient.errors import Code
from scenarios.history import Event, Kind

__all__ = ["Merged", "Part", "merge"]

_SENDS: Final = {Kind.ADD_SEND, Kind.FENCE_SEND, Kind.READ_SEND, Kind.REC_READ_SEND}
_ANSWERS: Final = {Kind.ADD_RESP, Kind.FENCE_RESP, Kind.READ_RESP, Kind.REC_READ_RESP}
#: Kinds with a name of a client, which bookies know by its address.
_WITH_SOURCE: Final = {Kind.BK_RECV, Kind.BK_ANSWER, Kind.BK_STORE, Kind.FENCE_SET}
#: Outcomes that arise at the client: there need be no answer.
_WITHOUT_ANSWER: Final = frozenset({int(Code.TIMEOUT), int(Code.BOOKIE_NOT_AVAILABLE), int(Code.CLIENT_CLOSED)})

Place = tuple[int, int]
#: ``(client, bookie, operation, ledger, entry)``
_Key = tuple[str, str, str, int, int]


@dataclass(frozen=True, slots=True)
class Part:
    """The events of one life of a process, or of the director. ``life`` counts the lives of a bookie from 1."""

    actor: str
    events: Sequence[Event]
    life: int = 1


@dataclass(slots=True)
class Merged:
    """All events in one order that every process agrees with, and how often the clock would have had another one."""

    events: list[Event] = field(default_factory=list)
    relations: int = 0
    contradicted: int = 0


def merge(parts: Sequence[Part], sources: Mapping[str, str]) -> Merged:
    """Merge parts, the director's first. ``sources`` gives the clients by the addresses that bookies know.

    ``ValueError`` if relations contradict each other, which parts of one run do not.
    """
    named = [replace(part, events=[_named(event, sources) for event in part.events]) for part in parts]
    before = _relations(named)
    merged = Merged(relations=sum(map(len, before.values())))
    for after, earlier in before.items():
        merged.contradicted += sum(_at(named, place).time_us > _at(named, after).time_us for place in earlier)
    numbers = _Numbers()
    for place in _ordered(named, before):
        event = numbers.numbered(_at(named, place))
        now = max(event.time_us, merged.events[-1].time_us if merged.events else 0)
        merged.events.append(replace(event, seq=len(merged.events), time_us=now))
    return merged


def _at(parts: Sequence[Part], place: Place) -> Event:
    return parts[place[0]].events[place[1]]


def _named(event: Event, sources: Mapping[str, str]) -> Event:
    if event.kind not in _WITH_SOURCE:
        return event
    source = event.fields["source"]
    return replace(event, fields={**event.fields, "source": sources.get(source, source)})


def _ordered(parts: Sequence[Part], before: Mapping[Place, Sequence[Place]]) -> Iterator[Place]:
    """All places, each after those before it; the earliest first where that leaves a choice."""
    missing = {place: len(set(earlier)) for place, earlier in before.items()}
    after: dict[Place, list[Place]] = defaultdict(list)
    for place, earlier in before.items():
        for one in set(earlier):
            after[one].append(place)
    ready: list[tuple[int, int, int]] = []

    def arrive(place: Place) -> None:
        part, index = place
        if index < len(parts[part].events) and not missing.get(place):
            heapq.heappush(ready, (parts[part].events[index].time_us, part, index))

    reached = dict.fromkeys(range(len(parts)), 0)
    for part in reached:
        arrive((part, 0))
    total, done = sum(len(part.events) for part in parts), 0
    while ready:
        _, part, index = heapq.heappop(ready)
        yield part, index
        done += 1
        reached[part] = index + 1
        arrive((part, index + 1))
        for place in after.pop((part, index), ()):
            missing[place] -= 1
            if not missing[place] and reached[place[0]] == place[1]:
                arrive(place)
    if done < total:
        raise ValueError(f"{total - done} of {total} events wait for each other")


def _relations(parts: Sequence[Part]) -> dict[Place, list[Place]]:
    """What comes before what, beyond the order within parts."""
    before: dict[Place, list[Place]] = defaultdict(list)
    _relate_messages(parts, before)
    _relate_lives(parts, before)
    _relate_versions(parts, before)
    return before


def _relate_messages(parts: Sequence[Part], before: dict[Place, list[Place]]) -> None:
    sent: dict[_Key, list[Place]] = defaultdict(list)
    arrived: dict[_Key, list[Place]] = defaultdict(list)
    answered: dict[_Key, list[Place]] = defaultdict(list)
    taken: dict[_Key, list[Place]] = defaultdict(list)
    for number, part in enumerate(parts):
        for index, event in enumerate(part.events):
            kind, place = event.kind, (number, index)
            if kind in _SENDS:
                sent[_client_key(event)].append(place)
            elif kind in _ANSWERS and event.fields["code"] not in _WITHOUT_ANSWER:
                taken[_client_key(event)].append(place)
            elif kind == Kind.BK_RECV:
                arrived[_bookie_key(event)].append(place)
            elif kind == Kind.BK_ANSWER:
                answered[_bookie_key(event)].append(place)
    for causes, effects in ((sent, arrived), (answered, taken)):
        for key, places in effects.items():
            for cause, effect in zip(causes.get(key, ()), places, strict=False):
                before[effect].append(cause)


def _relate_lives(parts: Sequence[Part], before: dict[Place, list[Place]]) -> None:
    lives = {(part.actor, part.life): number for number, part in enumerate(parts) if number and part.events}
    crashes: dict[str, int] = defaultdict(int)
    for index, event in enumerate(parts[0].events):
        place = (0, index)
        if event.kind == Kind.CLIENT_START and (event.actor, 1) in lives:
            before[lives[event.actor, 1], 0].append(place)
        elif event.kind == Kind.CLIENT_CRASH and (event.actor, 1) in lives:
            number = lives[event.actor, 1]
            before[place].append((number, len(parts[number].events) - 1))
        elif event.kind == Kind.BK_CRASH:
            crashes[event.actor] += 1
            ended, next_one = (lives.get((event.actor, crashes[event.actor] + step)) for step in (0, 1))
            if ended is not None:
                before[place].append((ended, len(parts[ended].events) - 1))
            if next_one is not None:
                before[next_one, 0].append(place)


def _relate_versions(parts: Sequence[Part], before: dict[Place, list[Place]]) -> None:
    stored: dict[tuple[int, int], Place] = {}
    for number, part in enumerate(parts):
        for index, event in enumerate(part.events):
            if event.kind == Kind.META_CAS and event.fields["outcome"] == "ok" and event.fields["cause"] != "delete":
                stored[event.ledger, event.fields["version"]] = (number, index)
    for number, part in enumerate(parts):
        for index, event in enumerate(part.events):
            if event.kind in {Kind.REC_START, Kind.READ_RESULT}:
                place = stored.get((event.ledger, event.fields["version"]))
                if place is not None and place[0] != number:
                    before[number, index].append(place)


def _client_key(event: Event) -> _Key:
    fields: Any = event.fields
    if event.kind in {Kind.ADD_SEND, Kind.ADD_RESP}:
        operation, entry = "write-back" if fields["recovery"] else "add", fields["entry"]
    elif event.kind in {Kind.FENCE_SEND, Kind.FENCE_RESP}:
        operation, entry = "fence", -1
    elif event.kind in {Kind.READ_SEND, Kind.READ_RESP}:
        operation, entry = "read", fields["entry"]
    else:
        operation, entry = "recovery-read", fields["entry"]
    return event.actor, fields["bookie"], operation, event.ledger, entry


def _bookie_key(event: Event) -> _Key:
    fields: Any = event.fields
    return fields["source"], event.actor, fields["operation"], event.ledger, fields["entry"]


class _Numbers:
    """Gives arrivals and answers at bookies the numbers of their requests, where there is one that it can be; none is guessed."""

    def __init__(self) -> None:
        self._under_way: dict[_Key, dict[int, None]] = defaultdict(dict)
        self._taken_up: dict[_Key, list[int | None]] = defaultdict(list)

    def numbered(self, event: Event) -> Event:
        """The event with its number, if it has one."""
        kind = event.kind
        if kind in _SENDS:
            self._under_way[_client_key(event)][event.fields["request"]] = None
        elif kind in _ANSWERS and event.fields["code"] not in _WITHOUT_ANSWER:
            self._under_way[_client_key(event)].pop(event.fields["request"], None)
        elif kind == Kind.BK_RECV:
            same = self._under_way[_bookie_key(event)]
            number = next(iter(same)) if len(same) == 1 else None
            self._taken_up[_bookie_key(event)].append(number)
            return replace(event, fields={**event.fields, "request": number})
        elif kind == Kind.BK_ANSWER:
            waiting = self._taken_up[_bookie_key(event)]
            number = waiting[0] if len(waiting) == 1 else None
            del waiting[:1]
            return replace(event, fields={**event.fields, "request": number})
        return event
