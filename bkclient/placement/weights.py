"""Drawing bookies: by chance alone, or with chances that follow their free disk space.

All policies draw the same way: they ask for the candidates in a random order and take the first that suits. With weights
the order is that of an exponential race: a bookie of twice the weight comes first twice as often, and among those that
remain the same holds again. One draw costs one random number per candidate.

A cluster to which an empty bookie was added would send every new ledger there; so no weight counts for more than a multiple of
the median. A bookie whose space is not known yet, or is none, counts as the fullest known one: a measurement that fails must
not shut it out.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from bkclient.ledger import BookieId

__all__ = ["BookieWeights", "capped_weights", "draw"]


def capped_weights(weights: Mapping[BookieId, float], max_multiple: float) -> dict[BookieId, float]:
    """The chances of bookies, from their raw weights.

    None above ``max_multiple`` times the median of all, unless that is 0; 0 counts as the smallest weight that is not, and as
    1 if there is none.
    """
    least = min((weight for weight in weights.values() if weight > 0), default=1.0)
    cap = max_multiple * median(weights.values()) if weights else 0.0
    raised = {bookie_id: weight if weight > 0 else least for bookie_id, weight in weights.items()}
    return {bookie_id: min(weight, cap) if cap > 0 else weight for bookie_id, weight in raised.items()}


class BookieWeights:
    """What is known of the free disk space of bookies, in bytes, and the chances that follow from it.

    Holds the registered writable bookies only, so it is as large as the cluster.
    """

    def __init__(self, max_multiple: float) -> None:
        self._max_multiple = max_multiple
        self._free: dict[BookieId, int | None] = {}
        self._chances: dict[BookieId, float] | None = None

    def retain(self, bookies: Iterable[BookieId]) -> None:
        """``bookies`` are the writable ones now; the others are forgotten."""
        self._free = {bookie_id: self._free.get(bookie_id) for bookie_id in bookies}
        self._chances = None

    def learn(self, bookie_id: BookieId, free_bytes: int) -> None:
        """A bookie told its free space; nothing happens if it is not writable any more."""
        if bookie_id in self._free:
            self._free[bookie_id] = max(free_bytes, 0)
            self._chances = None

    def bookies(self) -> tuple[BookieId, ...]:
        """The writable bookies."""
        return tuple(self._free)

    def unknown(self) -> tuple[BookieId, ...]:
        """The writable bookies that have not told yet."""
        return tuple(bookie_id for bookie_id, free in self._free.items() if free is None)

    def chances(self, bookies: Sequence[BookieId]) -> list[float]:
        """Relative chances of ``bookies``, each above 0."""
        if self._chances is None:
            raw = {bookie_id: float(free or 0) for bookie_id, free in self._free.items()}
            self._chances = capped_weights(raw, self._max_multiple)
        least = min(self._chances.values(), default=1.0)
        return [self._chances.get(bookie_id, least) for bookie_id in bookies]


def draw(rng: random.Random, candidates: Sequence[BookieId], weights: BookieWeights | None) -> list[BookieId]:
    """All of ``candidates`` in a random order; with ``weights`` the likelier ones tend to the front."""
    if weights is None:
        return rng.sample(candidates, len(candidates))
    finish = [
        (rng.expovariate(chance), bookie_id)
        for bookie_id, chance in zip(candidates, weights.chances(candidates), strict=True)
    ]
    return [bookie_id for _, bookie_id in sorted(finish)]
