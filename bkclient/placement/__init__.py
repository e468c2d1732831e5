"""Ensemble placement policies."""

from bkclient.placement.base import PlacementPolicy
from bkclient.placement.random_choice import RandomPlacement

__all__ = ["PlacementPolicy", "RandomPlacement"]
