"""Which events are the two or three ends of one message: a request sent, its arrival at a bookie, the answer received.

Requests have numbers, which arrivals and answers share. In histories of recorders that number nothing they are paired by what
they are about: an answer belongs to the oldest request without one that has the same sender, bookie, kind, ledger and entry; an
arrival to the oldest such request that has not arrived. There bookies record arrivals that change something: the first time
they store an entry, and the fence that they set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from scenarios.history.schema import Event, Kind

__all__ = ["MessageEvents", "messages_of"]


@dataclass(slots=True)
class MessageEvents:
    """Numbers of events: the request's, its arrival's and its answer's, ``None`` for what was not seen."""

    request: int
    arrival: int | None = None
    answer: int | None = None


_ANSWERED: Final[Mapping[str, str]] = MappingProxyType(
    {
        Kind.ADD_RESP: Kind.ADD_SEND,
        Kind.FENCE_RESP: Kind.FENCE_SEND,
        Kind.READ_RESP: Kind.READ_SEND,
        Kind.REC_READ_RESP: Kind.REC_READ_SEND,
    }
)
_REQUESTS: Final = frozenset(_ANSWERED.values())
#: Fences are set by whichever request that fences comes first.
_FENCING: Final = (Kind.FENCE_SEND, Kind.REC_READ_SEND)

_Key = tuple[str, str, str, int, object]


def _key(kind: str, event: Event) -> _Key:
    # The answer to a fence names the last entry that the bookie has, and a fence none.
    entry = None if kind == Kind.FENCE_SEND else event.fields["entry"]
    return kind, event.actor, event.fields["bookie"], event.ledger, entry


def messages_of(events: Iterable[Event]) -> list[MessageEvents]:
    """The messages of a run, in the order in which they were sent."""
    told = list(events)
    is_numbered = any(event.kind in _REQUESTS and event.fields.get("request") is not None for event in told)
    return _numbered(told) if is_numbered else _paired(told)


def _numbered(events: Iterable[Event]) -> list[MessageEvents]:
    sent: dict[tuple[str, int], MessageEvents] = {}
    for event in events:
        number = event.fields.get("request")
        if number is None:
            continue
        if event.kind in _REQUESTS:
            sent[event.actor, number] = MessageEvents(event.seq)
        elif event.kind in _ANSWERED:
            one = sent.get((event.actor, number))
            if one is not None:
                one.answer = event.seq
        elif event.kind == Kind.BK_RECV:
            one = sent.get((event.fields["source"], number))
            if one is not None and one.arrival is None:  # copies come later
                one.arrival = event.seq
    return list(sent.values())


def _paired(events: Iterable[Event]) -> list[MessageEvents]:
    sent: list[MessageEvents] = []
    unanswered: dict[_Key, deque[MessageEvents]] = {}
    travelling: dict[_Key, deque[MessageEvents]] = {}
    for event in events:
        kind = event.kind
        if kind in _REQUESTS:
            one = MessageEvents(event.seq)
            sent.append(one)
            unanswered.setdefault(_key(kind, event), deque()).append(one)
            travelling.setdefault(_key(kind, event), deque()).append(one)
        elif kind in _ANSWERED:
            waiting = unanswered.get(_key(_ANSWERED[kind], event))
            if waiting:
                waiting.popleft().answer = event.seq
        elif kind == Kind.BK_STORE:
            _arrived(travelling.get((Kind.ADD_SEND, *_place(event), event.fields["entry"])), event)
        elif kind == Kind.FENCE_SET:
            _arrived(_fencing_requests(travelling, event), event)
    return sent


def _place(event: Event) -> tuple[str, str, int]:
    """Sender, bookie and ledger of the request that an event of a bookie comes from."""
    return event.fields["source"], event.actor, event.ledger


def _fencing_requests(travelling: Mapping[_Key, deque[MessageEvents]], event: Event) -> deque[MessageEvents] | None:
    """Those alike among which is the oldest request that may have set the fence."""
    found = [
        waiting
        for (kind, *place, _), waiting in travelling.items()
        if waiting and kind in _FENCING and tuple(place) == _place(event)
    ]
    return min(found, key=lambda waiting: waiting[0].request, default=None)


def _arrived(waiting: deque[MessageEvents] | None, event: Event) -> None:
    while waiting:
        one = waiting.popleft()
        if one.answer is None:  # an answer does not come before what it answers
            one.arrival = event.seq
            return
