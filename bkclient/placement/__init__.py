"""Ensemble placement policies, and what they need to know of bookies."""

from bkclient.placement.base import (
    Adherence,
    BookieHealth,
    Features,
    LedgerShape,
    PlacementDefaults,
    PlacementPolicy,
    RepairingPolicy,
)
from bkclient.placement.location_script import ScriptLocations
from bkclient.placement.locations import (
    FixedLocations,
    FunctionLocations,
    LocationListeners,
    NetworkLocations,
    ResolvingLocations,
    locations_from_pulsar,
)
from bkclient.placement.rack_aware import RackAwarePlacement
from bkclient.placement.random_choice import RandomPlacement
from bkclient.placement.region_aware import RegionAwarePlacement
from bkclient.placement.watcher import BookieWatcher
from bkclient.placement.weights import BookieWeights
from bkclient.placement.zone_aware import ZoneAwarePlacement

__all__ = [
    "Adherence",
    "BookieHealth",
    "BookieWatcher",
    "BookieWeights",
    "Features",
    "FixedLocations",
    "FunctionLocations",
    "LedgerShape",
    "LocationListeners",
    "NetworkLocations",
    "PlacementDefaults",
    "PlacementPolicy",
    "RackAwarePlacement",
    "RandomPlacement",
    "RegionAwarePlacement",
    "RepairingPolicy",
    "ResolvingLocations",
    "ScriptLocations",
    "ZoneAwarePlacement",
    "locations_from_pulsar",
]
