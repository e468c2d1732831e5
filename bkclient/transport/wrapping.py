"""A transport around another: what watches requests, records them or meddles with them begins with this."""

from __future__ import annotations

from collections.abc import Mapping

from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.wire.messages import Request

__all__ = ["WrappingTransport"]


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
