"""Placement by chance alone."""

from __future__ import annotations

import random

from bkclient.metadata.base import BookieSets
from bkclient.metadata.model import BookieId, Ensemble
from bkclient.placement.base import LedgerShape, PlacementDefaults

__all__ = ["RandomPlacement"]


class RandomPlacement(PlacementDefaults):
    """Every writable bookie is as good as any other; ``rng`` decides."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._writable: tuple[BookieId, ...] = ()

    def update(self, bookies: BookieSets) -> None:
        """Choose among ``bookies.writable`` from now on."""
        self._writable = tuple(sorted(bookies.writable))

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[BookieId]) -> Ensemble | None:
        """A random sample in random order."""
        candidates = [b for b in self._writable if b not in excluded]
        if len(candidates) < shape.ensemble_size:
            return None
        return tuple(self._rng.sample(candidates, shape.ensemble_size))

    def replace(
        self,
        shape: LedgerShape,  # noqa: ARG002
        ensemble: Ensemble,
        position: int,  # noqa: ARG002
        excluded: frozenset[BookieId],
    ) -> BookieId | None:
        """Any writable bookie that is allowed."""
        candidates = [b for b in self._writable if b not in excluded and b not in ensemble]
        return self._rng.choice(candidates) if candidates else None
