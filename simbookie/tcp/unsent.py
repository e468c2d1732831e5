"""Answers that clients do not take, of all connections together.

What a connection has encoded and its client's system has not accepted is memory that the client decides about. Each connection
may hold little of it (:mod:`simbookie.tcp.connection`), but there may be ten thousand of them. Above the limit, connections are
closed until what is held is below it: first the one whose client has taken nothing for longest.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Unsent"]


class Holder(Protocol):
    """A connection whose client does not take its answers."""

    @property
    def unsent_bytes(self) -> int:
        """What it holds now; 0 once it has been closed."""

    def close_as_unsent(self, limit: int) -> None:
        """Close at once, because all together hold more than ``limit``."""


class Unsent:
    """Counts the bytes held; at most ``limit``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: Bytes by holder as last seen; the first has been seen to take something, or to begin to hold, before the others.
        self._held: dict[Holder, int] = {}
        #: Bytes held by all as last seen. Less of it may be left.
        self.total = 0

    def hold(self, holder: Holder) -> None:
        """``holder`` has begun to hold something, or holds more."""
        self.release(holder)
        size = holder.unsent_bytes
        self._held[holder] = size
        self.total += size
        while self.total > self._limit:
            self._let_go_of_first()

    def release(self, holder: Holder) -> None:
        """``holder`` holds nothing any more. Idempotent."""
        self.total -= self._held.pop(holder, 0)

    def _let_go_of_first(self) -> None:
        first, size = next(iter(self._held.items()))
        self.release(first)
        left = first.unsent_bytes
        if left < size:  # its client takes its answers, if slowly: others may not
            self._held[first] = left
            self.total += left
        else:
            first.close_as_unsent(self._limit)
