"""A transport around another: what watches requests, records them or meddles with them begins with this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bkclient.errors import Code
from bkclient.transport.adds import AddReplies, Submits, adds_over
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.transport.reads import ReadReplies, reads_over
from bkclient.wire.messages import AddTemplate, Request

__all__ = ["WatchedAdds", "WatchedReads", "WrappingTransport"]

_OK: Final = Code.OK  # members of an enumeration take longer to find


class WrappingTransport:
    """A :class:`~bkclient.transport.base.BookieTransport` that hands everything on to ``inner``, and is closed with it."""

    def __init__(self, inner: BookieTransport) -> None:
        self.inner = inner

    @property
    def connections(self) -> Mapping[str, int]:
        """Those of the inner one."""
        return self.inner.connections

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Hand it on."""
        self.inner.submit(bookie_id, request, reply_to)

    def pending_requests(self, bookie_id: str) -> int:
        """As the inner one tells."""
        return self.inner.pending_requests(bookie_id)

    def is_writable(self, bookie_id: str) -> bool:
        """As the inner one tells."""
        return self.inner.is_writable(bookie_id)

    async def aclose(self) -> None:
        """Close the inner one."""
        await self.inner.aclose()


class WatchedAdds:
    """An :class:`~bkclient.transport.adds.AddSender` for a transport around ``inner``, which is told what passes.

    Entries and acknowledgements go on as they come, many at a time. A subclass extends :meth:`send`
    and says what is done about outcomes.
    """

    def __init__(self, inner: Submits, template: AddTemplate, replies: AddReplies) -> None:
        self.template: Final = template
        self._replies: Final = replies
        self._inner: Final = adds_over(inner, template, self)

    def on_outcome(self, bookie_id: str, entry_id: int, code: int) -> None:
        """The bookie stored the entry, or did not, as ``code`` says; the writer hears of it next."""
        raise NotImplementedError

    def send(self, bookies: tuple[str, ...], entry_id: int, header: bytes, payload: bytes) -> None:
        """See :class:`~bkclient.transport.adds.AddSender`."""
        self._inner.send(bookies, entry_id, header, payload)

    def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`."""
        for entry_id in entry_ids:
            self.on_outcome(bookie_id, entry_id, _OK)
        self._replies.on_adds_stored(bookie_id, entry_ids)

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`."""
        self.on_outcome(bookie_id, entry_id, code)
        self._replies.on_add_failed(bookie_id, entry_id, code)


class WatchedReads:
    """A :class:`~bkclient.transport.reads.ReadSender` for a transport around ``inner``, which is told what passes.

    Requests and answers go on as they come, many at a time. A subclass says who hears of the answers first.
    """

    def __init__(self, inner: Submits, ledger_id: int) -> None:
        self.ledger_id: Final = ledger_id
        self._inner: Final = reads_over(inner, ledger_id)

    def _watched(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> ReadReplies:
        """These entries are asked for: who hears of their outcomes, and hands each of them on to ``replies``."""
        raise NotImplementedError

    def send(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> None:
        """See :class:`~bkclient.transport.reads.ReadSender`."""
        self._inner.send(bookie_id, entry_ids, self._watched(bookie_id, entry_ids, replies))
