"""What the tests of the simulated metadata store share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from bkclient.errors import (
    BookKeeperError,
)
from bkclient.ledger import Fragment, LedgerMetadata, Versioned
from bkclient.metadata.base import BookieAddress
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.metadata_service import (
    METADATA_HOST,
    MetadataAction,
    MetadataConfig,
)

LEDGER = LedgerMetadata(7, 1, 1, 1, (Fragment(0, ("b0",)),))
MOVED = LEDGER.with_ensemble(5, ("b1",))
ADDRESS = BookieAddress("b0", 3181)
CONFIG = MetadataConfig(latency_s=0.001, jitter_s=0.001, timeout_s=10.0, session_timeout_s=20.0)


class Bench:
    """Two hosts with a store each; the truth is in ``world.metadata.memory``."""

    def __init__(self, config: MetadataConfig = CONFIG, seed: int = 1) -> None:
        self.world = World(seed, metadata=config)
        self.service = self.world.metadata
        self.loop = self.world.loop
        self.host, self.other_host = Host(self.world, "a"), Host(self.world, "b")
        self.store = SimulatedMetadataStore(self.world, self.host)
        self.other = SimulatedMetadataStore(self.world, self.other_host)

    def play(self, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        """Run ``story`` on the first host."""

        async def program() -> None:
            await story(self)

        with self.world:
            self.world.run(lambda: self.world.join(self.host.spawn(program)))

    def direct(self, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        """Run ``story`` as the director."""
        with self.world:
            self.world.run(lambda: story(self))

    @property
    def truth(self) -> Versioned:
        return self.service.memory.read(7)

    def hit(self, operation: str, action: MetadataAction, limit: int | None = 1) -> Any:
        return self.service.intercept(lambda call: call.operation == operation, action, limit=limit)


async def outcome(call: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await call
    except BookKeeperError as error:
        return type(error)


def cut(bench: Bench, direction: str) -> None:
    there, back = ("a", METADATA_HOST), (METADATA_HOST, "a")
    bench.world.network.block(*(there if direction == "there" else back))
