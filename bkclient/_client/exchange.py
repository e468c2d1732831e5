"""Asking bookies: what every answer goes through before its operation hears of it.

An answer that was good is decoded; one that does not decode, because its digest does not fit, counts as the failure
``DIGEST_MATCH`` (R-36). Every failure is noted as what it says about the bookie's health, which readers, polls and writers see
differently. Then the operation's handler gets ``(bookie_id, request, code, value)``, with a value exactly if the code is OK and
there is something to decode. An error that any of this raises ends the operation (:mod:`bkclient._client.defects`).

:func:`answers` and :func:`outcomes` make a handler of answers from such a handler of values; :func:`ask` is for requests
whose answers are awaited one by one.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from bkclient._client.core import ClientCore
from bkclient._client.defects import defect
from bkclient.errors import Code, DigestMismatch
from bkclient.ledger import BookieId
from bkclient.wire.messages import Request, Response

__all__ = ["Requester", "answers", "ask", "no_value", "outcomes"]


class Requester(Protocol):
    """What asks bookies, and is waited for."""

    def note_failure(self, bookie_id: BookieId, code: int, /) -> None:
        """A bookie did not do what it was asked, or its answer was corrupt; called before the handler, also after the end."""
        ...

    def on_defect(self, error: Exception) -> None:
        """A handler raised ``error``: end, and tell everybody who waits. Does nothing after the end."""
        ...


S = TypeVar("S", bound=Requester)
V = TypeVar("V")

Decode = Callable[[S, Request, Response | None], V]
Handler = Callable[[S, BookieId, Request, int, V | None], None]
ReplyMethod = Callable[[S, str, Request, int, Response | None], None]


def answers(decode: Decode[S, V]) -> Callable[[Handler[S, V]], ReplyMethod[S]]:
    """Have a method called with what ``decode`` makes of a good answer; what is returned is for transports to call.

    ``decode`` may raise :class:`~bkclient.errors.DigestMismatch`. Costs one Python call for each answer.
    """

    def wrap(handler: Handler[S, V]) -> ReplyMethod[S]:
        @functools.wraps(handler)
        def handle_reply(operation: S, bookie_id: str, request: Request, code: int, response: Response | None) -> None:
            try:
                value: V | None = None
                if not code:
                    try:
                        value = decode(operation, request, response)
                    except DigestMismatch:
                        code = Code.DIGEST_MATCH
                if code:
                    operation.note_failure(bookie_id, code)
                handler(operation, bookie_id, request, code, value)
            except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the operation
                operation.on_defect(error)

        return handle_reply

    return wrap


def no_value(*_answer: object) -> None:
    """Decodes answers that are their code alone."""


def outcomes(handler: Handler[S, None]) -> ReplyMethod[S]:
    """As :func:`answers`, where an answer is its code alone."""
    decode: Decode[S, None] = no_value
    return answers(decode)(handler)


def ask(
    core: ClientCore, bookie_id: BookieId, request: Request, decode: Callable[[Request, Response | None], V], what: str
) -> asyncio.Future[tuple[int, V | None]]:
    """Ask one bookie; the future has the code of the answer, and its value exactly if that is OK. It fails for defects only.

    ``what`` is the name of the operation in their reports.
    """
    question = _Question(core, request, decode, what)
    core.transport.submit(bookie_id, request, question.on_reply)
    return question.answer


class _Question(Generic[V]):
    """One request whose answer is awaited."""

    def __init__(
        self, core: ClientCore, request: Request, decode: Callable[[Request, Response | None], V], what: str
    ) -> None:
        self.note_failure = core.watcher.on_request_failed
        self._decode = decode
        self._request = request
        self._what = what
        self.answer: asyncio.Future[tuple[int, V | None]] = asyncio.get_running_loop().create_future()

    def decoded(self, request: Request, response: Response | None) -> V:
        return self._decode(request, response)

    @answers(decoded)
    def on_reply(self, _bookie_id: BookieId, _request: Request, code: int, value: V | None) -> None:
        if not self.answer.done():
            self.answer.set_result((code, value))

    def on_defect(self, error: Exception) -> None:
        """The answer could not be decoded, and not because of its digest."""
        failure = defect(
            error,
            self._what,
            ledger_id=getattr(self._request, "ledger_id", None),
            entry_id=getattr(self._request, "entry_id", None),
        )
        if not self.answer.done():
            self.answer.set_exception(failure)
