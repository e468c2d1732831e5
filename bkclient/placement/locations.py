"""Where bookies are in the network: ``/region/rack`` paths, and the plug-ins that know them.

The whole path is the *rack* of a bookie, its first part the *region* (or *zone*). Policies ask without waiting, so a plug-in
answers from memory; one that has to look elsewhere also is a :class:`ResolvingLocations`, and the client has it look whenever
bookies appear. A location that is not known is None, and what that means is up to the policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from bkclient.errors import ArgumentError
from bkclient.ledger import BookieId
from bkclient.metadata.base import Cancel

__all__ = [
    "DEFAULT_RACK",
    "DEFAULT_REGION_AND_RACK",
    "FixedLocations",
    "FunctionLocations",
    "LocationListeners",
    "NetworkLocations",
    "ResolvingLocations",
    "is_location",
    "locations_from_pulsar",
    "region_of",
]

DEFAULT_RACK: Final = "/default-rack"
DEFAULT_REGION_AND_RACK: Final = "/default-region/default-rack"

_LOCATION: Final = re.compile(r"(/[^/\s]+)+")
_LOCATION_MAX_CHARS: Final = 1024


def is_location(text: object) -> bool:
    """Whether ``text`` is a path of one or more names, each after a slash."""
    return isinstance(text, str) and len(text) <= _LOCATION_MAX_CHARS and _LOCATION.fullmatch(text) is not None


def region_of(location: str) -> str:
    """The first name of a location: its region, or its zone."""
    return location.split("/", 2)[1]


class NetworkLocations(Protocol):
    """Knows where bookies are."""

    def location_of(self, bookie_id: BookieId) -> str | None:
        """The path of ``bookie_id``, None as long as it is not known. Must not wait."""
        ...

    def on_change(self, listener: Callable[[], None]) -> Cancel:
        """Call ``listener`` after a location was learned or changed, from the event loop."""
        ...


@runtime_checkable
class ResolvingLocations(Protocol):
    """Locations that have to be looked up."""

    async def resolve(self, bookies: Sequence[BookieId]) -> bool:
        """Look up those of ``bookies`` that are not known; tells whether all of them are now.

        Has a limit of time of its own and raises nothing but cancellation. The client calls it while it starts, when bookies
        appear, and now and then as long as it returns False.
        """
        ...


class LocationListeners:
    """The listeners of a plug-in; to inherit from."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}

    def on_change(self, listener: Callable[[], None]) -> Cancel:
        """Call ``listener`` after every change."""
        key = object()
        self._listeners[key] = listener

        def cancel() -> None:
            self._listeners.pop(key, None)

        return cancel

    def changed(self) -> None:
        """Tell every listener."""
        for listener in tuple(self._listeners.values()):
            listener()


class FixedLocations(LocationListeners):
    """Locations from a mapping by bookie id.

    :meth:`replace` puts another mapping in its place, for applications that learn of moves. Raises
    :class:`~bkclient.errors.ArgumentError` for a location that is no path.
    """

    def __init__(self, locations: Mapping[BookieId, str]) -> None:
        super().__init__()
        self._locations = _checked(locations)

    def location_of(self, bookie_id: BookieId) -> str | None:
        """What the mapping says."""
        return self._locations.get(bookie_id)

    def replace(self, locations: Mapping[BookieId, str]) -> None:
        """``locations`` hold from now on. A bookie they leave out stays where it was last known to be."""
        self._locations = _checked(locations)
        self.changed()


class FunctionLocations(LocationListeners):
    """Locations from a function of the bookie id, which returns None for what it does not know and must not wait.

    It is asked on every change of the registered bookies; call :meth:`changed` when its answers are others.
    """

    def __init__(self, function: Callable[[BookieId], str | None]) -> None:
        super().__init__()
        self._function = function

    def location_of(self, bookie_id: BookieId) -> str | None:
        """What the function says."""
        return self._function(bookie_id)


def locations_from_pulsar(racks: bytes) -> dict[BookieId, str]:
    """Locations from the znode ``/bookies`` in which Apache Pulsar keeps the racks of its bookies.

    Its content is JSON: groups of bookie ids, each with a ``rack``, which may lack the leading slash. Entries without a usable
    rack are left out. Raises :class:`~bkclient.errors.ArgumentError` for something else.
    """
    try:
        groups: Any = json.loads(racks or b"{}")
    except ValueError as error:
        raise ArgumentError(f"rack information is not JSON: {error}") from error
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        raise ArgumentError("rack information must be a JSON object of groups of bookies")
    found: dict[BookieId, str] = {}
    for group in groups.values():
        for bookie_id, info in group.items():
            rack = info.get("rack") if isinstance(info, dict) else None
            if isinstance(rack, str) and is_location(path := "/" + rack.strip("/")):
                found[bookie_id] = path
    return found


def _checked(locations: Mapping[BookieId, str]) -> dict[BookieId, str]:
    for bookie_id, location in locations.items():
        if not is_location(location):
            raise ArgumentError(
                f"location must be a path such as /region/rack, got {location!r}", bookie_id=str(bookie_id)
            )
    return dict(locations)
