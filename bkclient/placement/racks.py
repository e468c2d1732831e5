"""Choosing bookies so that write sets span racks: what rack-aware placement, and region-aware placement within a region, do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, islice
from typing import Final

from bkclient.ledger import BookieId, Ensemble
from bkclient.placement.base import LedgerShape
from bkclient.placement.search import NOWHERE, Admits, Slots, any_kin, fill, hand_out, windows_of
from bkclient.placement.topology import Topology
from bkclient.placement.weights import BookieWeights, draw

__all__ = ["REPAIRS_MAX", "RackChooser", "groups_in", "keeps", "spans"]

REPAIRS_MAX: Final = 5000
"""Sets of positions tried for a repair; all of those of an ensemble of twelve."""


def groups_in(slots: Slots) -> int:
    """How many different groups are known among ``slots``."""
    return len({group for group in slots if group})


def spans(count: int) -> Admits:
    """The rule that a write set is in at least ``count`` different groups."""

    def admits(slots: Slots) -> bool:
        return groups_in(slots) + sum(group is None for group in slots) >= count

    return admits


def keeps(slots: Slots, write_quorum_size: int, admits: Admits) -> bool:
    """Whether every write set of an ensemble obeys a rule."""
    return all(admits([slots[p] for p in window]) for window in windows_of(len(slots), write_quorum_size))


class RackChooser:
    """Chooses among candidates that are registered in ``topology``; ``own_rack`` is where the client is, if it cares."""

    def __init__(
        self, topology: Topology, rng: random.Random, weights: BookieWeights | None, own_rack: str | None
    ) -> None:
        self._topology = topology
        self._rng = rng
        self._weights = weights
        self._own_rack = own_rack

    def places_of(self, ensemble: Sequence[BookieId]) -> tuple[str, ...]:
        """The rack of each member, :data:`NOWHERE` for those that are not known."""
        return tuple(self._topology.place_of(bookie_id) or NOWHERE for bookie_id in ensemble)

    def ensemble(self, candidates: Sequence[BookieId], shape: LedgerShape, least: int) -> Ensemble | None:
        """An ensemble whose write sets each span ``least`` racks; None if there is none.

        The first bookie is of the own rack if that has one, each next of another rack than its ``least`` - 1 predecessors if
        possible. Not of another one than all predecessors: that would load the bookies of small racks far more than
        others, for a spread that was not asked for.
        """
        slots: Slots = (None,) * shape.ensemble_size
        return self._filled(slots, ("",) * shape.ensemble_size, candidates, shape.write_quorum_size, least)

    def _filled(
        self, slots: Slots, ensemble: Ensemble, candidates: Sequence[BookieId], write_quorum_size: int, least: int
    ) -> Ensemble | None:
        """``ensemble`` with ``candidates`` where ``slots`` has no rack."""
        drawn = draw(self._rng, candidates, self._weights)
        turn = {bookie_id: number for number, bookie_id in enumerate(drawn)}
        members = self._topology.places(drawn)
        taken = {rack: slots.count(rack) for rack in members}

        def preference(position: int, rack: str, slots: Slots) -> tuple[bool, int]:
            if position == 0:
                avoided = self._own_rack is not None and rack != self._own_rack
            else:
                avoided = rack in slots[max(0, position - least + 1) : position]
            # Then as drawn, so that a rack is as likely as it has bookies left.
            return avoided, turn[members[rack][slots.count(rack) - taken[rack]]]

        capacity = {rack: len(bookies) for rack, bookies in members.items()}
        groups = fill(slots, capacity, write_quorum_size, spans(least), preference, kin=any_kin)
        if groups is None:
            return None
        filled = hand_out(groups, slots, members)
        return tuple(new or old for new, old in zip(filled, ensemble, strict=True))

    def replacement(
        self,
        candidates: Sequence[BookieId],
        shape: LedgerShape,
        ensemble: Ensemble,
        position: int,
        least: int,
    ) -> BookieId | None:
        """One of ``candidates`` that lets the write sets of ``position`` span ``least`` racks; None if there is none.

        From the rack of the bookie to be replaced if that suits, else from one that no remaining member is in, else from any.
        """
        slots = list(self.places_of(ensemble))
        old, slots[position] = slots[position], NOWHERE
        admits = spans(least)
        windows = [w for w in windows_of(len(slots), shape.write_quorum_size) if position in w]
        drawn = draw(self._rng, candidates, self._weights)
        turn = {bookie_id: number for number, bookie_id in enumerate(drawn)}
        suitable: list[tuple[int, int, BookieId]] = []
        for rack, bookies in self._topology.places(drawn).items():
            if all(admits([rack if p == position else slots[p] for p in window]) for window in windows):
                preference = 0 if rack == old else 1 if rack not in slots else 2
                suitable.append((preference, turn[bookies[0]], bookies[0]))
        return min(suitable)[2] if suitable else None

    def repair(
        self,
        candidates: Sequence[BookieId],
        shape: LedgerShape,
        ensemble: Ensemble,
        least: int,
        must_go: frozenset[int],
    ) -> Ensemble | None:
        """``ensemble`` with as few ``candidates`` in it as let every write set span ``least`` racks.

        Bookies at ``must_go`` are replaced in any case. None if there is no way, or none within :data:`REPAIRS_MAX` tries.
        """
        places = self.places_of(ensemble)
        fewest = len(must_go)
        positions = range(len(ensemble))
        ways = (
            w for count in range(fewest, len(ensemble) + 1) for w in combinations(positions, count) if must_go <= {*w}
        )
        for way in islice(ways, REPAIRS_MAX):
            slots = tuple(None if p in way else place for p, place in enumerate(places))
            repaired = self._filled(slots, ensemble, candidates, shape.write_quorum_size, least)
            if repaired is not None:
                return repaired
        return None
