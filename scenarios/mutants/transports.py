"""Transports that alter requests or answers, between a correct client and the recorder below."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bkclient.errors import Code
from bkclient.transport.base import ReplyHandler
from bkclient.transport.wrapping import WrappingTransport
from bkclient.wire.messages import AddRequest, ReadRequest, Request, Response

__all__ = ["SilenceIsAcknowledged", "SilenceIsFenced", "SilenceIsStored", "WithoutFenceOnReads"]

_NO_ANSWER: Final = frozenset({int(Code.TIMEOUT), int(Code.BOOKIE_NOT_AVAILABLE)})


class WithoutFenceOnReads(WrappingTransport):
    """Forwards everything, but takes the fence flag off reads of particular entries."""

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Forward, falsified where it is a recovery read."""
        if not (isinstance(request, ReadRequest) and request.fence_key is not None and request.entry_id >= 0):
            self.inner.submit(bookie_id, request, reply_to)
            return

        def answer(bookie: str, _falsified: Request, code: int, response: Response | None) -> None:
            reply_to(bookie, request, code, response)

        self.inner.submit(bookie_id, replace(request, fence_key=None), answer)


class _Translating(WrappingTransport):
    """Forwards everything, and takes missing answers for another one."""

    taken_for: Code

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Forward, with the outcome falsified where it is meant."""
        if not self.is_meant(request):
            self.inner.submit(bookie_id, request, reply_to)
            return

        def answer(bookie: str, answered: Request, code: int, response: Response | None) -> None:
            reply_to(bookie, answered, int(self.taken_for) if code in _NO_ANSWER else code, response)

        self.inner.submit(bookie_id, request, answer)

    def is_meant(self, request: Request) -> bool:
        """Whether answers to ``request`` are mistaken."""
        raise NotImplementedError


class SilenceIsFenced(_Translating):
    """Takes a fencing read without an answer for one that fenced."""

    taken_for = Code.NO_SUCH_ENTRY

    def is_meant(self, request: Request) -> bool:
        """Fencing reads of the last entry."""
        return isinstance(request, ReadRequest) and request.fence_key is not None and request.entry_id < 0


class SilenceIsStored(_Translating):
    """Takes a recovery add without an answer for one that was stored."""

    taken_for = Code.OK

    def is_meant(self, request: Request) -> bool:
        """Recovery adds."""
        return isinstance(request, AddRequest) and request.recovery


class SilenceIsAcknowledged(_Translating):
    """Takes an add without an answer for one that was stored."""

    taken_for = Code.OK

    def is_meant(self, request: Request) -> bool:
        """The adds of writers."""
        return isinstance(request, AddRequest) and not request.recovery
