"""Which messages of a partition wait, were given to somebody, or are to be given again; sans-I/O.

Times are seconds of any clock that does not go back. With a timeout, what was given and not acknowledged for that long is given
again, and so is what was rejected, before anything new.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from bkclient.log.format.message import LogMessage
from bkclient.log.format.message_id import MessageId

__all__ = ["Deliveries"]


@dataclass(slots=True)
class _Given:
    message: LogMessage
    at: float
    times: int


class Deliveries:
    """The messages of one partition between being read and being acknowledged."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s: Final = timeout_s
        self._waiting: deque[LogMessage] = deque()
        #: In the order in which they were given.
        self._given: dict[MessageId, _Given] = {}
        self._again: deque[_Given] = deque()

    @property
    def outstanding(self) -> int:
        """Messages that are not acknowledged."""
        return len(self._waiting) + len(self._given) + len(self._again)

    def offer(self, message: LogMessage) -> None:
        """A message was read."""
        self._waiting.append(message)

    def take(self, now: float) -> LogMessage | None:
        """The message to give next; None if there is none now."""
        self._expire(now)
        if self._again:
            given = self._again.popleft()
        elif self._waiting:
            given = _Given(self._waiting.popleft(), now, 0)
        else:
            return None
        self._given[given.message.id] = _Given(given.message, now, given.times + 1)
        return given.message

    def times(self, message_id: MessageId) -> int:
        """How often a message was given; 0 for one that is not outstanding."""
        found = self._given.get(message_id) or next(
            (each for each in self._again if each.message.id == message_id), None
        )
        return 0 if found is None else found.times

    def acknowledge(self, message_id: MessageId) -> None:
        """It need not be given again; nothing happens if it was acknowledged."""
        if self._given.pop(message_id, None) is None:
            self._again = deque(each for each in self._again if each.message.id != message_id)

    def reject(self, message_id: MessageId) -> None:
        """Give it again, soon."""
        given = self._given.pop(message_id, None)
        if given is not None:
            self._again.append(given)

    def due_at(self) -> float | None:
        """When something is to be given again at the earliest; None if nothing is."""
        if self._timeout_s is None or not self._given:
            return None
        return next(iter(self._given.values())).at + self._timeout_s

    def _expire(self, now: float) -> None:
        while (due_at := self.due_at()) is not None and due_at <= now:
            self.reject(next(iter(self._given)))
