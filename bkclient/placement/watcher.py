"""The bookies as one client sees them: who is registered, and who is to be avoided.

All choices of bookies go through the :class:`BookieWatcher`: it keeps the policy up to date with the registry (PL-1) and asks
it in two rounds, first without the bookies in quarantine, then, if there are too few, with them (PL-2, PL-3).
"""

from __future__ import annotations

from bkclient.metadata.base import BookieSets
from bkclient.metadata.model import BookieId, Ensemble
from bkclient.placement.base import LedgerShape, PlacementPolicy

__all__ = ["BookieWatcher"]

_NONE: frozenset[BookieId] = frozenset()


class BookieWatcher:
    """Asks ``policy`` on behalf of one client."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self.policy = policy
        #: What is registered now, as far as this client has heard.
        self.bookies = BookieSets()
        self._quarantined: dict[BookieId, float] = {}

    def update(self, bookies: BookieSets) -> None:
        """The registered bookies changed."""
        self.bookies = bookies
        self.policy.update(bookies)

    def is_available(self, bookie_id: BookieId) -> bool:
        """Whether the bookie is registered, writable or not (PL-1)."""
        return bookie_id in self.bookies.writable or bookie_id in self.bookies.read_only

    @property
    def quarantined(self) -> frozenset[BookieId]:
        """Bookies that are chosen only if there are too few others."""
        return frozenset(self._quarantined)

    def new_ensemble(self, shape: LedgerShape) -> Ensemble | None:
        """An ensemble for a new ledger, None if too few bookies are writable (PL-2)."""
        avoided = self.quarantined
        ensemble = self.policy.new_ensemble(shape, avoided)
        if ensemble is None and avoided:
            ensemble = self.policy.new_ensemble(shape, _NONE)
        return ensemble

    def replace(
        self, shape: LedgerShape, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]
    ) -> BookieId | None:
        """A bookie for ``position`` of ``ensemble``, None if there is none (PL-3)."""
        avoided = self.quarantined
        bookie_id = self.policy.replace(shape, ensemble, position, excluded | avoided)
        if bookie_id is None and avoided:
            bookie_id = self.policy.replace(shape, ensemble, position, excluded)
        return bookie_id

    def on_request_failed(self, bookie_id: BookieId, code: int) -> None:
        """A request to the bookie failed; enough of the kind that tells of a sick bookie put it in quarantine (PL-6, PL-7)."""
