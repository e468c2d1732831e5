"""Region-aware placement: ensembles are spread over regions, so that one of them may fail.

Positions are dealt to regions evenly and in turns, the own one first. With *durability* it is a promise: no
``min_regions - 1`` regions together hold an ack quorum of any entry, so what is acknowledged survives the loss of that many.
Without, it is the best that can be done with the regions there are. Within a region copies of one entry are put into different
racks as far as possible. With one region left placement is rack-aware, with none it is random.

The Java client calls every ensemble adherent here; this one judges: see :meth:`RegionAwarePlacement.adherence`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Final

from bkclient.errors import ArgumentError
from bkclient.ledger import BookieId, Ensemble
from bkclient.metadata.base import BookieSets
from bkclient.placement.base import Adherence, BookieHealth, Features, LedgerShape, no_features
from bkclient.placement.locations import DEFAULT_REGION_AND_RACK, NetworkLocations, region_of
from bkclient.placement.rack_aware import RackAwarePlacement
from bkclient.placement.racks import groups_in, keeps, spans
from bkclient.placement.random_choice import RandomPlacement
from bkclient.placement.read_order import ReadOrder
from bkclient.placement.search import NOWHERE, Admits, Slots, any_kin, fill, windows_of
from bkclient.placement.topology import Topology
from bkclient.placement.weights import BookieWeights, draw

__all__ = ["DISABLE_DURABILITY_FEATURE", "DISALLOW_REGION_FEATURE", "RegionAwarePlacement", "survives_loss_of"]

DISABLE_DURABILITY_FEATURE: Final = "repp_disable_durability_enforcement"
DISALLOW_REGION_FEATURE: Final = "{region}.disallow_bookie_placement"


def survives_loss_of(regions: int, ack_quorum_size: int) -> Admits:
    """The rule that no ``regions`` regions together hold ``ack_quorum_size`` copies of an entry."""

    def admits(slots: Slots) -> bool:
        counts = sorted(Counter(slot for slot in slots if slot is not None).values(), reverse=True)
        return sum(counts[:regions]) < ack_quorum_size

    return admits


class RegionAwarePlacement:
    """Spreads ensembles over regions (section 8.6 of the rules).

    Only ``regions`` are written to, if any are named; and only then ``min_regions`` holds, in replacements as well if
    ``enforce_in_replace``. ``own_location`` is where the client is; ``prefer_own`` tells whether that matters to placement too,
    or to reading only. ``min_racks`` and ``enforce_racks`` are for rack-aware placement, when one region is left.

    Features, by their names in BookKeeper, switch durability off or keep new ledgers out of a region at run time. Raises
    :class:`~bkclient.errors.ArgumentError` for fewer regions than the minimum.
    """

    def __init__(
        self,
        rng: random.Random,
        locations: NetworkLocations | None = None,
        *,
        regions: Sequence[str] = (),
        min_regions: int = 2,
        enforce_in_replace: bool = True,
        validate: bool = True,
        own_location: str | None = None,
        prefer_own: bool = True,
        features: Features = no_features,
        weights: BookieWeights | None = None,
        min_racks: int = 2,
        enforce_racks: bool = False,
        reorder_threshold: int = 0,
        reorder_randomly: bool = False,
    ) -> None:
        self._regions = tuple(dict.fromkeys(regions))
        if validate and self._regions and len(self._regions) < min_regions:
            raise ArgumentError(
                f"regions_to_write must name at least min_regions_for_durability ({min_regions}) regions, "
                f"got {len(self._regions)}: {', '.join(self._regions)}"
            )
        self._min_regions = min_regions if self._regions else 0
        self._enforce_in_replace = enforce_in_replace
        self._validate = validate
        self._own_region = None if own_location is None else region_of(own_location)
        self._first_region = self._own_region if prefer_own else None
        self._features = features
        self._rng = rng
        self._weights = weights
        self._topology = Topology(locations, DEFAULT_REGION_AND_RACK)
        self._random = RandomPlacement(rng, weights)
        self._within_one = RackAwarePlacement(
            rng,
            locations,
            min_racks=min_racks,
            enforce=enforce_racks,
            own_location=own_location if prefer_own else None,
            weights=weights,
        )
        self._order = ReadOrder(self._topology, rng, threshold=reorder_threshold, shuffles=reorder_randomly)

    def update(self, bookies: BookieSets) -> None:
        """The registered bookies changed."""
        self._topology.update(bookies)
        self._random.update(bookies)
        self._within_one.update(bookies)

    def check(self, shape: LedgerShape) -> None:
        """Raise :class:`~bkclient.errors.ArgumentError` for sizes that the minimum of regions rules out."""
        size, quorum, acks = shape.ensemble_size, shape.write_quorum_size, shape.ack_quorum_size
        least = self._durable_regions()
        if acks < least:
            raise ArgumentError(f"ack_quorum_size must be >= {least} to span as many regions, got {acks}")
        if not acks <= quorum <= size:
            raise ArgumentError(
                f"ensemble_size >= write_quorum_size >= ack_quorum_size must hold, got {size}, {quorum} and {acks}"
            )
        if least > 0 and acks <= quorum - quorum // least:
            raise ArgumentError(
                f"ack_quorum_size must be > {quorum - quorum // least} with a write quorum of {quorum} over {least} regions, "
                f"so that an acknowledged entry is in each of them; got {acks}"
            )

    # Choosing ----------------------------------------------------------------------------------------------------

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[BookieId]) -> Ensemble | None:
        """An ensemble dealt to the available regions in turns; None if the bookies or regions do not suffice."""
        if self._validate:
            self.check(shape)
        by_region = self._by_region(excluded)
        if not by_region:
            return self._random.new_ensemble(shape, excluded)
        if len(by_region) == 1:
            outside = frozenset(self._topology.writable).difference(*by_region.values())
            return self._within_one.new_ensemble(shape, excluded | outside)
        capacity = {region: len(bookies) for region, bookies in by_region.items()}
        if sum(capacity.values()) < shape.ensemble_size:
            return None
        groups = self._deal(shape, _even_shares(capacity, shape.ensemble_size))
        if groups is None:
            groups = self._deal(shape, capacity)  # uneven, but durable
        return None if groups is None else self._members(groups, by_region, shape.write_quorum_size)

    def _deal(self, shape: LedgerShape, capacity: Mapping[str, int]) -> tuple[str, ...] | None:
        order = {region: number for number, region in enumerate(capacity)}

        def in_turns(position: int, region: str, slots: Slots) -> tuple[int, int]:
            last = next((p for p in range(position - 1, -1, -1) if slots[p] == region), -1)
            return last, order[region]

        slots: Slots = (None,) * shape.ensemble_size
        return fill(slots, capacity, shape.write_quorum_size, self._rule(shape), in_turns, kin=any_kin)

    def _members(
        self, groups: Sequence[str], by_region: Mapping[str, Sequence[BookieId]], write_quorum_size: int
    ) -> Ensemble:
        """Bookies of the regions dealt, copies of one entry in different racks where there are any."""
        left = {region: list(bookies) for region, bookies in by_region.items()}
        chosen: list[BookieId] = []
        racks: list[str] = []
        for position, region in enumerate(groups):
            near = [rack for p, rack in enumerate(racks) if _distance(p, position, len(groups)) < write_quorum_size]
            best = min(left[region], key=lambda bookie_id: near.count(self._place(bookie_id)))
            left[region].remove(best)
            chosen.append(best)
            racks.append(self._place(best))
        return tuple(chosen)

    def replace(
        self, shape: LedgerShape, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]
    ) -> BookieId | None:
        """From the same region, its rack first, else from any allowed one, as long as durability stays."""
        barred = excluded.union(ensemble)
        if not any(self._is_allowed(region_of(self._place(bookie_id))) for bookie_id in self._topology.writable):
            return self._random.replace(shape, ensemble, position, excluded)
        places = [self._place(bookie_id) for bookie_id in ensemble]
        regions = [region_of(place) if place else NOWHERE for place in places]
        rule = self._rule(shape)
        is_bound = self._enforce_in_replace and keeps(regions, shape.write_quorum_size, rule)
        windows = [w for w in windows_of(len(ensemble), shape.write_quorum_size) if position in w]
        others = [place for p, place in enumerate(places) if p != position]
        wanted: list[tuple[bool, int, bool, int, int, BookieId]] = []
        for turn, bookie_id in enumerate(chain.from_iterable(self._by_region(barred).values())):
            rack = self._place(bookie_id)
            slots = [region_of(rack) if p == position else region for p, region in enumerate(regions)]
            if is_bound and not all(rule([slots[p] for p in window]) for window in windows):
                continue
            is_elsewhere = slots[position] != regions[position]
            load = slots.count(slots[position]) if is_elsewhere else 0
            wanted.append((is_elsewhere, load, rack != places[position], others.count(rack), turn, bookie_id))
        return min(wanted)[-1] if wanted else None

    # Judging -----------------------------------------------------------------------------------------------------

    def adherence(self, shape: LedgerShape, ensemble: Ensemble) -> Adherence:
        """STRICT if every member is in a known region that is written to, durability holds, and no entry is in one region only.

        The last as far as there is a second region to choose from. FAIL otherwise.
        """
        regions = [region_of(place) if (place := self._place(bookie_id)) else NOWHERE for bookie_id in ensemble]
        allowed = self._regions or tuple(dict.fromkeys(region_of(self._place(b)) for b in self._topology.writable))
        is_known = all(region in allowed if self._regions else region != NOWHERE for region in regions)
        least = min(2, len(allowed), shape.write_quorum_size)
        obeys = (
            is_known
            and keeps(regions, shape.write_quorum_size, self._rule(shape))
            and keeps(regions, shape.write_quorum_size, spans(least))
        )
        return Adherence.MEETS_STRICT if obeys else Adherence.FAIL

    def covers_fault_domains(self, shape: LedgerShape, bookies: Collection[BookieId]) -> bool:
        """Whether ``bookies`` span the minimum of regions, where there is one."""
        regions = [region_of(place) if (place := self._place(bookie_id)) else NOWHERE for bookie_id in bookies]
        return groups_in(regions) >= min(self._durable_regions(), shape.write_quorum_size)

    def read_order(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
        """The own region first, another one third at the latest; by health alone if the own one is not known."""
        if self._own_region is None:
            return self._order.by_health(write_set, health)
        return self._order.by_region(write_set, health, self._is_local)

    def _is_local(self, bookie_id: BookieId) -> bool:
        place = self._place(bookie_id)
        return bool(place) and region_of(place) == self._own_region

    def _rule(self, shape: LedgerShape) -> Admits:
        return survives_loss_of(max(self._durable_regions() - 1, 0), shape.ack_quorum_size)

    def _durable_regions(self) -> int:
        return 0 if self._features(DISABLE_DURABILITY_FEATURE) else self._min_regions

    def _place(self, bookie_id: BookieId) -> str:
        return self._topology.place_of(bookie_id) or NOWHERE

    def _by_region(self, excluded: frozenset[BookieId]) -> dict[str, list[BookieId]]:
        """What may be chosen: bookies in the order of their draw, by region; the own region first."""
        found: dict[str, list[BookieId]] = {}
        for bookie_id in draw(self._rng, self._topology.candidates(excluded), self._weights):
            found.setdefault(region_of(self._place(bookie_id)), []).append(bookie_id)
        order = sorted(found, key=lambda region: region != self._first_region)
        return {region: found[region] for region in order if self._is_allowed(region)}

    def _is_allowed(self, region: str) -> bool:
        is_listed = not self._regions or region in self._regions
        return is_listed and not self._features(DISALLOW_REGION_FEATURE.format(region=region))


def _even_shares(capacity: Mapping[str, int], total: int) -> dict[str, int]:
    """``total`` dealt to regions in turns, none above its capacity; a region that has no more is passed over."""
    shares = dict.fromkeys(capacity, 0)
    while total > 0:
        for region, most in capacity.items():
            if total > 0 and shares[region] < most:
                shares[region] += 1
                total -= 1
    return shares


def _distance(one: int, other: int, size: int) -> int:
    """How far apart two positions of a ring are."""
    return min((one - other) % size, (other - one) % size)
