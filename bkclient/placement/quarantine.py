"""Keeping away from bookies that fail too often (section 8.2 of the rules).

Counters run for an interval; a bookie with too many errors in one is in quarantine for a while, which only means that others
are chosen if there are any. Nothing here runs by itself: the owner checks once per interval.
"""

from __future__ import annotations

import random
from typing import Final

from bkclient.errors import Code
from bkclient.ledger import BookieId
from bkclient.observability import log

__all__ = ["BOOKIES_COUNTED_MAX", "Quarantine"]

BOOKIES_COUNTED_MAX: Final = 10_000
"""Bookies with errors in one interval; those beyond are not counted."""

#: Failures that say nothing about the health of a bookie (PL-7), and the one that comes from closing this client.
_HARMLESS: Final = frozenset(
    {
        Code.OK,
        Code.NO_SUCH_ENTRY,
        Code.NO_SUCH_LEDGER_ON_BOOKIE,
        Code.LEDGER_FENCED,
        Code.LEDGER_EXISTS,
        Code.DUPLICATE_ENTRY_ID,
        Code.WRITE_ON_READ_ONLY_BOOKIE,
        Code.CLIENT_CLOSED,
    }
)


class Quarantine:
    """Counts the errors of bookies, and remembers which of them are to be avoided until when.

    ``threshold`` errors within one interval bring a bookie into quarantine for ``duration_s``, with the probability ``ratio``, so
    that a cluster under load does not lose all of its bookies at once. ``counts_connections``: failed connections count too.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        threshold: int = 100,
        duration_s: float = 1800.0,
        ratio: float = 1.0,
        counts_connections: bool = False,
    ) -> None:
        self._rng = rng
        self._threshold = threshold
        self._duration_s = duration_s
        self._ratio = ratio
        self._harmless = _HARMLESS if counts_connections else _HARMLESS | {Code.BOOKIE_NOT_AVAILABLE}
        self._errors: dict[BookieId, int] = {}
        self._until: dict[BookieId, float] = {}

    def count(self, bookie_id: BookieId, code: int) -> None:
        """A request to the bookie ended with ``code``."""
        if code in self._harmless:
            return
        if bookie_id in self._errors or len(self._errors) < BOOKIES_COUNTED_MAX:
            self._errors[bookie_id] = self._errors.get(bookie_id, 0) + 1

    def end_interval(self) -> tuple[BookieId, ...]:
        """The bookies with too many errors since the last call; counting starts again."""
        errors, self._errors = self._errors, {}
        return tuple(sorted(bookie_id for bookie_id, count in errors.items() if count >= self._threshold))

    def put(self, bookies: tuple[BookieId, ...], now: float) -> int:
        """Quarantine ``bookies``, or the share of them that chance picks; tells how many.

        One that is in quarantine stays until the end that was set.
        """
        self.at(now)
        put = 0
        for bookie_id in bookies:
            if bookie_id not in self._until and (self._ratio >= 1 or self._rng.random() < self._ratio):
                self._until[bookie_id] = now + self._duration_s
                put += 1
                log.BOOKIE_QUARANTINED(bookie_id=bookie_id, seconds=self._duration_s)
        return put

    def release_all(self) -> None:
        """Health checks are switched off for the cluster."""
        if self._until:
            log.QUARANTINE_LIFTED(bookies=", ".join(self._until))
        self._until.clear()

    def at(self, now: float) -> frozenset[BookieId]:
        """The bookies to be avoided now."""
        for bookie_id in [bookie_id for bookie_id, until in self._until.items() if until <= now]:
            del self._until[bookie_id]
            log.BOOKIE_RELEASED(bookie_id=bookie_id)
        return frozenset(self._until)
