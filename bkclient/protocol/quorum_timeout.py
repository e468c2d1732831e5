"""A timeout for the ack quorum of entries, without a timer or a time stamp per entry (W-46).

The machine does not note when an entry was sent. Instead every check of the clock notes the ids of what is pending, and an
entry that was noted long enough ago and still has no ack quorum has timed out. An append pays nothing for it. The price
is precision: an entry times out between one and one and a half timeouts after it was sent, if the clock is
checked at least eight times per timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bkclient.protocol.adds import PendingAdd
from bkclient.protocol.value import Value

__all__ = ["QuorumClock"]

_MARKS_PER_TIMEOUT = 8


class QuorumClock(Value):
    """Finds entries that have waited too long. At most nine notes are kept, however often the clock is checked."""

    __slots__ = ("_marks", "_timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._marks: list[tuple[float, tuple[int, ...]]] = []

    def find_expired(self, now: float, pending: Mapping[int, PendingAdd]) -> PendingAdd | None:
        """An entry of ``pending`` without its ack quorum that was pending ``timeout_s`` before ``now``, None if none."""
        marks = self._marks
        old: Iterable[int] = ()
        while marks and marks[0][0] <= now - self._timeout_s:
            old = marks.pop(0)[1]  # the youngest of the old ones includes what older ones noted and is still there
        if not marks or marks[-1][0] <= now - self._timeout_s / _MARKS_PER_TIMEOUT:
            marks.append((now, tuple(pending)))  # ids only: the payloads of what is done are not kept
        adds = (pending.get(entry_id) for entry_id in old)  # an id is used once in the life of a writer
        return next((add for add in adds if add is not None and not add.has_quorum), None)
