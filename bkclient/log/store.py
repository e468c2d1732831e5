"""A log's manifest in the metadata store, and the changes of it by programs that do not own the log."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

import anyio

from bkclient import BookKeeper
from bkclient._backoff import Backoff
from bkclient.coordination.names import check_name
from bkclient.errors import BookKeeperError, MetadataOutcomeUnknown
from bkclient.log.errors import NoSuchLog, naming
from bkclient.log.machine.changes import ManifestChange
from bkclient.log.machine.codec import ManifestDecoder, encode_manifest
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.machine.update import ManifestUpdate, ReadManifest, VersionedManifest, WriteManifest
from bkclient.metadata.base import Cancel

__all__ = ["LOGS", "ManifestStore"]

LOGS: Final = "logs"
"""The directory of all logs, below the root of the cluster."""
_RETRIES: Final = 5
_BACKOFF: Final = Backoff(0.05, 1.0)


class _Machine(Protocol):
    """What asks for a manifest to be read or written."""

    def on_read(self, value: VersionedManifest | None) -> None: ...

    def on_written(self) -> None: ...

    def on_not_written(self) -> None: ...


class ManifestStore:
    """The manifest of the log ``name``, by the session of ``client``."""

    def __init__(self, client: BookKeeper, name: str, rng: Random) -> None:
        self._rng: Final = rng
        self.client: Final = client
        self.name: Final = check_name("name", name)
        self.path: Final = f"{LOGS}/{name}"
        self.tree: Final = client.node_tree()
        #: Knows what was read or made last: a manifest of thousands of ledgers takes long to decode.
        self._decoder: Final = ManifestDecoder()

    def now_ms(self) -> int | None:
        """The time by the client's clock, in milliseconds since 1970; None if it was made without one."""
        clock = self.client.wall_clock
        return None if clock is None else int(clock() * 1000)

    def new_id(self) -> str:
        """A text that no other program comes up with."""
        return f"{self._rng.getrandbits(128):032x}"

    def of_partition(self, partition: int) -> ManifestStore:
        """The manifest of a partition, which is a log by itself."""
        return ManifestStore(self.client, f"{self.name}-partition-{partition}", self._rng)

    async def read(self) -> VersionedManifest | None:
        """What is stored; None if there never was a log of this name."""
        node = await self.tree.get(self.path)
        return None if node is None else VersionedManifest(self._decoder.decode(node.data), node.version)

    async def manifest(self) -> LogManifest:
        """The manifest of a log that exists; :class:`~bkclient.log.errors.NoSuchLog` if there is none."""
        value = await self.read()
        if value is None or value.manifest.is_deleted:
            raise naming(self.name, NoSuchLog("there is no log with this name"))
        return value.manifest

    async def carry_out(self, action: ReadManifest | WriteManifest, machine: _Machine) -> None:
        """Read or write, and tell ``machine``, which sees to a write of which nobody can tell whether it was made."""
        if isinstance(action, ReadManifest):
            machine.on_read(await self.read())
        elif await self._write(action):
            machine.on_written()
        else:
            machine.on_not_written()

    async def _write(self, action: WriteManifest) -> bool:
        """Whether a write is known to have been made."""
        data = encode_manifest(action.manifest)
        self._decoder.know(data, action.manifest)
        try:
            if action.version is None:
                return await self.tree.create(self.path, data) is not None
            return await self.tree.write(self.path, data, action.version)
        except MetadataOutcomeUnknown:
            return False

    def watch(self, listener: Callable[[], None]) -> Cancel:
        """Call ``listener`` soon, and after every change."""
        return self.tree.watch(self.path, listener)

    async def change(self, change: ManifestChange) -> LogManifest:
        """Make a change, past conflicts and outages of a few seconds; the manifest with it. Raises why it cannot be made."""
        update = ManifestUpdate(change)
        failures = 0
        while update.action is not None:
            try:
                await self.carry_out(update.action, update)
            except BookKeeperError as error:
                failures += 1
                if not error.retriable or failures > _RETRIES:
                    raise
                await anyio.sleep(_BACKOFF.nth(failures - 1))
        if update.error is not None:
            raise naming(self.name, update.error)
        assert update.value is not None, "the change was made to something"
        return update.value.manifest
