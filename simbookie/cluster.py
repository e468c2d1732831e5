"""Several bookies in this process, each behind its own TCP port on the loopback interface.

For tests and examples: everything is real except the machines. Each bookie keeps its disk across :meth:`LocalCluster.kill` and
:meth:`LocalCluster.restart`, as a bookie on a machine of its own would. Bookies that must die for real are in
:mod:`simbookie.processes`.
"""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Self

from bkclient.metadata.base import MetadataStore
from bkclient.metadata.opening import open_store
from simbookie.bookie import Bookie
from simbookie.config import BookieConfig
from simbookie.server import BookieServer, ServerConfig
from simbookie.storage.base import CrashMode
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog

__all__ = ["LocalCluster", "memory_cluster"]

_NUMBERS = itertools.count(1)


@asynccontextmanager
async def memory_cluster(bookies: int = 3, *, storage: MemoryStorageConfig | None = None) -> AsyncIterator[str]:
    """A cluster inside this process, for a first try and for tests; yields its metadata URI.

    ::

        async with memory_cluster() as uri, bkclient.connect(uri) as bk:
            ...

    The bookies listen on ports of the loopback interface, the metadata are in memory; nothing of both is left after the block.
    """
    uri = f"mem://memory-cluster-{next(_NUMBERS)}"
    metadata = await open_store(uri, rng=random.Random(1))  # noqa: S311 - ids of ledgers are no secret
    async with aclosing(metadata), LocalCluster(metadata, bookies, storage=storage):
        yield uri


class LocalCluster:
    """``bookies`` bookies registered in ``metadata``, named after their ports; an asynchronous context manager.

    The metadata store stays the caller's: it is not closed here.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        bookies: int,
        *,
        host: str = "127.0.0.1",
        config: BookieConfig | None = None,
        storage: MemoryStorageConfig | None = None,
        server: ServerConfig | None = None,
    ) -> None:
        if bookies < 0:
            raise ValueError(f"a cluster cannot have {bookies} bookies")
        self._metadata = metadata
        self._size = bookies
        self._host = host
        self._config = config
        self._storage = storage
        self._server = server
        self._servers: dict[str, BookieServer] = {}

    @property
    def bookie_ids(self) -> tuple[str, ...]:
        """All bookies, dead ones included, in the order in which they were added."""
        return tuple(self._servers)

    def server(self, bookie_id: str) -> BookieServer:
        """The server of a bookie; ``KeyError`` if the cluster has none of this id."""
        return self._servers[bookie_id]

    def bookie(self, bookie_id: str) -> Bookie:
        """A bookie; ``KeyError`` if the cluster has none of this id."""
        return self._servers[bookie_id].bookie

    async def add(self, *, server: ServerConfig | None = None) -> str:
        """Start one more bookie, with a ``server`` configuration of its own if there is one; returns its id."""
        sock = socket.create_server((self._host, 0))
        try:
            bookie_id = f"{self._host}:{sock.getsockname()[1]}"
            bookie = Bookie(bookie_id, MemoryStorage(self._storage, RecordLog()), self._config)
            started = BookieServer(
                bookie, self._host, registry=self._metadata, config=server or self._server, sock=sock
            )
            await started.start()
        except BaseException:
            sock.close()
            raise
        self._servers[bookie_id] = started
        return bookie_id

    async def kill(self, bookie_id: str, mode: CrashMode = CrashMode.PROCESS) -> None:
        """Kill a bookie; its announcement goes as it would when its session expires."""
        self._servers[bookie_id].kill(mode)
        await self._metadata.unregister_bookie(bookie_id)

    async def stop(self, bookie_id: str) -> None:
        """Shut a bookie down in order."""
        await self._servers[bookie_id].aclose()

    async def restart(self, bookie_id: str) -> None:
        """Start a bookie that was killed or stopped, at its old address with what its disk kept."""
        await self._servers[bookie_id].start()

    async def start(self) -> None:
        """Start all bookies."""
        for _ in range(self._size):
            await self.add()

    async def aclose(self) -> None:
        """Shut every living bookie down. Idempotent."""
        for server in self._servers.values():
            await server.aclose()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
