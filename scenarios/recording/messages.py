"""Numbers of requests: which request an answer answers, and which one it is that arrives at a bookie.

A client's requests are numbered when they are sent, from 1 up for each client's name. Its answers have the numbers of what they
answer. Which request arrives at a bookie is known in two ways:

* Over objects a request arrives as the very object that was sent, however often (:class:`IdentifiedTransport`).
* Over bytes no number travels. There an arrival is matched by its bookie and what it asks for, if just one such request may still
  be under way; otherwise it has no number.

No number is ever guessed: what is not known is None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any, Final

from bkclient.errors import Code
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.transport.wrapping import WrappingTransport
from bkclient.wire.messages import (
    LAST_ENTRY,
    AddRequest,
    Operation,
    ReadRequest,
    Request,
    Response,
    Status,
    code_for_status,
)
from scenarios.history import HistoryWriter, Kind

__all__ = ["IdentifiedTransport", "RequestNumbers", "RequestRecorder", "host_of", "operation_of"]

#: How many requests that have an outcome are remembered, because they or their copies may still arrive.
_REMEMBERED_MAX: Final = 4096
#: Of so many peers the host is remembered: every request asks for it.
_HOSTS_MAX: Final = 256

#: ``(client, bookie, operation, ledger, entry)``
Key = tuple[str, str, str, int, int]

#: Outcomes that arise at the client: the request may still arrive.
_WITHOUT_ANSWER: Final = frozenset({int(Code.TIMEOUT), int(Code.BOOKIE_NOT_AVAILABLE), int(Code.CLIENT_CLOSED)})


def operation_of(request: Request) -> str:
    """What a recorded request is, in the words of plans; empty for one that is not recorded."""
    if isinstance(request, AddRequest):
        return "write-back" if request.recovery else "add"
    if isinstance(request, ReadRequest):
        if request.entry_id == LAST_ENTRY and request.fence_key is not None:
            return "fence"
        return "recovery-read" if request.high_priority else "read"
    return ""


@lru_cache(_HOSTS_MAX)
def host_of(source: str) -> str:
    """The host of a bookie's peer, without the port that a stream adds."""
    return source.partition(":")[0]


class RequestNumbers:
    """The requests of a run that may still arrive."""

    def __init__(self) -> None:
        self._numbers: dict[str, Callable[[], int]] = {}
        # By what they ask for: those that may still arrive, none of which is known by identity.
        self._under_way: dict[Key, dict[int, None]] = {}
        # By bookie and identity of the object, which is kept so that no other one has the same.
        self._objects: dict[tuple[str, int], tuple[Request, int]] = {}
        self._finished: deque[tuple[str, int]] = deque()

    def numbers(self, client: str) -> Callable[[], int]:
        """What gives the number of each further request of a client."""
        return self._numbers.setdefault(client, count(1).__next__)

    def sent(self, key: Key, number: int) -> None:
        """A request leaves that cannot be told by its identity."""
        self._under_way.setdefault(key, {})[number] = None

    def ended(self, key: Key, number: int, code: int) -> None:
        """It has an outcome; with an answer from the bookie it arrives no more."""
        if code in _WITHOUT_ANSWER:
            return
        same = self._under_way.get(key)
        if same is not None:
            same.pop(number, None)
            if not same:
                del self._under_way[key]

    def sent_object(self, bookie: str, request: Request, number: int) -> tuple[str, int]:
        """A request leaves as an object; what is returned is for :meth:`object_ended`."""
        token = bookie, id(request)
        self._objects[token] = request, number
        return token

    def object_ended(self, token: tuple[str, int]) -> None:
        """It has an outcome. Copies of it may arrive for a while."""
        self._finished.append(token)
        if len(self._finished) > _REMEMBERED_MAX:
            self._objects.pop(self._finished.popleft(), None)

    def arrived(self, key: Key, request: Request) -> int | None:
        """The number of a request that arrives; None if it is not known."""
        known = self._objects.get((key[1], id(request)))
        if known is not None and known[0] is request:
            return known[1]
        same = self._under_way.get(key)
        if same is None or len(same) > 1:
            return None
        (number,) = same
        return number


class IdentifiedTransport(WrappingTransport):
    """Stands right above a transport of objects and notes which object is which request.

    ``numbers`` holds those of the requests that are submitted next; a request beyond them is not recorded.
    """

    def __init__(self, inner: BookieTransport, messages: RequestNumbers) -> None:
        super().__init__(inner)
        self.numbers: deque[int] = deque()
        self._messages = messages

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Forward, with the next number if there is one."""
        if not self.numbers:
            self.inner.submit(bookie_id, request, reply_to)
            return
        messages = self._messages
        token = messages.sent_object(bookie_id, request, self.numbers.popleft())

        def ended(bookie: str, answered: Request, code: int, response: Response | None) -> None:
            messages.object_ended(token)
            reply_to(bookie, answered, code, response)

        self.inner.submit(bookie_id, request, ended)


_Arrival = tuple[str, int, str, int, int | None, Operation]
"""A request that has arrived: its source, ledger, what it is, entry, number, and the operation that bookies know it by."""

# Every request asks for these, and members of an enumeration take longer to find.
_BK_RECV: Final = Kind.BK_RECV
_BK_ANSWER: Final = Kind.BK_ANSWER
_OK: Final = Status.OK
_CODE_OK: Final = int(Code.OK)


class RequestRecorder:
    """Records the requests that arrive at one bookie, and its answers: a :class:`simbookie.observed.RequestObserver`."""

    def __init__(self, history: HistoryWriter, messages: RequestNumbers, bookie_id: str) -> None:
        self._append = history.append
        self._messages = messages
        self._actor = bookie_id

    def request_arrived(self, request: Request, source: str) -> _Arrival | None:
        """Record BK_RECV."""
        operation = operation_of(request)
        if not operation:
            return None
        asked: Any = request  # an add or a read, as the others have no operation
        client, bookie, ledger_id, entry = host_of(source), self._actor, asked.ledger_id, asked.entry_id
        number = self._messages.arrived((client, bookie, operation, ledger_id, entry), request)
        asked_for = {"source": client, "request": number, "operation": operation, "entry": entry}
        self._append(_BK_RECV, bookie, ledger_id, asked_for)
        return client, ledger_id, operation, entry, number, request.operation

    def request_answered(self, arrival: _Arrival | None, status: Status) -> None:
        """Record BK_ANSWER."""
        if arrival is None:
            return
        source, ledger_id, operation, entry, number, asked = arrival
        code = _CODE_OK if status is _OK else int(code_for_status(status, asked))
        answer = {"source": source, "request": number, "operation": operation, "entry": entry, "code": code}
        self._append(_BK_ANSWER, self._actor, ledger_id, answer)
