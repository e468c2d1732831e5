"""Following a ledger from some entry on until it is closed and read to its end: what to do next, and how long to try.

Entries up to the LAC are there to be read. Above it there is nothing to read before the LAC moves, so the reader waits at
the bookies; and when the ledger is closed, its last entry is the end. Failures are met with growing pauses, because they
come from bookies that are down or from an ensemble that is out of date, and both change; a failure that lasts is reported.
That nothing is written is no failure, however long it lasts.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from bkclient._backoff import Backoff
from bkclient.protocol.value import Value

__all__ = ["TailRead", "TailStep"]

_PAUSES: Final = Backoff(0.05, 5.0)
_IDLES: Final = Backoff(0.02, 1.0)
#: How long bookies are asked to wait. The metadata tell of a closed ledger and of a new ensemble before that.
_POLLS: Final = Backoff(0.1, 10.0)


class TailStep(Enum):
    """What a follower does next."""

    READ = "read"
    WAIT = "wait"
    END = "end"
    #: The ledger was closed below what was delivered. No client that keeps to the protocol does that.
    LOST = "lost"


class TailRead(Value):
    """One reader that follows from ``first_entry_id`` on and gives up after ``patience_s`` seconds of nothing but failures.

    ``next_entry_id`` is the entry to deliver next. ``now`` is any clock in seconds.
    """

    __slots__ = (
        "_failing_since",
        "_has_delivered",
        "_idle_s",
        "_patience_s",
        "_pause_s",
        "_poll_s",
        "_polled_lac",
        "next_entry_id",
    )

    def __init__(self, first_entry_id: int, patience_s: float) -> None:
        self.next_entry_id = first_entry_id
        self._patience_s = patience_s
        self._has_delivered = False
        self._failing_since: float | None = None
        self._pause_s = _PAUSES.first_s
        self._idle_s = _IDLES.first_s
        self._polled_lac = -1
        self._poll_s = _POLLS.first_s

    def step(self, last_add_confirmed: int, *, is_closed: bool) -> TailStep:
        """What to do, given what is known of the ledger."""
        if self.next_entry_id <= last_add_confirmed:
            return TailStep.READ
        if not is_closed:
            return TailStep.WAIT
        is_beyond_the_end = self.next_entry_id > last_add_confirmed + 1
        return TailStep.LOST if self._has_delivered and is_beyond_the_end else TailStep.END

    def on_entry(self) -> None:
        """The next entry was delivered."""
        self.next_entry_id += 1
        self._has_delivered = True
        self.on_answer()
        self._idle_s = _IDLES.first_s

    def on_answer(self) -> None:
        """Bookies answered, with news or without: whatever failed before is over."""
        self._failing_since = None
        self._pause_s = _PAUSES.first_s

    def poll_s(self, last_add_confirmed: int, *, is_told: bool) -> float:
        """How long to wait at bookies, of which one told this LAC if ``is_told``: that one cannot forget the poll (H-47).

        Any other may, so the waiting is short at first: a poll that is forgotten costs no more than was waited before.
        """
        if last_add_confirmed != self._polled_lac:
            self._polled_lac, self._poll_s = last_add_confirmed, _POLLS.first_s
        return _POLLS.max_s if is_told else self._poll_s

    def on_no_news(self) -> None:
        """Bookies waited as long as they were asked to, and had nothing to tell."""
        self._poll_s = _POLLS.after(self._poll_s)

    def on_failed(self, now: float) -> float | None:
        """Reading or waiting failed: the seconds to pause before the next attempt; None to give up."""
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since >= self._patience_s:
            return None
        pause_s, self._pause_s = self._pause_s, _PAUSES.after(self._pause_s)
        return pause_s

    def on_nothing(self) -> float:
        """There was nothing to wait at: the seconds to pause before looking again."""
        idle_s, self._idle_s = self._idle_s, _IDLES.after(self._idle_s)
        return idle_s
