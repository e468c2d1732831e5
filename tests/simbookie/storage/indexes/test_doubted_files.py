"""Index files whose content was found at the start: nothing is removed on their strength before they are written again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from unittest import mock

import pytest

from simbookie.crashes.runs import crash_run
from simbookie.storage.base import CrashMode
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.indexes.index_file import index_name
from simbookie.storage.indexes.ledger_cache import LedgerCache
from tests.simbookie.storage.stores import CountingDisk, done, folders, outcome

Virtually = Callable[[Callable[[], Any]], None]
PATH = f"ledgers/current/{index_name(7)}"
OLD, NEW = 0x1_0000_0404, 0x2_0000_0404
FAR = 3 * 1024


def opened(disk: CountingDisk) -> LedgerCache:
    cache = LedgerCache(folders(disk))
    cache.open()
    return cache


async def whose_sync_failed(disk: CountingDisk) -> LedgerCache:
    """After a kill: locations are moved and the ledger is fenced in the page cache, which counts as written and is not."""
    cache = opened(disk)
    cache.create(7, b"key")
    cache.put(7, 0, OLD)
    cache.put(7, FAR, OLD)
    await done(cache.flush)
    for entry_id in (0, FAR):
        cache.move(7, entry_id, 1, NEW)
    cache.set_fenced(7)
    disk.faults.plant(DiskFault(DiskOperation.SYNC, DiskFaultKind.ERROR, PATH))
    assert await outcome(cache.flush) is not None
    cache.crash()
    disk.crash(CrashMode.PROCESS)
    found = opened(disk)
    assert [found.get(7, entry_id) for entry_id in (0, FAR)] == [NEW, NEW]
    return found


def after_power_loss(disk: CountingDisk, cache: LedgerCache) -> LedgerCache:
    cache.crash()
    disk.crash(CrashMode.POWER_LOSS)
    return opened(disk)


@pytest.mark.parametrize("is_written_meanwhile", [False, True])
def test_a_doubted_file_is_durable_after_the_next_flush_though_a_sync_of_it_failed_before_a_kill(
    virtually: Virtually, *, is_written_meanwhile: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk(Random(1))
        cache = await whose_sync_failed(disk)
        if is_written_meanwhile:  # and synced, which makes what came before no more durable
            cache.put(7, 1, NEW)
            await done(cache.flush)
        cache.doubt([7, 8])
        await done(cache.flush)
        syncs = disk.syncs[PATH]
        cache.doubt([7])
        await done(cache.flush)
        assert disk.syncs[PATH] == syncs, "once is enough"
        last = after_power_loss(disk, cache)
        assert [last.get(7, entry_id) for entry_id in (0, FAR)] == [NEW, NEW]
        assert last.header(7).fenced

    virtually(story)


def test_without_doubt_the_disk_has_what_it_had(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk(Random(1))
        cache = await whose_sync_failed(disk)
        last = after_power_loss(disk, cache)
        assert [last.get(7, entry_id) for entry_id in (0, FAR)] == [OLD, OLD]

    virtually(story)


def test_a_fence_that_is_replayed_is_written_again_though_the_file_was_synced_since(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk(Random(1))
        cache = await whose_sync_failed(disk)
        cache.put(7, 1, NEW)
        await done(cache.flush)
        assert not cache.set_fenced(7), "it is, by what the page cache has"
        await done(cache.flush)
        assert after_power_loss(disk, cache).header(7).fenced

    virtually(story)


def test_the_file_of_a_ledger_that_was_made_since_is_beyond_doubt(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk(Random(1))
        cache = opened(disk)
        cache.create(7, b"key")
        cache.put(7, 0, OLD)
        await done(cache.flush)
        cache.doubt([7])
        assert not cache.is_dirty

    virtually(story)


def test_a_crash_run_that_comes_to_it_violates_nothing() -> None:
    def synced_only(self: LedgerCache, ledger_id: int, _file: object) -> None:
        self._note_write(ledger_id)
        self._doubted.discard(ledger_id)

    assert crash_run("interleaved", 601).violations == ()
    with mock.patch.object(LedgerCache, "_write_again", synced_only):
        assert {each.invariant for each in crash_run("interleaved", 601).violations} == {"I10"}
