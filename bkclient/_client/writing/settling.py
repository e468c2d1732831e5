"""The futures of appends that are under way, and their end where they succeed."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from bkclient._core import has_twins
from bkclient.protocol.adds import NewEntry

__all__ = ["Futures", "InOrder", "settle"]

#: In the place of a queue as long as nothing was appended: an empty one has room for 64.
_NONE_YET: Final[deque[asyncio.Future[int] | None]] = deque(maxlen=0)


class InOrder:
    """The futures of entries whose ids count up from 0, in their order, which takes a third of the memory of a dict by ids."""

    __slots__ = ("first", "queue")

    def __init__(self) -> None:
        #: The id of the first entry that is under way.
        self.first = 0
        #: The futures from that one on; None for one that was taken out before its turn, which only defects do. Futures are put
        #: in after :meth:`begin`.
        self.queue = _NONE_YET

    def begin(self) -> None:
        """An entry is about to be appended. Idempotent."""
        if self.queue is _NONE_YET:
            self.queue = deque()

    def __len__(self) -> int:
        return len(self.queue)

    def __iter__(self) -> Iterator[int]:
        """The ids of the entries."""
        return iter(range(self.first, self.first + len(self.queue)))

    def __getitem__(self, entry_id: int) -> asyncio.Future[int]:
        place = entry_id - self.first
        future = self.queue[place] if 0 <= place < len(self.queue) else None
        if future is None:
            raise KeyError(entry_id)
        return future

    def items(self) -> Iterator[tuple[int, asyncio.Future[int] | None]]:
        """As of a dict by ids."""
        return zip(self, self.queue, strict=True)

    def pop(self, entry_id: int, default: Any = None) -> Any:
        """As of a dict by ids, but that ``default`` is returned without being asked for."""
        place = entry_id - self.first
        if not 0 <= place < len(self.queue):
            return default
        future, self.queue[place] = self.queue[place], None
        while self.queue and self.queue[0] is None:
            self.queue.popleft()
            self.first += 1
        return future


Futures = InOrder | dict[int, asyncio.Future[int]]
"""Those of a writer that chooses ids itself, or of one whose caller does."""


def settle(futures: Futures, entries: Sequence[NewEntry]) -> int:
    """Take the futures of ``entries`` out and complete them with the entries' ids; returns the bytes of the payloads."""
    size = 0
    if type(futures) is InOrder and entries and entries[-1].entry_id + 1 == futures.first + len(entries):
        take: Any = futures.queue.popleft
        futures.first += len(entries)
        for entry_id, payload, _, _ in entries:
            size += len(payload)
            try:
                take().set_result(entry_id)
            except asyncio.InvalidStateError:  # it was cancelled
                continue
        return size
    for entry_id, payload, _, _ in entries:
        size += len(payload)
        future: asyncio.Future[int] = futures.pop(entry_id)
        if not future.done():
            future.set_result(entry_id)
    return size


has_twins(
    "counting",
    sys.modules[__name__],
    "settle",
    bind="bind_settle",
    knows=(asyncio.Future, asyncio.InvalidStateError, InOrder),
)
