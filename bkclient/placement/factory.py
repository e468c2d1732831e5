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
    """The locations that the script of ``config`` knows, None if there is no script.

    A script that cannot be run leaves every bookie in the default rack, with a warning; if racks are enforced that would make
    every ledger impossible, so it raises :class:`~bkclient.errors.ArgumentError`.
    """
    placement = config.placement
    script = placement.location_script
    if not script:
        return None
    if os.access(script, os.X_OK):
        return ScriptLocations(script)
    if placement.policy == "rack-aware" and placement.enforce_min_racks_per_write_quorum:
        raise ArgumentError(f"racks are enforced, and placement.location_script {script!r} is not an executable file")
    _log.warning("placement.location_script %r is not an executable file: no bookie has a known location", script)
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
    placement, reading = config.placement, config.reading
    own_location = placement.client_location
    if own_location is not None and not is_location(own_location):
        raise ArgumentError(f"placement.client_location must be a path such as /region/rack, got {own_location!r}")
    prefer_own = not placement.ignore_local_node
    if placement.policy == "random":
        return RandomPlacement(rng, weights)
    if placement.policy == "zone-aware":
        return ZoneAwarePlacement(
            rng,
            locations,
            min_zones=placement.min_zones_per_write_quorum,
            desired_zones=placement.desired_zones_per_write_quorum,
            strict=placement.enforce_strict_zones,
            weights=weights,
        )
    if placement.policy == "region-aware":
        return RegionAwarePlacement(
            rng,
            locations,
            regions=placement.regions_to_write,
            min_regions=placement.min_regions_for_durability,
            enforce_in_replace=placement.enforce_durability_in_replace,
            validate=placement.validate_regions,
            own_location=own_location,
            prefer_own=prefer_own,
            features=features,
            weights=weights,
            min_racks=placement.min_racks_per_write_quorum,
            enforce_racks=placement.enforce_min_racks_per_write_quorum,
            reorder_threshold=reading.reorder_threshold_pending_requests,
            reorder_randomly=reading.reorder_randomly,
        )
    return RackAwarePlacement(
        rng,
        locations,
        min_racks=placement.min_racks_per_write_quorum,
        enforce=placement.enforce_min_racks_per_write_quorum,
        own_location=own_location if prefer_own else None,
        weights=weights,
        reorder_threshold=reading.reorder_threshold_pending_requests,
        reorder_randomly=reading.reorder_randomly,
    )
