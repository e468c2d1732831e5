"""Telling stories of the contract that every driver of a metadata service holds, in a simulated world."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

from bkclient.metadata.base import MetadataStore
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import SimulatedMetadataStore

__all__ = ["tell"]

Story = Callable[..., Coroutine[Any, Any, None]]


def tell(world: World, story: Story, **parameters: Any) -> None:
    """Run a story that wants a ``store``, or ``open_session`` that opens several; each is a session of a host of its own."""
    hosts = itertools.count(1)

    def session() -> SimulatedMetadataStore:
        return SimulatedMetadataStore(world, Host(world, f"host-{next(hosts)}"))

    async def open_session() -> MetadataStore:
        return session()

    offers: dict[str, Callable[[], Any]] = {"store": session, "open_session": lambda: open_session}
    wanted = {name: offers[name]() for name in inspect.signature(story).parameters if name in offers}

    async def main() -> None:
        await story(**wanted, **parameters)

    world.run(main)
