"""Ensemble placement policies."""

from bkclient.placement.base import Adherence, BookieHealth, LedgerShape, PlacementDefaults, PlacementPolicy
from bkclient.placement.random_choice import RandomPlacement
from bkclient.placement.watcher import BookieWatcher

__all__ = [
    "Adherence",
    "BookieHealth",
    "BookieWatcher",
    "LedgerShape",
    "PlacementDefaults",
    "PlacementPolicy",
    "RandomPlacement",
]
