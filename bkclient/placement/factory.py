"""The placement policy that a configuration asks for."""

from __future__ import annotations

import logging
import os
import random

from bkclient.config import ClientConfig
from bkclient.errors import ArgumentError
from bkclient.placement.base import Features, PlacementPolicy, no_features
from bkclient.placement.location_script import ScriptLocations
from bkclient.placement.locations import NetworkLocations, is_location
from bkclient.placement.rack_aware import RackAwarePlacement
from bkclient.placement.random_choice import RandomPlacement
from bkclient.placement.region_aware import RegionAwarePlacement
from bkclient.placement.weights import BookieWeights
from bkclient.placement.zone_aware import ZoneAwarePlacement

__all__ = ["locations_from_config", "policy_from_config"]

_log = logging.getLogger(__name__)


def locations_from_config(config: ClientConfig) -> NetworkLocations | None:
    """The locations that ``network_location_script`` knows, None if there is no script.

    A script that cannot be run leaves every bookie in the default rack, with a warning; if racks are enforced that would make
    every ledger impossible, so it raises :class:`~bkclient.errors.ArgumentError`.
    """
    script = config.network_location_script
    if not script:
        return None
    if os.access(script, os.X_OK):
        return ScriptLocations(script)
    if config.placement_policy == "rack-aware" and config.enforce_min_racks_per_write_quorum:
        raise ArgumentError(f"racks are enforced, and network_location_script {script!r} is not an executable file")
    _log.warning("network_location_script %r is not an executable file: no bookie has a known location", script)
    return None


def policy_from_config(
    config: ClientConfig,
    rng: random.Random,
    *,
    locations: NetworkLocations | None = None,
    features: Features = no_features,
    weights: BookieWeights | None = None,
) -> PlacementPolicy:
    """The policy that ``config`` names, choosing by ``rng`` among bookies that are at ``locations``.

    ``weights`` are what weighted placement goes by; without them all bookies are alike. Raises
    :class:`~bkclient.errors.ArgumentError` for settings that contradict each other.
    """
    own_location = config.client_network_location
    if own_location is not None and not is_location(own_location):
        raise ArgumentError(f"client_network_location {own_location!r} is not a path such as /region/rack")
    prefer_own = not config.ignore_local_node_in_placement
    if config.placement_policy == "random":
        return RandomPlacement(rng, weights)
    if config.placement_policy == "zone-aware":
        return ZoneAwarePlacement(
            rng,
            locations,
            min_zones=config.min_zones_per_write_quorum,
            desired_zones=config.desired_zones_per_write_quorum,
            strict=config.enforce_strict_zone_aware_placement,
            weights=weights,
        )
    if config.placement_policy == "region-aware":
        return RegionAwarePlacement(
            rng,
            locations,
            regions=config.regions_to_write,
            min_regions=config.min_regions_for_durability,
            enforce_in_replace=config.enforce_durability_in_replace,
            validate=config.validate_regions,
            own_location=own_location,
            prefer_own=prefer_own,
            features=features,
            weights=weights,
            min_racks=config.min_racks_per_write_quorum,
            enforce_racks=config.enforce_min_racks_per_write_quorum,
            reorder_threshold=config.reorder_threshold_pending_requests,
            reorder_randomly=config.reorder_reads_randomly,
        )
    return RackAwarePlacement(
        rng,
        locations,
        min_racks=config.min_racks_per_write_quorum,
        enforce=config.enforce_min_racks_per_write_quorum,
        own_location=own_location if prefer_own else None,
        weights=weights,
        reorder_threshold=config.reorder_threshold_pending_requests,
        reorder_randomly=config.reorder_reads_randomly,
    )
