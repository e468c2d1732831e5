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
from bkclient.protocol.append_ports import Quorums
from bkclient.transport.base import ReplyHandler
from bkclient.wire.messages import AddRequest, AddTemplate, Request, Response

__all__ = [
    "AddReplies",
    "AddSender",
    "CountedReplies",
    "CountsQuorums",
    "EachReplica",
    "SendsAdds",
    "SendsMany",
    "Submits",
    "adds_over",
    "counts_quorums",
    "sends_adds",
    "sends_many",
]

_OK: Final = Code.OK  # members of an enumeration take longer to find


class AddReplies(Protocol):
    """Hears what became of adds: once for each bookie and entry, and never from within :meth:`AddSender.send`."""

    def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        """The bookie stored these entries, in this order."""
        ...

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        """The bookie did not store the entry, or it is not known that it did; ``code`` says why."""
        ...


class CountedReplies(AddReplies, Protocol):
    """Hears of entries that an ack quorum stored, in place of each bookie, from a sender that counts (:class:`CountsQuorums`)."""

    def on_adds_stored_by(self, quorums: Quorums, entry_ids: Sequence[int]) -> None:
        """An ack quorum stored each of these entries; ``quorums`` knows which bookies did, during this call.

        The same as :meth:`on_adds_stored` for each of these bookies. What other bookies say of these entries may not be told at
        all. A writer hears of its entries in the order in which they were sent.
        """
        ...


class AddSender(Protocol):
    """Sends the entries of one writer."""

    def send(self, bookies: tuple[str, ...], entry_id: int, header: bytes, payload: bytes) -> None:
        """Send an entry to each of ``bookies``. ``header`` is what precedes ``payload`` in the body that they store."""
        ...


class CountsQuorums(AddSender, Protocol):
    """A sender that counts the answers to an entry, so that its writer hears of it once; it does so when it was told to."""

    def count(self, ack_quorum_size: int, connection: int, *, is_striped: bool) -> None:
        """Count answers over connections up to the one with this number, for a writer that takes :class:`CountedReplies`.

        For entries that are sent from now on; ``is_striped`` tells whether their write sets differ. Again with another number
        when that may be greater.
        """
        ...

    def tell(self) -> None:
        """Tell what was held back of what bookies said up to now, and all that they say from now on of what was sent."""
        ...

    def count_no_more(self) -> None:
        """As :meth:`tell`, and count nothing of what is sent later."""
        ...


class SendsMany(AddSender, Protocol):
    """A sender to which entries can be handed many at a time."""

    def send_all(
        self,
        write_sets: Sequence[tuple[str, ...]],
        entry_ids: Sequence[int],
        headers: Sequence[bytes],
        payloads: Sequence[bytes],
    ) -> None:
        """What :meth:`~AddSender.send` does for each of these entries, in their order.

        Their ids follow each other. Entry ``n`` goes to the write set at ``n`` modulo the number of these.
        """
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


def counts_quorums(sender: AddSender) -> TypeGuard[CountsQuorums]:
    """Whether it does, asked as in :func:`sends_adds`."""
    return hasattr(sender, "count_no_more")


def sends_many(sender: AddSender) -> TypeGuard[SendsMany]:
    """Whether it does, asked as in :func:`sends_adds`."""
    return hasattr(sender, "send_all")


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
