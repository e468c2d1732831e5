"""A replay that has more entries than the store has room for, on a disk that has become slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, StorageError, WriteCacheFull
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.quirks import REPAIRED, Quirk
from tests.simbookie.storage.journals import Acknowledged, journal_settings
from tests.simbookie.storage.stores import entry, read_by

Virtually = Callable[[Callable[[], Any]], None]
ENTRIES = 60


class SlowStart:
    """A bookie's storage whose write caches have room for a few of its journal's entries."""

    def __init__(self, quirks: frozenset[Quirk]) -> None:
        self.disk = SimulatedDisk(Random(1), costs=DiskCosts(sync_s=0.001))
        self.quirks = quirks
        self.fatal: list[StorageError] = []
        self.opened: list[bool] = []
        self.storage = self._storage(write_cache_bytes=1 << 20)

    def _storage(self, *, write_cache_bytes: int) -> JournaledStorage:
        ledgers = Folder(self.disk, "ledgers/current")
        store = DbLedgerStore(
            Folders([ledgers], Random(1)), DbConfig(write_cache_bytes=write_cache_bytes), quirks=self.quirks
        )
        return JournaledStorage(
            [Folder(self.disk, "journal/current")],
            [ledgers],
            store,
            JournaledConfig(journal=journal_settings(group_wait_max_s=0), flush_interval_s=3600),
            quirks=self.quirks,
            on_fatal=self.fatal.append,
        )

    def open(self) -> None:
        self.opened.clear()
        self.storage.open(lambda: self.opened.append(True), lambda _: None)

    async def killed_with_entries(self, sync_s: float) -> None:
        """Entries are acknowledged and in the journal alone; from now on a sync takes so long, and the caches are small."""
        self.open()
        await asyncio.sleep(0.1)
        self.storage.set_master_key(1, b"key")
        acknowledged = Acknowledged()
        for number in range(ENTRIES):
            self.storage.add_entry(1, number, entry(1, number, bytes(100)), acknowledged, number)
        await asyncio.sleep(1)
        assert acknowledged.tokens == list(range(ENTRIES))
        self.storage.crash(CrashMode.POWER_LOSS)
        self.disk.costs = DiskCosts(sync_s=sync_s)
        self.storage = self._storage(write_cache_bytes=2048)

    async def has_everything(self) -> bool:
        found = [await read_by(partial(self.storage.read_entry, 1, number)) for number in range(ENTRIES)]
        return found == [entry(1, number, bytes(100)) for number in range(ENTRIES)]


def test_a_replay_waits_for_room_however_long_that_takes(virtually: Virtually) -> None:
    async def story() -> None:
        start = SlowStart(REPAIRED)
        await start.killed_with_entries(sync_s=8.0)
        start.open()
        await asyncio.sleep(60)
        assert start.opened == [], "a flush takes longer than an add may wait, and there are several"
        await asyncio.sleep(600)
        assert start.opened == [True]
        assert start.fatal == []
        assert await start.has_everything()

    virtually(story)


@pytest.mark.parametrize(("sync_s", "gives_up"), [(8.0, True), (0.01, False)])
def test_bookkeepers_replay_gives_up_and_the_bookie_does_not_start(
    virtually: Virtually, sync_s: float, *, gives_up: bool
) -> None:
    async def story() -> None:
        start = SlowStart(frozenset({Quirk.REPLAY_GIVES_UP}))
        await start.killed_with_entries(sync_s)
        start.open()
        await asyncio.sleep(11)
        assert [type(error) for error in start.fatal] == [WriteCacheFull] * gives_up
        assert start.opened == [True] * (not gives_up)
        if gives_up:
            assert "the store full for 10 s" in str(start.fatal[0])
            start.storage.crash(CrashMode.PROCESS)
            await asyncio.sleep(60)
        else:
            assert await start.has_everything()

    virtually(story)
