"""What goes wrong with bytes from the other side of a connection.

Whatever arrives, a decoder of this package either understands it or raises a :class:`WireError`. There is no way to
resynchronise a stream of length-prefixed frames, and the protocol has no message that would tell the sender, so the side that
catches one closes the connection.
"""

from __future__ import annotations

from bkclient.errors import BookKeeperError

__all__ = ["FrameTooLarge", "MalformedMessage", "WireError"]


class WireError(BookKeeperError):
    """The other side sent something that is not this protocol."""

    advice = "Close the connection; check that both sides speak BookKeeper and agree on the frame limit."


class FrameTooLarge(WireError):
    """A frame exceeds the configured limit."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"a frame of {size} bytes, its length prefix included, exceeds the limit of {limit}")


class MalformedMessage(WireError):
    """A frame's content cannot be decoded."""
