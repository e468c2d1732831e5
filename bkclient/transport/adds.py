"""Sending entries to their write sets: one call for each entry, and answers that may come many at a time.

An append is sent to every bookie of its write set, and the answer to nearly every add is that it was stored. A transport that
knows both at once encodes an entry once and hands over the acknowledgements of one bookie together; it offers
:class:`SendsAdds`. For any other transport, and for whatever stands around one, :func:`adds_over` makes one request of each
replica. What a writer hears is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeGuard

from bkclient.errors import Code
from bkclient.transport.base import ReplyHandler
from bkclient.wire.messages import AddRequest, AddTemplate, Request, Response

__all__ = ["AddReplies", "AddSender", "EachReplica", "SendsAdds", "Submits", "adds_over", "sends_adds"]

_OK: Final = Code.OK  # members of an enumeration take longer to find


class AddReplies(Protocol):
    """Hears what became of adds: once for each bookie and entry, and never from within :meth:`AddSender.send`."""

    def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        """The bookie stored these entries, in this order."""
        ...

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        """The bookie did not store the entry, or it is not known that it did; ``code`` says why."""
        ...


class AddSender(Protocol):
    """Sends the entries of one writer."""

    def send(self, bookies: tuple[str, ...], entry_id: int, header: bytes, payload: bytes) -> None:
        """Send an entry to each of ``bookies``. ``header`` is what precedes ``payload`` in the body that they store."""
        ...


class SendsAdds(Protocol):
    """A transport that sends an entry to its whole write set at once."""

    def add_sender(self, template: AddTemplate, replies: AddReplies) -> AddSender:
        """A sender of entries that have ``template`` in common, whose outcomes go to ``replies``.

        Outcomes are those that :meth:`~bkclient.transport.base.BookieTransport.submit` promises for one request to each bookie.
        """
        ...


class Submits(Protocol):
    """A transport, or what stands before one."""

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """See :class:`~bkclient.transport.base.BookieTransport`."""
        ...


def sends_adds(transport: object) -> TypeGuard[SendsAdds]:
    """Whether it does. Every handle of a ledger asks, and to ask with ``isinstance`` takes far longer."""
    return hasattr(transport, "add_sender")


def adds_over(transport: Submits, template: AddTemplate, replies: AddReplies) -> AddSender:
    """A sender over any transport."""
    if sends_adds(transport):
        return transport.add_sender(template, replies)
    return EachReplica(transport, template, replies)


class EachReplica:
    """Sends an entry as one request to each bookie."""

    __slots__ = ("_replies", "_template", "_transport")

    def __init__(self, transport: Submits, template: AddTemplate, replies: AddReplies) -> None:
        self._transport: Final = transport
        self._template: Final = template
        self._replies: Final = replies

    def send(self, bookies: tuple[str, ...], entry_id: int, header: bytes, payload: bytes) -> None:
        """See :class:`AddSender`."""
        request = self._template.request(entry_id, header, payload)
        reply_to = self._on_reply
        for bookie_id in bookies:
            self._transport.submit(bookie_id, request, reply_to)

    def _on_reply(self, bookie_id: str, request: Request, code: int, _response: Response | None) -> None:
        assert isinstance(request, AddRequest), "nothing else is sent here"
        if code == _OK:
            self._replies.on_adds_stored(bookie_id, (request.entry_id,))
        else:
            self._replies.on_add_failed(bookie_id, request.entry_id, code)
