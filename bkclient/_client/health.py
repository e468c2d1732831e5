"""What a client learns about its bookies from reading, and how it orders replicas by it.

:class:`SharedBookieMemory` is shared by all handles of a client: which bookies were overtaken lately, and which know no batch
reads.
:class:`ReadHealth` is one handle's view: it adds which entry of its ledger a bookie last failed to deliver, and how busy the
transport finds the bookie (RO-3). All reads feed it, not only long polls, and none blames the bookie that answered (H-27).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bkclient.config import ReadingSettings
from bkclient.ledger import BookieId
from bkclient.protocol.batch_read import BatchSupport
from bkclient.protocol.remembered import Remembered
from bkclient.transport.base import BookieTransport

__all__ = ["PENDING_IF_UNWRITABLE", "ReadHealth", "SharedBookieMemory"]

#: The load of a bookie whose connection takes no more: more than any other can have.
PENDING_IF_UNWRITABLE: Final = 2**62


class SharedBookieMemory:
    """What the handles of one client remember of bookies in common."""

    __slots__ = ("batches", "slow")

    def __init__(self, settings: ReadingSettings) -> None:
        self.slow: Remembered[None] = Remembered(settings.bookie_failure_history_s)
        self.batches = BatchSupport()


class ReadHealth:
    """The bookies as one handle sees them; a :class:`~bkclient.placement.base.BookieHealth`. ``now`` is the loop's clock."""

    __slots__ = ("_failures", "_marks_slow", "_memory", "_now", "_tracks_failures", "_transport")

    def __init__(
        self,
        memory: SharedBookieMemory,
        transport: BookieTransport,
        settings: ReadingSettings,
        now: Callable[[], float],
    ) -> None:
        self._memory = memory
        self._transport = transport
        self._now = now
        self._failures: Remembered[int] = Remembered(settings.bookie_failure_history_s)
        self._tracks_failures = settings.bookie_failure_tracking
        # RO-6: where order is by load, load tells who is slow.
        self._marks_slow = settings.reorder_threshold_pending_requests == 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing speaks against any bookie: none is slow, none has failed this handle lately."""
        now = self._now()
        return self._memory.slow.is_empty(now) and self._failures.is_empty(now)

    @property
    def changes(self) -> int:
        """Grows with everything that comes to speak against a bookie: who was clean is, as long as this stays."""
        return self._memory.slow.changes + self._failures.changes

    def pending_requests(self, bookie_id: BookieId) -> int:
        """Requests without an answer yet; huge for a bookie whose connection takes no more."""
        if not self._transport.is_writable(bookie_id):
            return PENDING_IF_UNWRITABLE
        return self._transport.pending_requests(bookie_id)

    def is_slow(self, bookie_id: BookieId) -> bool:
        """Whether the bookie was overtaken lately, by any read of the client (RO-6)."""
        slow = self._memory.slow
        return len(slow) > 0 and slow.knows(bookie_id, self._now())  # asked for every entry, and nearly always empty

    def last_failed_entry(self, bookie_id: BookieId) -> int | None:
        """The entry that the bookie last failed to deliver to this handle (RO-7)."""
        return self._failures.get(bookie_id, self._now()) if len(self._failures) > 0 else None

    def on_overtaken(self, bookie_id: BookieId) -> None:
        """Another replica, asked later, answered first."""
        if self._marks_slow:
            self._memory.slow.put(bookie_id, None, self._now())

    def on_failed(self, bookie_id: BookieId, entry_id: int) -> None:
        """The bookie did not deliver the entry."""
        if self._tracks_failures:
            self._failures.put(bookie_id, entry_id, self._now())
