"""What waits to be written to a journal: a bounded queue, a bound on memory, and a line before both.

Who queues a record when the queue, or the memory for what is queued, is full waits in line: in BookKeeper a thread of the bookie
stands still there, and everything behind it. The bookie bounds the line by the adds that it admits.
"""

from __future__ import annotations

from collections import deque

from simbookie.storage.base import DurableCallback

__all__ = ["JournalQueue", "QueuedRecord"]


class QueuedRecord:
    """What was asked for; ``body`` is ``None`` where only a sync is wanted, and empty once it is written."""

    __slots__ = ("body", "enqueued", "entry_id", "is_reserved", "ledger_id", "on_durable", "on_written", "token")

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        body: bytes | None,
        on_durable: DurableCallback | None,
        token: object,
        on_written: DurableCallback | None = None,
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.body = body
        self.on_durable = on_durable
        self.token = token
        self.on_written = on_written
        #: When its sender had the memory for it.
        self.enqueued = 0.0
        self.is_reserved = False


class JournalQueue:
    """At most ``size_max`` records, and about ``memory_max`` bytes of them (0: no limit; one may go over it).

    Memory is taken until a record is written, a place in the queue until it is taken out: so another queue's worth may be taken
    and not written yet.
    """

    __slots__ = ("_memory_max", "_size_max", "line", "memory_used", "records", "taken")

    def __init__(self, size_max: int, memory_max: int) -> None:
        self._size_max = size_max
        self._memory_max = memory_max
        self.memory_used = 0
        self.line: deque[QueuedRecord] = deque()
        self.records: deque[QueuedRecord] = deque()
        self.taken: deque[QueuedRecord] = deque()

    @property
    def is_full(self) -> bool:
        """Whether a sender has to wait for a place."""
        return len(self.records) >= self._size_max

    def put(self, record: QueuedRecord, now: float) -> None:
        """Queue a record, or put it into the line."""
        if record.body is None:
            record.is_reserved, record.enqueued = True, now  # takes no memory, so it waits for none
        if self.line or not self._admit(record, now):
            self.line.append(record)

    def take(self, now: float) -> QueuedRecord | None:
        """The record that is next, left where it is; takes out everything queued when there is nothing left of the last time."""
        if not self.taken:
            if not self.records:
                return None
            self.taken, self.records = self.records, self.taken
            self._let_in(now)
        return self.taken[0]

    def release(self, record: QueuedRecord, now: float) -> None:
        """The record is written."""
        self.memory_used -= len(record.body or b"")
        record.body = b""
        self._let_in(now)

    def unwritten(self) -> list[QueuedRecord]:
        """Everything in here, in order."""
        return [*self.taken, *self.records, *self.line]

    def _let_in(self, now: float) -> None:
        while self.line and self._admit(self.line[0], now):
            self.line.popleft()

    def _admit(self, record: QueuedRecord, now: float) -> bool:
        if not record.is_reserved:
            if self._memory_max > 0 and self.memory_used > self._memory_max:
                return False
            record.is_reserved, record.enqueued = True, now
            self.memory_used += len(record.body or b"")
        if self.is_full:
            return False
        self.records.append(record)
        return True
