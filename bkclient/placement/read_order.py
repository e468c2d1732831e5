"""In which order replicas are asked (section RO of the rules).

Striping alone would spread reads evenly, so the striped order stands as long as nothing speaks against it. What is known of a
replica puts it into a class, and classes are asked one after the other; within a class the striped order stays, however large
the write set is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import IntEnum

from bkclient.ledger import BookieId
from bkclient.placement.base import BookieHealth
from bkclient.placement.topology import Topology

__all__ = ["ReadOrder"]

#: Replicas of the own region that are asked before one of another region.
_LOCAL_FIRST = 2


class _Class(IntEnum):
    """Replicas of a lower class are asked first."""

    LOCAL = 1
    LOCAL_FAILED = 2
    REMOTE = 3
    REMOTE_FAILED = 4
    READ_ONLY = 5
    SLOW = 6
    UNAVAILABLE = 7


class ReadOrder:
    """Orders write sets by ``topology`` and by what the client knows of its bookies.

    With ``threshold`` above 0 the member with the fewest pending requests is asked first if the first one has ``threshold``
    more. ``shuffles`` puts healthy members of one class into a random order.
    """

    def __init__(self, topology: Topology, rng: random.Random, *, threshold: int = 0, shuffles: bool = False) -> None:
        self._topology = topology
        self._rng = rng
        self._threshold = threshold
        self._shuffles = shuffles

    @property
    def is_steady(self) -> bool:
        """Whether neither chance nor load decides: the same knowledge of the same bookies gives the same order."""
        return self._threshold == 0 and not self._shuffles

    def by_health(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
        """Rack-aware order."""
        members = self._least_busy_first(write_set, health)
        if not self._shuffles and all(
            self._is_registered(bookie_id) and not health.is_slow(bookie_id) for bookie_id in members
        ):
            return members
        return self._by_class(members, health, lambda _: True)

    def by_region(
        self, write_set: Sequence[BookieId], health: BookieHealth, is_local: Callable[[BookieId], bool]
    ) -> tuple[BookieId, ...]:
        """Region-aware order: after two replicas of the own region one of another is asked."""
        ordered = self._by_class(self._least_busy_first(write_set, health), health, is_local)
        healthy = [b for b in ordered if self._topology.is_writable(b) and not health.is_slow(b)]
        first_remote = next((bookie_id for bookie_id in healthy if not is_local(bookie_id)), None)
        if first_remote is None or ordered.index(first_remote) <= _LOCAL_FIRST:
            return ordered
        others = [bookie_id for bookie_id in ordered if bookie_id != first_remote]
        return (*others[:_LOCAL_FIRST], first_remote, *others[_LOCAL_FIRST:])

    def _is_registered(self, bookie_id: BookieId) -> bool:
        return self._topology.is_writable(bookie_id) or bookie_id in self._topology.read_only

    def _least_busy_first(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
        if self._threshold == 0 or not write_set:
            return tuple(write_set)
        pending = [health.pending_requests(bookie_id) for bookie_id in write_set]
        best = pending.index(min(pending))
        if best == 0 or pending[0] - pending[best] < self._threshold:
            return tuple(write_set)
        return (write_set[best], *write_set[:best], *write_set[best + 1 :])

    def _by_class(
        self, members: Sequence[BookieId], health: BookieHealth, is_local: Callable[[BookieId], bool]
    ) -> tuple[BookieId, ...]:
        keyed = [(*self._classify(bookie_id, health, is_local(bookie_id)), bookie_id) for bookie_id in members]
        keyed.sort(key=lambda item: item[:2])
        if not self._shuffles:
            return tuple(bookie_id for _, _, bookie_id in keyed)
        by_class: dict[_Class, list[BookieId]] = {}
        for kind, _, bookie_id in keyed:
            # Those that failed some time ago are writable ones like the others from here on.
            pool = _Class(kind - 1) if kind in (_Class.LOCAL_FAILED, _Class.REMOTE_FAILED) else kind
            by_class.setdefault(pool, []).append(bookie_id)
        for kind, bookies in by_class.items():
            if kind is not _Class.SLOW:
                self._rng.shuffle(bookies)
        return tuple(bookie_id for bookies in by_class.values() for bookie_id in bookies)

    def _classify(self, bookie_id: BookieId, health: BookieHealth, is_local: bool) -> tuple[_Class, int]:  # noqa: FBT001
        """The class of a replica, and its rank there; the less the earlier."""
        if not self._is_registered(bookie_id):
            return _Class.UNAVAILABLE, 0
        if health.is_slow(bookie_id):
            return _Class.SLOW, health.pending_requests(bookie_id)
        if not self._topology.is_writable(bookie_id):
            return _Class.READ_ONLY, 0
        failed_entry = health.last_failed_entry(bookie_id)
        if failed_entry is None:
            return (_Class.LOCAL if is_local else _Class.REMOTE), 0
        return (_Class.LOCAL_FAILED if is_local else _Class.REMOTE_FAILED), failed_entry
