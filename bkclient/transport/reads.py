"""Sending ordinary reads, any number at a time, and good answers that come many at a time.

A transport that offers :class:`SendsReads` encodes the reads of one ledger together and hands over what a chunk of bytes brought
in one call. For any other transport :func:`reads_over` makes a request of each read. What a reader hears is the same: each read
has one outcome. What stands around a transport may watch reads as they pass
(:class:`~bkclient.transport.wrapping.WatchedReads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeGuard

from bkclient.transport.adds import Submits
from bkclient.wire.connection import FoundBody
from bkclient.wire.messages import ReadRequest, Request, Response

__all__ = ["EachRead", "ReadReplies", "ReadSender", "SendsReads", "reads_over", "sends_reads"]


class ReadReplies(Protocol):
    """Hears what became of reads: once of each, and never from within :meth:`ReadSender.send`.

    It is a :class:`~bkclient.transport.base.ReplyHandler`, which is called with whatever is not told otherwise.
    """

    def __call__(self, bookie_id: str, request: Request, code: int, response: Response | None, /) -> None:
        """The outcome of one read."""
        ...

    def on_found(self, bookie_id: str, found: Sequence[FoundBody]) -> None:
        """The bookie sent these entries, in this order; nobody has verified them."""
        ...


class ReadSender(Protocol):
    """Sends reads of one ledger."""

    def send(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> None:
        """Ask a bookie for each of ``entry_ids``."""
        ...


class SendsReads(Protocol):
    """A transport that sends many reads at a time."""

    def read_sender(self, ledger_id: int) -> ReadSender:
        """A sender of ordinary reads of a ledger.

        Outcomes are those that :meth:`~bkclient.transport.base.BookieTransport.submit` promises for a request of each.
        """
        ...


def sends_reads(transport: object) -> TypeGuard[SendsReads]:
    """Whether it does; as :func:`~bkclient.transport.adds.sends_adds`."""
    return hasattr(transport, "read_sender")


def reads_over(transport: Submits, ledger_id: int) -> ReadSender:
    """A sender over any transport."""
    return transport.read_sender(ledger_id) if sends_reads(transport) else EachRead(transport, ledger_id)


class EachRead:
    """Sends each read as a request."""

    def __init__(self, transport: Submits, ledger_id: int) -> None:
        self._transport: Final = transport
        self._ledger_id: Final = ledger_id

    def send(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> None:
        """See :class:`ReadSender`."""
        for entry_id in entry_ids:
            self._transport.submit(bookie_id, ReadRequest(self._ledger_id, entry_id), replies)
