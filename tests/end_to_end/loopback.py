"""Clients and bookies over real TCP on the loopback interface, and a metadata service inside this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any, Self

import bkclient
from bkclient import BookKeeper, ClientConfig
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.security.auth import AuthProvider
from simbookie.cluster import LocalCluster
from simbookie.config import BookieConfig
from simbookie.server import ServerConfig
from simbookie.storage.memory import MemoryStorageConfig

__all__ = ["Loopback", "NewLoopback"]

_NUMBERS = itertools.count(1)


class Loopback:
    """A metadata service, bookies, and as many clients as a test asks for; everything ends with the test.

    Made inside the test's own loop, so that a test may choose the loop.
    """

    cluster: LocalCluster

    def __init__(
        self,
        bookies: int,
        *,
        config: BookieConfig | None = None,
        storage: MemoryStorageConfig | None = None,
        server: ServerConfig | None = None,
    ) -> None:
        self._name = f"end-to-end-{next(_NUMBERS)}"
        self.uri = f"mem://{self._name}"
        self._bookies = bookies
        self._options: dict[str, Any] = {"config": config, "storage": storage, "server": server}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.callback(MemoryMetadataService.forget, self._name)
        store = MemoryMetadataService.named(self._name).session(rng=Random(1))
        self._stack.push_async_callback(store.aclose)
        self.cluster = await self._stack.enter_async_context(LocalCluster(store, self._bookies, **self._options))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def client(self, *, auth: AuthProvider | None = None, **options: Any) -> BookKeeper:
        """A client with connections of its own; ``options`` are changes to a :class:`bkclient.ClientConfig`."""
        config = ClientConfig().with_changes(**options)
        return await self._stack.enter_async_context(
            bkclient.connect(self.uri, config=config, rng=Random(7), auth=auth)
        )


NewLoopback = Callable[..., Loopback]
