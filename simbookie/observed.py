"""A bookie that tells of every request that arrives and of every answer that it gives.

Telling costs a class of its own and nothing where it is not asked for, as with :mod:`simbookie.measured`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from bkclient.wire.messages import AddRequest, Request, Response, Status
from simbookie.bookie import Bookie, Respond
from simbookie.ledgers import status_of
from simbookie.storage.base import StorageError

__all__ = ["ObservedBookie", "RequestObserver"]


class RequestObserver(Protocol):
    """Listens to the requests of one bookie. Must not raise and must not call the bookie back."""

    def request_arrived(self, request: Request, source: str) -> Any:
        """The bookie takes up a request; what is returned is given to :meth:`request_answered`.

        Called before the :class:`~simbookie.observer.BookieObserver` hears of what the request changes. ``source`` is what the
        caller of :meth:`~simbookie.bookie.Bookie.submit` gave as source.
        """
        ...

    def request_answered(self, arrival: Any, status: Status) -> None:
        """The bookie answers, right before the answer leaves. Not called if the bookie stops in between."""
        ...


class ObservedBookie(Bookie):
    """A bookie whose requests ``requests`` hears of; other arguments are those of :class:`~simbookie.bookie.Bookie`."""

    def __init__(self, *args: Any, requests: RequestObserver, **options: Any) -> None:
        super().__init__(*args, **options)
        self._requests = requests
        #: That of an add which :meth:`add` left to :meth:`submit`.
        self._left: tuple[AddRequest, Any] | None = None

    def submit(self, request: Request, respond: Respond, *, source: str = "") -> None:
        """As a bookie does, and tell of it."""
        if not self._accepts:
            return
        left, self._left = self._left, None
        if left is not None and _is_same_add(left[0], request):
            arrival = left[1]
        else:
            arrival = self._requests.request_arrived(request, source)
        Bookie.submit(self, request, partial(self._respond, arrival, respond), source=source)

    def _respond(self, arrival: Any, respond: Respond, response: Response) -> None:
        self._requests.request_answered(arrival, response.status)
        respond(response)

    def add(
        self, request: AddRequest, added: Callable[[Any, StorageError | None], None], token: Any, source: str
    ) -> bool:
        """As a bookie does, and tell of it."""
        if not self._accepts:
            return False
        arrival = self._requests.request_arrived(request, source)
        if super().add(request, self._added_ordinary, (arrival, added, token), source):
            return True
        self._left = (request, arrival)
        return False

    def _added_ordinary(
        self, token: tuple[Any, Callable[[Any, StorageError | None], None], Any], error: StorageError | None
    ) -> None:
        arrival, added, inner = token
        self._requests.request_answered(arrival, Status.OK if error is None else status_of(error))
        added(inner, error)


def _is_same_add(left: AddRequest, request: Request) -> bool:
    """Whether ``request`` is what was left; a server may have decoded the same frame anew."""
    return left is request or (
        isinstance(request, AddRequest)
        and (left.ledger_id, left.entry_id, left.header) == (request.ledger_id, request.entry_id, request.header)
    )
