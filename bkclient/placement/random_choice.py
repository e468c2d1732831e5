"""Placement by chance alone, or weighted by free disk space."""

from __future__ import annotations

import random

from bkclient.ledger import BookieId, Ensemble
from bkclient.metadata.base import BookieSets
from bkclient.placement.base import LedgerShape, PlacementDefaults
from bkclient.placement.weights import BookieWeights, draw

__all__ = ["RandomPlacement"]


class RandomPlacement(PlacementDefaults):
    """Every writable bookie is as good as any other; ``rng`` decides, with chances by ``weights`` if there are any."""

    def __init__(self, rng: random.Random, weights: BookieWeights | None = None) -> None:
        self._rng = rng
        self._weights = weights
        self._writable: tuple[BookieId, ...] = ()

    def update(self, bookies: BookieSets) -> None:
        """Choose among ``bookies.writable`` from now on."""
        self._writable = tuple(sorted(bookies.writable))

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[BookieId]) -> Ensemble | None:
        """A random sample in random order."""
        candidates = [b for b in self._writable if b not in excluded]
        if len(candidates) < shape.ensemble_size:
            return None
        if self._weights is not None:
            return tuple(draw(self._rng, candidates, self._weights)[: shape.ensemble_size])
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
        if not candidates:
            return None
        if self._weights is not None:
            return draw(self._rng, candidates, self._weights)[0]
        return self._rng.choice(candidates)
