"""Rack-aware placement, the default: every write set is in several racks, so that a rack may fail.

Where nothing is known of racks it chooses by chance alone, from the same random numbers as
:class:`~bkclient.placement.random_choice.RandomPlacement`. The minimum of racks is a wish by default: with too few racks or
bookies write sets span as many as they can. Enforced, an ensemble either obeys or does not come about, and bookies of which no
rack is known are left out.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from bkclient.ledger import BookieId, Ensemble
from bkclient.metadata.base import BookieSets
from bkclient.placement.base import Adherence, BookieHealth, LedgerShape
from bkclient.placement.locations import DEFAULT_RACK, NetworkLocations
from bkclient.placement.racks import RackChooser, groups_in, keeps, spans
from bkclient.placement.random_choice import RandomPlacement
from bkclient.placement.read_order import ReadOrder
from bkclient.placement.topology import Topology
from bkclient.placement.weights import BookieWeights

__all__ = ["RackAwarePlacement"]


class RackAwarePlacement:
    """Spreads every write set over ``min_racks`` racks, or as many as it has bookies (section 8.5 of the rules).

    ``own_location`` is the rack of the client, which the first bookie of an ensemble is taken from; None if it does not matter.
    ``reorder_threshold`` and ``reorder_randomly`` are about reading, see :class:`~bkclient.placement.read_order.ReadOrder`.
    """

    def __init__(
        self,
        rng: random.Random,
        locations: NetworkLocations | None = None,
        *,
        min_racks: int = 2,
        enforce: bool = False,
        own_location: str | None = None,
        weights: BookieWeights | None = None,
        reorder_threshold: int = 0,
        reorder_randomly: bool = False,
    ) -> None:
        self._topology = Topology(locations, DEFAULT_RACK)
        self._min_racks = min_racks
        self._enforce = enforce
        self._chooser = RackChooser(self._topology, rng, weights, own_location)
        self._random = RandomPlacement(rng, weights)
        self._order = ReadOrder(self._topology, rng, threshold=reorder_threshold, shuffles=reorder_randomly)

    def update(self, bookies: BookieSets) -> None:
        """The registered bookies changed."""
        self._topology.update(bookies)
        self._random.update(bookies)

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[BookieId]) -> Ensemble | None:
        """An ensemble whose write sets span the minimum of racks; unless enforced, as many as possible."""
        barred = self._barred(excluded)
        candidates = self._topology.candidates(barred)
        if len(candidates) < shape.ensemble_size:
            return None
        wanted = self._wanted(shape)
        if len(self._topology.places(candidates)) < 2:
            return None if self._enforce and wanted > 1 else self._random.new_ensemble(shape, barred)
        for least in range(wanted, self._accepted(wanted) - 1, -1):
            ensemble = self._chooser.ensemble(candidates, shape, least)
            if ensemble is not None:
                return ensemble
        return None

    def replace(
        self, shape: LedgerShape, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]
    ) -> BookieId | None:
        """From the same rack, else from one not used, else from any that keeps the minimum; unless enforced, any."""
        barred = self._barred(excluded.union(ensemble))
        candidates = self._topology.candidates(barred)
        if not self._enforce and len(self._topology.places(candidates)) < 2:
            return self._random.replace(shape, ensemble, position, barred)
        wanted = self._wanted(shape)
        for least in range(wanted, self._accepted(wanted) - 1, -1):
            bookie_id = self._chooser.replacement(candidates, shape, ensemble, position, least)
            if bookie_id is not None:
                return bookie_id
        return None

    def propose_repair(self, shape: LedgerShape, ensemble: Ensemble, excluded: frozenset[BookieId]) -> Ensemble | None:
        """An adherent ensemble with as few new bookies as possible; None without enough racks."""
        candidates = self._topology.candidates(self._barred(excluded.union(ensemble)))
        must_go = frozenset(p for p, b in enumerate(ensemble) if self._enforce and not self._topology.is_located(b))
        return self._chooser.repair(candidates, shape, ensemble, self._wanted(shape), must_go)

    def adherence(self, shape: LedgerShape, ensemble: Ensemble) -> Adherence:
        """STRICT if every write set spans the minimum of racks; if enforced, only of bookies whose rack is known.

        A client that was told of no racks, and is not to enforce any, has nothing to judge by, and calls all ensembles adherent
        (the Java client none, because a single rack never suffices).
        """
        if self._enforce and not all(map(self._topology.is_located, ensemble)):
            return Adherence.FAIL
        if self._topology.is_blind and not self._enforce:
            return Adherence.MEETS_STRICT
        places = self._chooser.places_of(ensemble)
        is_spread = keeps(places, shape.write_quorum_size, spans(self._wanted(shape)))
        return Adherence.MEETS_STRICT if is_spread else Adherence.FAIL

    def covers_fault_domains(self, shape: LedgerShape, bookies: Collection[BookieId]) -> bool:
        """Whether ``bookies`` span the minimum of racks."""
        return groups_in(self._chooser.places_of(tuple(bookies))) >= self._wanted(shape)

    @property
    def has_steady_read_order(self) -> bool:
        """Yes, unless replicas are shuffled or ordered by load, or somebody derived an order of his own from this one."""
        return self._order.is_steady and type(self).read_order is RackAwarePlacement.read_order

    def read_order(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
        """Healthy ones first."""
        return self._order.by_health(write_set, health)

    def _wanted(self, shape: LedgerShape) -> int:
        return min(shape.write_quorum_size, self._min_racks)

    def _accepted(self, wanted: int) -> int:
        return wanted if self._enforce else 1

    def _barred(self, excluded: frozenset[BookieId]) -> frozenset[BookieId]:
        if not self._enforce:
            return excluded
        return excluded.union(b for b in self._topology.writable if not self._topology.is_located(b))
