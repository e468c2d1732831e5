"""Zone-aware placement: every write set is in several zones, and copies in one zone are in several upgrade domains.

A location here is ``/zone/upgrade-domain``; bookies whose location has another shape count as not located and are not chosen.
Strict placement gives every write set the number of zones wished for if the bookies allow that at all, else as many as they
allow down to the minimum, else nothing. Placement that is not strict is random, and only judged.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

from bkclient.errors import ArgumentError
from bkclient.ledger import BookieId, Ensemble
from bkclient.metadata.base import BookieSets
from bkclient.placement.base import Adherence, LedgerShape, PlacementDefaults
from bkclient.placement.locations import NetworkLocations, region_of
from bkclient.placement.racks import groups_in, keeps
from bkclient.placement.random_choice import RandomPlacement
from bkclient.placement.search import NOWHERE, Admits, Slots, fill, hand_out
from bkclient.placement.topology import Topology
from bkclient.placement.weights import BookieWeights, draw

__all__ = ["DEFAULT_ZONE", "ZoneAwarePlacement", "zones_and_domains"]

DEFAULT_ZONE = "/default-zone/default-upgradedomain"


def zones_and_domains(zones: int) -> Admits:
    """The rule that a write set is in ``zones`` zones, and its copies in one zone are not all in one upgrade domain."""

    def admits(slots: Slots) -> bool:
        domains: dict[str, list[str]] = {}
        for slot in slots:
            if slot:
                domains.setdefault(region_of(slot), []).append(slot)
        open_positions = sum(slot is None for slot in slots)
        missing = max(0, zones - len(domains))
        single = sum(len(members) > 1 and len(set(members)) == 1 for members in domains.values())
        return missing + single <= open_positions

    return admits


class ZoneAwarePlacement(PlacementDefaults):
    """Spreads write sets over ``min_zones`` to ``desired_zones`` zones (section 8.7 of the rules); leaves reads alone.

    Raises :class:`~bkclient.errors.ArgumentError` if the minimum is above the number wished for.
    """

    def __init__(
        self,
        rng: random.Random,
        locations: NetworkLocations | None = None,
        *,
        min_zones: int = 2,
        desired_zones: int = 3,
        strict: bool = True,
        weights: BookieWeights | None = None,
    ) -> None:
        if min_zones > desired_zones:
            raise ArgumentError(f"min_zones must be <= desired_zones, got {min_zones} and {desired_zones}")
        self._rng = rng
        self._weights = weights
        self._min_zones = min_zones
        self._desired_zones = desired_zones
        self._strict = strict
        self._topology = Topology(locations, DEFAULT_ZONE, usable=lambda location: location.count("/") == 2)
        self._random = RandomPlacement(rng, weights)

    def update(self, bookies: BookieSets) -> None:
        """The registered bookies changed."""
        self._topology.update(bookies)
        self._random.update(bookies)

    def check(self, shape: LedgerShape) -> None:
        """Raise :class:`~bkclient.errors.ArgumentError` for sizes that strict placement cannot serve."""
        if shape.ensemble_size % shape.write_quorum_size:
            raise ArgumentError(
                "ensemble_size must be a multiple of write_quorum_size for strict zone-aware placement, "
                f"got {shape.ensemble_size} and {shape.write_quorum_size}"
            )
        if shape.write_quorum_size <= self._min_zones:
            raise ArgumentError(
                f"write_quorum_size must be > {self._min_zones} for strict zone-aware placement over as many zones, "
                f"got {shape.write_quorum_size}"
            )

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[BookieId]) -> Ensemble | None:
        """An ensemble with as many zones per write set as possible; None if that is below the minimum."""
        if not self._strict:
            return self._random.new_ensemble(shape, excluded)
        self.check(shape)
        size = shape.ensemble_size
        return self._filled((None,) * size, ("",) * size, shape, self._candidates(excluded))

    def replace(
        self, shape: LedgerShape, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]
    ) -> BookieId | None:
        """A bookie with which the write sets have as many zones as possible; None if that is below the minimum.

        A member that is not located counts for no zone. Write sets without ``position`` are taken as they are.
        """
        if not self._strict:
            return self._random.replace(shape, ensemble, position, excluded)
        slots = [None if p == position else place for p, place in enumerate(self._places(ensemble))]
        filled = self._filled(slots, ensemble, shape, self._candidates(excluded.union(ensemble)))
        return None if filled is None else filled[position]

    def _filled(
        self, slots: Slots, ensemble: Ensemble, shape: LedgerShape, candidates: list[BookieId]
    ) -> Ensemble | None:
        drawn = draw(self._rng, candidates, self._weights)
        turn = {bookie_id: number for number, bookie_id in enumerate(drawn)}
        members = self._topology.places(drawn)
        taken = {place: slots.count(place) for place in members}
        capacity = {place: len(bookies) for place, bookies in members.items()}
        wished = min(shape.write_quorum_size, self._desired_zones)

        def preference(position: int, place: str, slots: Slots) -> tuple[int, int, int]:
            """The nearer a neighbour in the same zone, the less; then the more neighbours in the same domain; then as drawn."""
            near = list(_neighbours(position, slots, self._desired_zones - 1))
            same_zone = [distance for distance, other in near if region_of(other) == region_of(place)]
            in_domain = sum(other == place for _, other in near)
            next_drawn = turn[members[place][slots.count(place) - taken[place]]]
            return -min(same_zone, default=self._desired_zones), in_domain, next_drawn

        for zones in range(wished, self._min_zones - 1, -1):
            rule = zones_and_domains(zones)
            groups = fill(slots, capacity, shape.write_quorum_size, rule, preference, kin=region_of, settled=False)
            if groups is not None:
                new = hand_out(groups, slots, members)
                return tuple(n or old for n, old in zip(new, ensemble, strict=True))
        return None

    def adherence(self, shape: LedgerShape, ensemble: Ensemble) -> Adherence:
        """STRICT with the zones wished for in every write set, SOFT with the minimum; else FAIL."""
        places = self._places(ensemble)
        quorum = shape.write_quorum_size
        if NOWHERE in places or shape.ensemble_size % quorum or quorum <= self._min_zones:
            return Adherence.FAIL
        if not keeps(places, quorum, zones_and_domains(self._min_zones)):
            return Adherence.FAIL
        is_strict = keeps(places, quorum, zones_and_domains(min(quorum, self._desired_zones)))
        return Adherence.MEETS_STRICT if is_strict else Adherence.MEETS_SOFT

    def covers_fault_domains(self, shape: LedgerShape, bookies: Collection[BookieId]) -> bool:
        """Whether ``bookies`` are an ack quorum and span the minimum of zones."""
        zones = [region_of(place) for place in self._places(tuple(bookies)) if place]
        needed = min(shape.write_quorum_size, self._min_zones)
        return len(set(bookies)) >= shape.ack_quorum_size and groups_in(zones) >= needed

    def _candidates(self, excluded: frozenset[BookieId]) -> list[BookieId]:
        return [b for b in self._topology.candidates(excluded) if self._topology.is_located(b)]

    def _places(self, bookies: Ensemble) -> list[str]:
        located = [bookie_id if self._topology.is_located(bookie_id) else None for bookie_id in bookies]
        return [NOWHERE if b is None else self._topology.place_of(b) or NOWHERE for b in located]


def _neighbours(position: int, slots: Slots, reach: int) -> Iterator[tuple[int, str]]:
    """The places up to ``reach`` positions away on the ring, with their distances."""
    for distance in range(1, min(reach, len(slots) // 2) + 1):
        for other in dict.fromkeys(((position - distance) % len(slots), (position + distance) % len(slots))):
            if place := slots[other]:
                yield distance, place
