"""What is remembered of bookies for a while, and for how long.

Reads learn things about bookies that are true now and may not be in a minute: that one is slow, that one lacks an entry.
Each is kept for a fixed time since it was last noted, and of no more than a fixed number of bookies, the oldest being
forgotten first.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from bkclient.ledger import BookieId
from bkclient.protocol.value import Value

__all__ = ["Remembered"]

T = TypeVar("T")


class Remembered(Value, Generic[T]):
    """Values of at most ``limit`` bookies, each kept for ``keep_s`` seconds; ``now`` is any clock in seconds."""

    __slots__ = ("_keep_s", "_limit", "_noted", "changes")

    def __init__(self, keep_s: float, limit: int = 1000) -> None:
        self._keep_s = keep_s
        self._limit = limit
        #: How often something was noted; what is known becomes more only when this grows.
        self.changes = 0
        # In the order in which they were noted, so the oldest are in front.
        self._noted: dict[BookieId, tuple[float, T]] = {}

    def __len__(self) -> int:
        """How many bookies are noted, including those whose time has passed unnoticed."""
        return len(self._noted)

    def put(self, bookie_id: BookieId, value: T, now: float) -> None:
        """Note ``value``, instead of an older one; its time begins anew."""
        self.changes += 1
        self._noted.pop(bookie_id, None)
        self._expire(now)
        if self._keep_s > 0:
            if len(self._noted) >= self._limit:
                del self._noted[next(iter(self._noted))]
            self._noted[bookie_id] = (now, value)

    def get(self, bookie_id: BookieId, now: float) -> T | None:
        """What is noted and not too old."""
        self._expire(now)
        noted = self._noted.get(bookie_id)
        return None if noted is None else noted[1]

    def knows(self, bookie_id: BookieId, now: float) -> bool:
        """Whether something is noted and not too old."""
        self._expire(now)
        return bookie_id in self._noted

    def is_empty(self, now: float) -> bool:
        """Whether nothing is noted that is not too old."""
        self._expire(now)
        return not self._noted

    def forget(self, bookie_id: BookieId) -> None:
        """Forget what is noted of a bookie, if anything is."""
        self._noted.pop(bookie_id, None)

    def _expire(self, now: float) -> None:
        while self._noted:
            oldest = next(iter(self._noted))
            if self._noted[oldest][0] + self._keep_s > now:
                return
            del self._noted[oldest]
