"""Which events are the two or three ends of one message: a request sent, its arrival at a bookie, the answer received.

Histories number no messages. An answer belongs to the oldest request without one that has the same sender, bookie, kind, ledger
and entry; an arrival to the oldest such request that has not arrived. Bookies record arrivals that change something: the
first time they store an entry, and the fence that they set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from scenarios.history.schema import Event, Kind

__all__ = ["MessageEvents", "messages_of"]


@dataclass(frozen=True, slots=True)
class MessageEvents:
    """Numbers of events: the request's, its arrival's and its answer's, ``None`` for what was not seen."""

    request: int
    arrival: int | None
    answer: int | None


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


class _SentMessage:
    """A request and what is known of it so far."""

    __slots__ = ("answer", "arrival", "request")

    def __init__(self, request: Event) -> None:
        self.request = request.seq
        self.arrival: int | None = None
        self.answer: int | None = None


def _key(kind: str, event: Event) -> _Key:
    # The answer to a fence names the last entry that the bookie has, and a fence none.
    entry = None if kind == Kind.FENCE_SEND else event.fields["entry"]
    return kind, event.actor, event.fields["bookie"], event.ledger, entry


def messages_of(events: Iterable[Event]) -> list[MessageEvents]:
    """The messages of a run, in the order in which they were sent."""
    sent: list[_SentMessage] = []
    unanswered: dict[_Key, deque[_SentMessage]] = {}
    travelling: dict[_Key, deque[_SentMessage]] = {}
    for event in events:
        kind = event.kind
        if kind in _REQUESTS:
            one = _SentMessage(event)
            sent.append(one)
            unanswered.setdefault(_key(kind, event), deque()).append(one)
            travelling.setdefault(_key(kind, event), deque()).append(one)
        elif kind in _ANSWERED:
            waiting = unanswered.get(_key(_ANSWERED[kind], event))
            if waiting:
                waiting.popleft().answer = event.seq
        elif kind == Kind.BK_STORE:
            _arrived(travelling, event, [(Kind.ADD_SEND, event.fields["entry"])])
        elif kind == Kind.FENCE_SET:
            _arrived(travelling, event, _fencing_requests(travelling, event))
    return [MessageEvents(one.request, one.arrival, one.answer) for one in sent]


def _fencing_requests(travelling: Mapping[_Key, deque[_SentMessage]], event: Event) -> list[tuple[str, object]]:
    """Kind and entry of the requests of the fence's source that may have set it, the oldest first."""
    source = event.fields["source"]
    found = [
        (waiting[0].request, kind, entry)
        for (kind, sender, bookie, ledger, entry), waiting in travelling.items()
        if waiting and kind in _FENCING and (sender, bookie, ledger) == (source, event.actor, event.ledger)
    ]
    return [(kind, entry) for _, kind, entry in sorted(found)[:1]]


def _arrived(
    travelling: Mapping[_Key, deque[_SentMessage]], event: Event, requests: Iterable[tuple[str, object]]
) -> None:
    for kind, entry in requests:
        waiting = travelling.get((kind, event.fields["source"], event.actor, event.ledger, entry))
        while waiting:
            one = waiting.popleft()
            if one.answer is None:  # an answer does not come before what it answers
                one.arrival = event.seq
                return
