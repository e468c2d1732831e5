"""When an auditor audits because bookies went away: the decision, without the waiting.

A bookie that was registered and is no more is *lost*. With a delay a single lost bookie gets that long to come back, so
that a restart moves no data; if it does, nothing happens. Several lost at once are no restart and are audited at once.
Setting the delay is also the way to ask for an audit: to 0, or to what it is already.
"""

from __future__ import annotations

from collections.abc import Iterable

from bkclient.ledger import BookieId

__all__ = ["LostBookies"]


class LostBookies:
    """Which bookies are lost and when that is acted upon. Times are of whatever clock the caller uses, in seconds.

    After every call ask :attr:`audit_at`: an audit is due then, or not at all if it is None. :meth:`audited` tells that it
    begins.
    """

    def __init__(self, registered: Iterable[BookieId], delay_s: float) -> None:
        self._known = dict.fromkeys(registered)
        self._lost: dict[BookieId, None] = {}
        self._lost_at = 0.0
        self._delay_s = delay_s
        self.audit_at: float | None = None

    @property
    def lost(self) -> tuple[BookieId, ...]:
        """The bookies whose loss was not audited yet, sorted."""
        return tuple(sorted(self._lost))

    @property
    def is_waiting(self) -> bool:
        """Whether an audit is to come."""
        return self.audit_at is not None

    def on_bookies(self, registered: Iterable[BookieId], now: float) -> None:
        """The registered bookies, writable and read-only, are these now."""
        present = dict.fromkeys(registered)
        self._known.update(present)
        was_lost = bool(self._lost)
        for bookie_id in [bookie_id for bookie_id in self._lost if bookie_id in present]:
            del self._lost[bookie_id]
        gone = [bookie_id for bookie_id in self._known if bookie_id not in present]
        for bookie_id in gone:
            del self._known[bookie_id]
            self._lost[bookie_id] = None
        if was_lost and not self._lost:
            self.audit_at = None
        elif gone:
            if not self._delay_s or len(self._lost) > 1:
                self.audit_at = now
            elif self.audit_at is None:
                self.audit_at = now + self._delay_s
                self._lost_at = now

    def on_delay(self, delay_s: float, now: float) -> None:
        """The delay was set; to its present value, or to 0, it asks for an audit at once."""
        if delay_s in (0, self._delay_s):
            self.audit_at = now
        elif self._lost and self.audit_at is not None and self.audit_at > now:
            self.audit_at = max(now, self._lost_at + delay_s)
        self._delay_s = delay_s

    def audited(self) -> None:
        """An audit begins, which finds everything that is lost by now."""
        self._lost.clear()
        self.audit_at = None

    def repeat(self, now: float) -> None:
        """The audit failed; there must be another."""
        self.audit_at = now
