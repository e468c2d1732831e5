"""Which bookies are where, as one policy sees them."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable
from typing import Final

from bkclient.ledger import BookieId
from bkclient.metadata.base import BookieSets
from bkclient.placement.locations import NetworkLocations, is_location

__all__ = ["Topology"]

LAST_KNOWN_MAX: Final = 10_000
"""Locations of bookies remembered; beyond this the oldest are forgotten."""

_log = logging.getLogger(__name__)


class Topology:
    """The registered bookies and their places.

    A bookie is where ``locations`` says; if they do not know, where they last said, as long as that is remembered; else
    it is at ``default``. ``usable``, if given, tells which paths make sense to the policy; others count as not known.
    """

    def __init__(
        self,
        locations: NetworkLocations | None,
        default: str,
        *,
        usable: Callable[[str], bool] | None = None,
    ) -> None:
        self.default = default
        #: The registered bookies, sorted; replaced as a whole with every change (PL-17).
        self.writable: tuple[BookieId, ...] = ()
        self.read_only: frozenset[BookieId] = frozenset()
        self._writable_set: frozenset[BookieId] = frozenset()
        self._locations = locations
        self._usable = usable
        self._last_known: dict[BookieId, str] = {}
        self._places: dict[BookieId, str] = {}
        self._complained: dict[BookieId, None] = {}
        if locations is not None:
            _follow(locations, weakref.ref(self))

    def update(self, bookies: BookieSets) -> None:
        """The registered bookies changed."""
        self.writable = tuple(sorted(bookies.writable))
        self._writable_set = frozenset(bookies.writable)
        self.read_only = frozenset(bookies.read_only)
        self.locate()

    @property
    def is_blind(self) -> bool:
        """Whether there is no bookie whose place could be known."""
        return self._locations is None

    def is_writable(self, bookie_id: BookieId) -> bool:
        """Whether the bookie is registered as writable."""
        return bookie_id in self._writable_set

    def place_of(self, bookie_id: BookieId) -> str | None:
        """Where the bookie is; None for one that is not registered and was never located."""
        return self._places.get(bookie_id) or self._located(bookie_id)

    def is_located(self, bookie_id: BookieId) -> bool:
        """Whether the place of the bookie is more than the default."""
        return (self.place_of(bookie_id) or self.default) != self.default

    def places(self, bookies: Iterable[BookieId]) -> dict[str, list[BookieId]]:
        """Registered ``bookies`` by place, places and bookies in the order of their first appearance."""
        found: dict[str, list[BookieId]] = {}
        for bookie_id in bookies:
            found.setdefault(self._places[bookie_id], []).append(bookie_id)
        return found

    def candidates(self, excluded: Iterable[BookieId] = ()) -> list[BookieId]:
        """The writable bookies that are not ``excluded``, sorted."""
        barred = frozenset(excluded)
        return [bookie_id for bookie_id in self.writable if bookie_id not in barred]

    def locate(self) -> None:
        """Ask again where the registered bookies are."""
        registered = (*self.writable, *sorted(self.read_only))
        self._places = {bookie_id: self._located(bookie_id) or self.default for bookie_id in registered}

    def _located(self, bookie_id: BookieId) -> str | None:
        found = self._ask(bookie_id)
        if found is None:
            return self._last_known.get(bookie_id)
        if self._last_known.get(bookie_id) != found:
            self._last_known.pop(bookie_id, None)
            self._last_known[bookie_id] = found
            if len(self._last_known) > LAST_KNOWN_MAX:
                del self._last_known[next(iter(self._last_known))]
        return found

    def _ask(self, bookie_id: BookieId) -> str | None:
        if self._locations is None:
            return None
        try:
            found = self._locations.location_of(bookie_id)
        except Exception as error:  # noqa: BLE001 - a plug-in that fails must not end the watch of the registry
            self._complain(bookie_id, f"its location cannot be asked for: {error!r}")
            return None
        if found is None or (is_location(found) and (self._usable is None or self._usable(found))):
            return found
        self._complain(bookie_id, f"its location {found!r} is of no use to this policy")
        return None

    def _complain(self, bookie_id: BookieId, what: str) -> None:
        if bookie_id not in self._complained and len(self._complained) < LAST_KNOWN_MAX:
            self._complained[bookie_id] = None
            _log.warning("bookie %s: %s", bookie_id, what)


def _follow(locations: NetworkLocations, follower: weakref.ref[Topology]) -> None:
    """Tell a topology of changes for as long as somebody uses it; locations may outlive many clients."""

    def on_change() -> None:
        topology = follower()
        if topology is None:
            cancel()
        else:
            topology.locate()

    cancel = locations.on_change(on_change)
