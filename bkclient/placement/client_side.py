"""Everything that one client has for placement: its policy, its view of the bookies, and the background work for both.

What is not switched on costs nothing: no task runs for it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

import anyio
from anyio.abc import TaskGroup

from bkclient._news import wait_for_news
from bkclient.config import ClientConfig
from bkclient.errors import ArgumentError, BookKeeperError
from bkclient.metadata.base import BookieRegistry
from bkclient.metadata.tree import HasNodeTree
from bkclient.observability.stats import QUARANTINED, ClientStats
from bkclient.placement.base import Features, PlacementPolicy, no_features
from bkclient.placement.disk_info import DiskInfo, FreeSpace
from bkclient.placement.factory import locations_from_config, policy_from_config
from bkclient.placement.locations import NetworkLocations, ResolvingLocations
from bkclient.placement.quarantine import Quarantine
from bkclient.placement.watcher import BookieWatcher
from bkclient.placement.weights import BookieWeights

__all__ = ["HEALTH_CHECK_DISABLED", "RESOLVE_RETRY_S", "ClientPlacement"]

RESOLVE_RETRY_S: Final = 60.0
"""How long after locations could not be resolved they are asked for again."""

HEALTH_CHECK_DISABLED: Final = "disableHealthCheck"
"""The node that switches health checks off for all clients of a cluster by being there."""

_log = logging.getLogger(__name__)


class ClientPlacement:
    """Placement as ``config`` says, or by ``policy`` if the application has its own.

    ``locations`` are for the policy of the configuration, in place of its script. Raises
    :class:`~bkclient.errors.ArgumentError` for settings that contradict each other, and for locations beside a policy of the
    application, which has its own.
    """

    def __init__(
        self,
        config: ClientConfig,
        rng: random.Random,
        *,
        policy: PlacementPolicy | None = None,
        locations: NetworkLocations | None = None,
        features: Features = no_features,
        stats: ClientStats | None = None,
    ) -> None:
        if policy is not None and locations is not None:
            raise ArgumentError("network locations are for the policies of this package; give them to your own policy")
        self._config = config
        self._stats = stats
        self._locations = locations if policy is not None or locations is not None else locations_from_config(config)
        self._weights: BookieWeights | None = None
        if policy is None and config.placement.disk_weighted:
            self._weights = BookieWeights(config.placement.max_weight_multiple)
        self._quarantine: Quarantine | None = None
        if config.health.enabled:
            self._quarantine = Quarantine(
                rng,
                threshold=config.health.error_threshold_per_interval,
                duration_s=config.health.quarantine_s,
                ratio=config.health.quarantine_ratio,
                counts_connections=config.health.count_connection_errors,
            )

        def configured() -> PlacementPolicy:
            return policy_from_config(config, rng, locations=self._locations, features=features, weights=self._weights)

        stabilizes = policy is None and config.placement.topology_stabilize_period_s > 0
        #: Through which everything else in the client chooses bookies.
        self.watcher = BookieWatcher(
            policy or configured(),
            fallback=configured() if stabilizes else None,
            stabilize_s=config.placement.topology_stabilize_period_s,
            quarantine=self._quarantine,
            weights=self._weights,
            stats=stats,
        )

    async def start(self, registry: BookieRegistry, free_space: FreeSpace, tasks: TaskGroup) -> None:
        """Learn the bookies and where they are, and start what has to go on; it ends with ``tasks``.

        ``free_space`` asks a bookie, if bookies are weighted by that.
        Waits for locations that have to be looked up, as long as those take themselves to give up.
        """
        self.watcher.update(await registry.bookies())
        locations = _to_resolve(self._locations)
        if locations is not None:
            changed = asyncio.Event()
            self.watcher.listeners.append(changed.set)
            is_complete = await self._resolve(locations)
            tasks.start_soon(self._keep_resolving, locations, changed, is_complete, name="network locations")
        if self._weights is not None:
            disk_info = DiskInfo(
                free_space,
                self._weights,
                interval_s=self._config.placement.bookie_info_interval_s,
                retry_interval_s=self._config.placement.bookie_info_retry_interval_s,
            )
            self.watcher.listeners.append(disk_info.on_bookies_changed)
            tasks.start_soon(disk_info.run, name="disk space of bookies")
        if self._quarantine is not None:
            tasks.start_soon(self._check_health, registry, self._quarantine, name="health of bookies")

    async def _resolve(self, locations: ResolvingLocations) -> bool:
        bookies = self.watcher.bookies
        return await locations.resolve((*bookies.writable, *bookies.read_only))

    async def _keep_resolving(
        self,
        locations: ResolvingLocations,
        changed: asyncio.Event,
        is_complete: bool,  # noqa: FBT001 - private
    ) -> None:
        while True:
            await wait_for_news(changed, None if is_complete else RESOLVE_RETRY_S)
            changed.clear()
            is_complete = await self._resolve(locations)

    async def _check_health(self, registry: BookieRegistry, quarantine: Quarantine) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await anyio.sleep(self._config.health.check_interval_s)
            faulty = quarantine.end_interval()
            if not faulty:
                continue
            if not await _is_enabled(registry):
                quarantine.release_all()
                continue
            put = quarantine.put(faulty, loop.time())
            if put and self._stats is not None:
                self._stats.event(QUARANTINED, put)


def _to_resolve(locations: object) -> ResolvingLocations | None:
    # Nearly all clients have none, and to ask with isinstance takes far longer.
    return None if locations is None or not isinstance(locations, ResolvingLocations) else locations


async def _is_enabled(registry: BookieRegistry) -> bool:
    """Whether the cluster allows health checks; it does if it does not say, or cannot be asked."""
    if not isinstance(registry, HasNodeTree):
        return True
    try:
        return await registry.node_tree().get(HEALTH_CHECK_DISABLED) is None
    except BookKeeperError as error:
        _log.warning("whether health checks are switched off cannot be told: %s", error)
        return True
