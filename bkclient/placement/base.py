"""Which bookies store a ledger: one small interface, policies are plug-ins."""

from __future__ import annotations

from typing import Protocol

from bkclient.metadata.base import BookieSets
from bkclient.metadata.model import BookieId, Ensemble

__all__ = ["PlacementPolicy"]


class PlacementPolicy(Protocol):
    """Chooses among the registered bookies. Read-only and unregistered bookies are never chosen (PL-5)."""

    def update(self, bookies: BookieSets) -> None:
        """The registered bookies changed (PL-1)."""
        ...

    def new_ensemble(self, size: int) -> Ensemble | None:
        """``size`` distinct writable bookies, or None if there are too few."""
        ...

    def replace(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        """A writable bookie for ``position``, neither in ``ensemble`` nor in ``excluded``; None if there is none (PL-4)."""
        ...
