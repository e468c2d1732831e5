"""In-flight windows: how many entries and bytes a writer, and a client, may have in flight, and which waiter goes on next.

BookKeeper bounds a writer by a rate alone (H-13), which bounds nothing when bookies slow down. Here each writer has a window, and
all writers of a client share a wider one, so that a program with a thousand ledgers cannot fill its memory by a thousand
windows. Whatever is appended takes a place in both, and gives it back when it is confirmed or has failed.

An append that finds a window full waits in that window's line. The line moves when a quarter of the window is free, in order of
arrival, one waiter at a time. So entries leave in batches, which bookies serve far faster than single frames; and a writer that
took much of the shared window waits behind those it held up, so all writers get their turn.

Where the application chooses entry ids, what is above a gap stays in flight until the gap is filled, which is up to the
application: stored or not, it cannot be confirmed, and its payload is needed if the ensemble changes. So that one such ledger
does not stop the other writers, entries above gaps take at most half of the shared window, and one writer's at most as much of
that half as it leaves free. The half is of what is counted: one entry larger than that is taken and counted as the half.
The bound of the window holds with them: what is in flight never exceeds it by more than the last entry of either kind, and
the one entry of each writer that is next in order, which no window may hold back.

An append costs one call here, and a confirmation another; there is neither a task nor a lock.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from bkclient._core import has_twins

__all__ = ["ClientWindow", "WriterWindow"]


#: In the place of those who wait as long as nobody ever did: most writers never wait. Nothing is put in.
_NOBODY: Final[OrderedDict[asyncio.Future[None], None]] = OrderedDict()


class _Line:
    """A window and its waiters."""

    __slots__ = ("bytes", "entries", "max_bytes", "max_entries", "waiters", "woken")

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        #: What is in flight now.
        self.entries = 0
        self.bytes = 0
        self.max_entries: Final = max_entries
        self.max_bytes: Final = max_bytes
        #: Those who wait, the first in line first. Who is first and who gives up leaves at no cost, however long the line.
        self.waiters = _NOBODY
        #: How many have left the line and have not run since.
        self.woken = 0

    @property
    def has_room(self) -> bool:
        """Whether one more entry, of any size, is taken: the last one may exceed the bytes."""
        return self.entries < self.max_entries and self.bytes < self.max_bytes

    def on_less(self, entries: int) -> None:
        """So many places were given back, and somebody waits: one goes on for each."""
        if self.entries <= self.max_entries * 3 // 4 and self.bytes <= self.max_bytes * 3 // 4:
            self.wake(entries)

    def wake(self, count: int) -> None:
        """Let the first ``count`` in line go on, as far as there is room."""
        for _ in range(min(count, len(self.waiters))):
            self.wake_next()

    def wake_next(self) -> None:
        """Let the first in line go on, if there is room."""
        while self.waiters and self.has_room:
            waiter, _ = self.waiters.popitem(last=False)
            self.woken += 1
            if not waiter.done():
                waiter.set_result(None)
                return


class ClientWindow(_Line):
    """What all writers of one client have in flight together."""

    __slots__ = ("above_gaps", "bytes_above_gaps", "max_above_gaps", "max_bytes_above_gaps", "waiting_above_gaps")

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        super().__init__(max_entries, max_bytes)
        #: What is above a gap. Of the bytes, ``bytes`` counts no more than the maximum.
        self.above_gaps = 0
        self.bytes_above_gaps = 0
        self.max_above_gaps: Final = max_entries // 2
        self.max_bytes_above_gaps: Final = max_bytes // 2
        #: Writers of which somebody waits for room above a gap.
        self.waiting_above_gaps: dict[WriterWindow, None] = {}

    def count_above_gaps(self, entries: int, size: int) -> None:
        """Count entries and bytes that came to be above a gap, or (negative) are so no more. They are in flight in any case."""
        excess = max(0, self.bytes_above_gaps - self.max_bytes_above_gaps)
        self.above_gaps += entries
        self.bytes_above_gaps += size
        self.bytes += excess - max(0, self.bytes_above_gaps - self.max_bytes_above_gaps)

    @property
    def in_flight_bytes(self) -> int:
        """All bytes, those that the window does not count included."""
        return self.bytes + max(0, self.bytes_above_gaps - self.max_bytes_above_gaps)

    def wake_above_gaps(self, entries: int = 1) -> None:
        """There may be room above gaps, for so many entries."""
        for window in list(self.waiting_above_gaps):
            window.above_gap.on_less(entries)


class _AboveGap(_Line):
    """What one writer has above a gap, and the waiters for room there."""

    __slots__ = ("_window",)

    def __init__(self, window: WriterWindow) -> None:
        super().__init__(window.max_entries, window.max_bytes)
        self._window = window

    @property
    def has_room(self) -> bool:
        """Whether both windows have room, and the half for entries above gaps has more free than this writer uses."""
        window = self._window
        shared = window.shared
        return (
            window.has_room
            and shared.has_room
            and self.entries < shared.max_above_gaps - shared.above_gaps
            and self.bytes < shared.max_bytes_above_gaps - shared.bytes_above_gaps
        )

    def on_less(self, entries: int) -> None:
        self.wake(entries)


class WriterWindow(_Line):
    """What one writer has in flight, as a part of what its client has."""

    __slots__ = ("_above_gap", "_is_released", "_loop", "_own", "shared")

    def __init__(self, max_entries: int, max_bytes: int, shared: ClientWindow) -> None:
        super().__init__(max_entries, max_bytes)
        self.shared: Final = shared
        self._above_gap: _AboveGap | None = None
        self._loop = asyncio.get_running_loop()
        self._own: dict[asyncio.Future[None], None] = _NOBODY
        self._is_released = False

    @property
    def above_gap(self) -> _AboveGap:
        """What is above a gap; made when it is first asked for, as most writers never have one."""
        if self._above_gap is None:
            self._above_gap = _AboveGap(self)
        return self._above_gap

    def try_take(self, size: int) -> bool:
        """Take a place for an entry of ``size`` bytes; tells whether there was one in both windows."""
        shared = self.shared
        if (
            self.entries >= self.max_entries
            or self.bytes >= self.max_bytes
            or shared.entries >= shared.max_entries
            or shared.bytes >= shared.max_bytes
        ):
            return False
        self.entries += 1
        self.bytes += size
        shared.entries += 1
        shared.bytes += size
        return True

    def take_many(self, sizes: Sequence[int]) -> int:
        """Take places for the first entries of these sizes, as many as :meth:`try_take` would one by one; returns how many."""
        shared = self.shared
        left = min(self.max_bytes - self.bytes, shared.max_bytes - shared.bytes)
        room = min(self.max_entries - self.entries, shared.max_entries - shared.entries)
        count = min(len(sizes), max(0, room)) if left > 0 else 0
        taken = sum(sizes[:count])
        if count and taken >= left:  # the last one may exceed the bytes
            ends = list(accumulate(sizes[:count]))
            count = bisect_left(ends, left) + 1
            taken = ends[count - 1]
        self.entries += count
        self.bytes += taken
        shared.entries += count
        shared.bytes += taken
        return count

    def take(self, size: int) -> None:
        """Take a place although there may be none: for the one entry that everything else in flight waits for."""
        self.entries += 1
        self.bytes += size
        self.shared.entries += 1
        self.shared.bytes += size

    def give_back(self, size: int, entries: int = 1) -> None:
        """So many entries, with ``size`` bytes in all, are done, and so are their places."""
        shared = self.shared
        self.entries -= entries
        self.bytes -= size
        shared.entries -= entries
        shared.bytes -= size
        if self.waiters:
            self.on_less(entries)
        if shared.waiters:
            shared.on_less(entries)
        if shared.waiting_above_gaps:
            shared.wake_above_gaps(entries)

    def enter_gap(self, size: int) -> None:
        """The entry of ``size`` bytes that was taken last is above a gap."""
        self.above_gap.entries += 1
        self.above_gap.bytes += size
        self.shared.count_above_gaps(1, size)

    def leave_gap(self, entries: int, size: int) -> None:
        """So many entries, with ``size`` bytes, are above no gap any more: it was filled, or they have failed."""
        self.above_gap.entries -= entries
        self.above_gap.bytes -= size
        self.shared.count_above_gaps(-entries, -size)
        self.shared.wake_above_gaps()

    def has_room_for(self, *, is_above_gap: bool) -> bool:
        """Whether both windows have room for an entry."""
        return self.above_gap.has_room if is_above_gap else self.has_room and self.shared.has_room

    @property
    def is_open(self) -> bool:
        """Whether both windows have room, or waiting is over for good."""
        return self._is_released or (self.has_room and self.shared.has_room)

    @property
    def occupancy(self) -> str:
        """What is in flight, for messages: of the client if it is its window that is full, above gaps if it is none."""
        if self.has_room and self.shared.has_room:
            gap = self.above_gap
            return f"{gap.entries} entries with {gap.bytes} bytes above a gap"
        if self.has_room:
            return f"{self.shared.entries} entries with {self.shared.bytes} bytes of all writers of this client"
        return f"{self.entries} entries with {self.bytes} bytes"

    async def wait(self) -> None:
        """Return once there is room, or :meth:`release` was called. Nothing is taken."""
        is_from_own_line = False
        while not self._is_released:
            if not self.has_room:
                await self._wait_in(self, self._loop.create_future())
                is_from_own_line = True
            elif not self.shared.has_room or (is_from_own_line and (self.shared.waiters or self.shared.woken)):
                # Also behind others who wait for the client's window, or this writer would go round on what it frees itself.
                await self._wait_in(self.shared, self._loop.create_future())
                is_from_own_line = False
            else:
                return

    async def wait_in_line(self, waiter: asyncio.Future[None], *, is_above_gap: bool) -> None:
        """Return when a place may be free, or somebody else completed ``waiter``; look again then."""
        if not self.has_room:
            await self._wait_in(self, waiter)
        elif not (is_above_gap and self.shared.has_room):
            await self._wait_in(self.shared, waiter)
        else:
            self.shared.waiting_above_gaps[self] = None
            try:
                await self._wait_in(self.above_gap, waiter)
            finally:
                if not self.above_gap.waiters:
                    self.shared.waiting_above_gaps.pop(self, None)

    async def _wait_in(self, line: _Line, waiter: asyncio.Future[None]) -> None:
        if line.waiters is _NOBODY:
            line.waiters = OrderedDict()
        if self._own is _NOBODY:
            self._own = {}
        line.waiters[waiter] = None
        self._own[waiter] = None
        try:
            await waiter
        finally:
            del self._own[waiter]
            if waiter in line.waiters:
                del line.waiters[waiter]  # gave up, or somebody else completed it
            else:
                line.woken -= 1
            if not waiter.cancelled():
                # The turn goes on once this waiter has had its chance, whether it appends, fails or was cancelled.
                self._loop.call_soon(line.wake_next)

    def release(self) -> None:
        """The writer takes no more: let all who wait go on, to be refused. Idempotent."""
        self._is_released = True
        for waiter in self._own:
            if not waiter.done():
                waiter.set_result(None)


has_twins("confirming", WriterWindow, "give_back", bind="bind_window", knows=(ClientWindow,))
