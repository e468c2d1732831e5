"""What tests of entry logs, indexes and ledger stores share: entries, a disk that counts, calls that wait."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from simbookie.storage.base import DurableCallback, ReadCallback, StorageError, WriteCacheFull
from simbookie.storage.db.key_value import KeyValueStore, OpenDatabase
from simbookie.storage.db.log_database import LogDatabase
from simbookie.storage.disk.simulated import SimulatedDisk, SimulatedFile
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.ledger_store import Checkpoint, CrashPoint, LedgerStore, OnStep, no_step
from simbookie.world.errors import UnhandledErrors
from simbookie.world.loop import VirtualTimeLoop

__all__ = [
    "CountingDisk",
    "Owner",
    "add",
    "done",
    "entry",
    "folders",
    "outcome",
    "read_by",
    "run_to_crash_point",
    "small_databases",
]


def entry(ledger_id: int, entry_id: int, payload: bytes = b"", lac: int = -1) -> bytes:
    """An entry as a bookie is sent it."""
    return struct.pack(">qqqq", ledger_id, entry_id, lac, 0) + payload


class CountingDisk(SimulatedDisk):
    """Counts the syncs of each file."""

    def __init__(
        self, rng: Random | None = None, *, sync_covers_names: bool = True, capacity_bytes: int = 1 << 30
    ) -> None:
        super().__init__(rng, sync_covers_names=sync_covers_names, capacity_bytes=capacity_bytes)
        self.syncs = Counter[str]()

    def sync_pages(self, path: str, pages: object, on_done: DurableCallback, token: object) -> None:
        self.syncs[path] += 1
        super().sync_pages(path, pages, on_done, token)  # type: ignore[arg-type]

    def content(self, path: str) -> bytes:
        """What is in a file."""
        file: SimulatedFile = self.open(path)
        return file.read_now(0, file.size)


def small_databases(on_step: OnStep = no_step) -> Callable[[Folder], OpenDatabase]:
    """Databases that begin new files often."""

    def of_folder(folder: Folder) -> OpenDatabase:
        def open_log(name: str) -> KeyValueStore:
            return LogDatabase(Folder(folder.disk, folder.file(name)), file_bytes_min=300, on_step=on_step)

        return open_log

    return of_folder


class Owner:
    """The storage around a store, whose journal is a list and never loses anything."""

    def __init__(self) -> None:
        #: What was done to the store, and up to where that need not be done again.
        self.journal: list[Callable[[], None]] = []
        self.mark = 0
        self.requested: list[Checkpoint] = []
        self.room = 0
        self.failures: list[StorageError] = []

    def take_checkpoint(self) -> Checkpoint:
        """Everything in the journal."""
        return ((0, len(self.journal)),)

    def request_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Take note."""
        self.requested.append(checkpoint)

    def room_was_made(self) -> None:
        """Take note."""
        self.room += 1

    def flush_failed(self, error: StorageError) -> None:
        """Take note."""
        self.failures.append(error)

    async def make_checkpoints(self, store: LedgerStore) -> None:
        """Make those that were requested."""
        while self.requested:
            checkpoint = self.requested.pop(0)
            await done(partial(store.checkpoint, checkpoint))
            self.mark = max(self.mark, checkpoint[0][1])

    async def replay(self) -> None:
        """Do again what may be lost."""
        for record in self.journal[self.mark :]:
            while True:
                try:
                    record()
                    break
                except WriteCacheFull:
                    await asyncio.sleep(1)


async def add(store: LedgerStore, ledger_id: int, entry_id: int, body: bytes) -> None:
    """Add as one who waits for room."""
    while True:
        try:
            store.add_entry(ledger_id, entry_id, body)
        except WriteCacheFull:
            await asyncio.sleep(0.01)
        else:
            return


def folders(*disks: SimulatedDisk, path: str = "ledgers/current", seed: int = 1) -> Folders:
    """A folder on each disk."""
    return Folders([Folder(disk, path) for disk in disks], Random(seed))


async def outcome(call: Callable[[DurableCallback, object], None]) -> StorageError | None:
    """What a flush, or something alike, calls back with."""
    future = asyncio.get_running_loop().create_future()

    def on_done(token: object, error: StorageError | None) -> None:
        assert token == "token"
        future.set_result(error)

    call(on_done, "token")
    assert not future.done(), "called back before the call returned"
    found: StorageError | None = await future
    return found


def run_to_crash_point(story: Callable[[], Coroutine[Any, Any, None]]) -> str | None:
    """Run ``story``; the crash point that ended it, if one did, in whatever callback it came."""
    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(story())
    except CrashPoint as reached:
        return str(reached)
    except UnhandledErrors as errors:
        if not isinstance(errors.__cause__, CrashPoint):
            raise
        return str(errors.__cause__)
    finally:
        loop.close()
    return None


async def done(call: Callable[[DurableCallback, object], None]) -> None:
    """Wait for what must not fail."""
    error = await outcome(call)
    assert error is None, error


async def read_by(call: Callable[[ReadCallback, object], None]) -> bytes | StorageError | None:
    """The entry that a read brings, None for its absence, or why that cannot be told."""
    future = asyncio.get_running_loop().create_future()

    def on_read(token: object, body: bytes | None, error: StorageError | None) -> None:
        assert token == "token"
        future.set_result(error if error is not None else body)

    call(on_read, "token")
    found: bytes | StorageError | None = await future
    return found
