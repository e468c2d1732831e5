"""How much may wait to be stored at once, and who waits until that is less.

Adds, explicit LACs and forces count from the moment they are taken until they are answered; adds of high priority do not, so that
recovery is never shut out. Beyond the limit a request is refused as one too many, unless its caller can wait for room, as a
connection does that stops reading. It is told once half of what may be pending has been answered.
"""

from __future__ import annotations

from collections.abc import Callable

from bkclient.wire.messages import AddRequest, ForceLedgerRequest, Request, WriteLacRequest

__all__ = ["AddRoom"]


class AddRoom:
    """Counts what is pending against ``pending_max``."""

    def __init__(self, pending_max: int) -> None:
        #: What was taken and is not answered.
        self.pending = 0
        self._waiters: dict[Callable[[], None], None] = {}
        self._limit(pending_max)

    @property
    def left(self) -> int:
        """How many more are taken before the next is refused as one too many."""
        return self.pending_max - self.pending

    @property
    def waiters(self) -> int:
        """How many wait for room."""
        return len(self._waiters)

    def answered(self) -> None:
        """One of what is pending was answered."""
        assert self.pending > 0, "what is answered was taken"
        self.pending = pending = self.pending - 1
        if pending == self._roomy_at:
            self._tell()

    def must_wait(self, request: Request) -> bool:
        """Whether ``request`` would be refused as one too many, which a caller that can wait for room does not want."""
        if self.left > 0 or self.pending == 0:
            return False
        is_ordinary_add = isinstance(request, AddRequest) and not request.high_priority
        return is_ordinary_add or isinstance(request, WriteLacRequest | ForceLedgerRequest)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once, when half of what may be pending is answered. Only while there is no room."""
        assert self.left <= 0, "there is room"
        self._waiters[callback] = None

    def cancel(self, callback: Callable[[], None]) -> None:
        """Do not call back; nothing happens if it has been."""
        self._waiters.pop(callback, None)

    def restart(self, pending_max: int) -> None:
        """Nothing is pending any more, and nothing waits: the bookie that all of it was for has died. The next has this limit."""
        self.pending = 0
        self._waiters.clear()
        self._limit(pending_max)

    def _limit(self, pending_max: int) -> None:
        #: How many may be.
        self.pending_max = pending_max
        #: With so many left pending, there is room again for those that wait.
        self._roomy_at = pending_max // 2

    def _tell(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for callback in waiters:
            callback()
