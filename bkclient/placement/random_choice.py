"""Placement by chance alone."""

from __future__ import annotations

import random

from bkclient.metadata.base import BookieSets
from bkclient.metadata.model import BookieId, Ensemble

__all__ = ["RandomPlacement"]


class RandomPlacement:
    """Every writable bookie is as good as any other; ``rng`` decides."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._writable: tuple[BookieId, ...] = ()

    def update(self, bookies: BookieSets) -> None:
        """Choose among ``bookies.writable`` from now on."""
        self._writable = tuple(sorted(bookies.writable))

    def new_ensemble(self, size: int) -> Ensemble | None:
        """A random sample in random order."""
        if len(self._writable) < size:
            return None
        return tuple(self._rng.sample(self._writable, size))

    def replace(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:  # noqa: ARG002
        """Any writable bookie that is allowed."""
        candidates = [b for b in self._writable if b not in excluded and b not in ensemble]
        return self._rng.choice(candidates) if candidates else None
