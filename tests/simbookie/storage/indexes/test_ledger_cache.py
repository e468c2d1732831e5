"""Index files and the cache over them, on a simulated disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode, StorageIOError
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.indexes.index_file import HEADER_SIZE, HeaderFull, IndexDamaged, IndexHeader, index_name
from simbookie.storage.indexes.ledger_cache import IndexConfig, LedgerCache
from simbookie.storage.ledger_store import CrashPoint
from simbookie.storage.quirks import FAITHFUL, Quirk
from simbookie.world.loop import VirtualTimeLoop
from tests.simbookie.storage.stores import CountingDisk, done, folders, outcome, run_to_crash_point

Virtually = Callable[[Callable[[], Any]], None]
PATH = "ledgers/current"
LAC = b"l" * 32


def opened(disk: CountingDisk, config: IndexConfig | None = None, **settings: Any) -> LedgerCache:
    cache = LedgerCache(folders(disk), config, **settings)
    cache.open()
    return cache


def crash(disk: CountingDisk, cache: LedgerCache, mode: CrashMode = CrashMode.POWER_LOSS) -> None:
    cache.crash()
    disk.crash(mode)


def index(disk: CountingDisk, ledger_id: int) -> bytes:
    return disk.content(f"{PATH}/{index_name(ledger_id)}")


def test_a_location_is_at_the_entrys_place_behind_the_header(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk)
        cache.create(7, b"key")
        cache.put(7, 1, 0x1_0000_0404)
        cache.put(7, 1025, 0x2_0000_0404)
        assert disk.names(f"{PATH}/0/7") == [], "nothing is written before a flush"
        await done(cache.flush)
        content = index(disk, 7)
        assert content[:HEADER_SIZE] == IndexHeader(b"key").encode()
        assert content[HEADER_SIZE + 8 : HEADER_SIZE + 16] == bytes.fromhex("0000000100000404")
        assert content[HEADER_SIZE + 8192 + 8 : HEADER_SIZE + 8192 + 16] == bytes.fromhex("0000000200000404")
        assert len(content) == HEADER_SIZE + 2 * 8192
        assert sum(map(bool, content[HEADER_SIZE:])) == 6

    virtually(story)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("found_at_start", [True, False])
def test_a_ledger_that_goes_before_its_name_is_durable_does_not_end_all_flushes(
    tmp_path: Path, in_memory: bool, found_at_start: bool
) -> None:
    """Its folder goes with it, if no other ledger has a file there."""

    async def story() -> None:
        disk = CountingDisk() if in_memory else DirectoryDisk(tmp_path)
        places = Folders([Folder(disk, PATH)], Random(1))
        cache = LedgerCache(places, IndexConfig(pages_max=1))
        cache.open()
        for ledger_id in (7, 8):  # the page of the first is written to make room for the second
            cache.create(ledger_id, b"key")
            cache.put(ledger_id, 0, 5)
        if found_at_start:
            await done(cache.flush)
            cache.close()
            cache = LedgerCache(places, IndexConfig(pages_max=1))
            cache.open()
        assert disk.names(f"{PATH}/0/7") == ["7.idx"]
        cache.delete(7)
        assert disk.folders(f"{PATH}/0") == (["8"] if found_at_start else [])
        for entry_id in (1, 2):
            cache.put(8, entry_id, 6)
            await done(cache.flush)
        cache.close()

    asyncio.run(story())


def test_locations_are_found_in_memory_and_in_files(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk)
        cache.create(7, b"key")
        entries = {0: 5, 1023: 6, 1024: 7, 5000: 8}
        for entry_id, location in entries.items():
            cache.put(7, entry_id, location)
        await done(cache.flush)
        for view in (cache, opened(disk)):
            assert {entry_id: view.get(7, entry_id) for entry_id in (*entries, 1, 9999)} == entries | {1: 0, 9999: 0}
            assert dict(view.entries(7)) == entries
            assert view.last_entry(7) == 5000
            view.put(7, 2000, 9)
            view.put(7, 7000, 10)
            assert dict(view.entries(7)) == entries | {2000: 9, 7000: 10}
            assert view.last_entry(7) == 7000

    virtually(story)


def test_a_ledger_without_entries_has_no_last_one(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk)
        cache.create(7, b"key")
        assert cache.get(7, 0) == 0
        await done(cache.flush)
        for view in (cache, opened(disk)):
            assert (view.last_entry(7), list(view.entries(7)), view.get(7, 3)) == (-1, [], 0)

    virtually(story)


def test_hits_and_misses_are_counted(virtually: Virtually) -> None:
    async def story() -> None:
        cache = opened(CountingDisk())
        cache.create(7, b"key")
        for entry_id in (0, 1, 1023, 1024, 0, 2048):
            cache.put(7, entry_id, 1)
        assert (cache.hits, cache.misses) == (3, 3)

    virtually(story)


def test_clean_pages_go_in_the_order_of_their_last_use_and_dirty_ones_stay(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk, IndexConfig(pages_max=3))
        cache.create(7, b"key")
        for entry_id in (0, 1024, 2048):
            cache.put(7, entry_id, entry_id + 1)
        await done(cache.flush)
        cache.get(7, 0)
        cache.put(7, 1024, 99)
        cache.get(7, 4096)  # takes the page of 2048
        misses = cache.misses
        assert [cache.get(7, 0), cache.get(7, 1024)] == [1, 99]
        assert cache.misses == misses
        assert cache.get(7, 2048) == 2049
        assert cache.misses == misses + 1

    virtually(story)


def test_when_pages_run_out_the_caller_writes_one_ledger(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk, IndexConfig(pages_max=2))
        for ledger_id in (1, 2, 3):
            cache.create(ledger_id, b"key")
            cache.put(ledger_id, 0, ledger_id)
        assert len(index(disk, 1)) == HEADER_SIZE + 8192
        assert not disk.exists(f"{PATH}/{index_name(2)}")
        assert [cache.get(ledger_id, 0) for ledger_id in (1, 2, 3)] == [1, 2, 3]
        await done(cache.flush)
        crash(disk, cache)
        again = opened(disk)
        assert [again.get(ledger_id, 0) for ledger_id in again.ledger_ids()] == [1, 2, 3]

    virtually(story)


def test_evicting_a_fenced_ledger_keeps_its_bit(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk, IndexConfig(open_files_max=1))
        cache.create(1, b"key")
        assert cache.set_fenced(1)
        cache.create(2, b"other")
        assert IndexHeader.decode(index(disk, 1)) == IndexHeader(b"key", fenced=True)
        assert cache.header(1) == IndexHeader(b"key", fenced=True)
        assert not cache.set_fenced(1)
        assert cache.header(2) == IndexHeader(b"other")

    virtually(story)


@pytest.mark.parametrize(
    "quirks", [frozenset(), frozenset([Quirk.HEADERS_WITH_PAGES_ONLY]), frozenset([Quirk.HEADERS_UNSYNCED])]
)
def test_a_flush_keeps_headers_unless_bookkeeper_is_imitated(virtually: Virtually, quirks: frozenset[Quirk]) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk)
        cache.create(1, b"key")
        cache.put(1, 0, 5)
        await done(cache.flush)
        again = opened(disk, quirks=quirks)
        again.set_fenced(1)
        again.set_explicit_lac(1, LAC)
        await done(again.flush)
        crash(disk, again)
        kept = IndexHeader(b"key", fenced=True, explicit_lac=LAC)
        assert (opened(disk).header(1) == kept) is (not quirks)

    virtually(story)


def test_a_fence_that_was_written_and_not_synced_is_synced_when_it_is_set_again(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk, IndexConfig(open_files_max=1))
        cache.create(1, b"key")
        await done(cache.flush)
        cache.set_fenced(1)
        cache.create(2, b"other")  # takes the handle, so the header is written
        crash(disk, cache, CrashMode.PROCESS)
        replaying = opened(disk)
        assert not replaying.set_fenced(1)
        await done(replaying.flush)
        syncs = disk.syncs.total()
        assert not replaying.set_fenced(1)
        await done(replaying.flush)
        assert disk.syncs.total() == syncs, "once is enough"
        crash(disk, replaying)
        assert opened(disk).header(1).fenced

    virtually(story)


def test_a_header_is_written_with_the_pages_of_its_ledger(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk, quirks=FAITHFUL)
        cache.create(1, b"key")
        cache.put(1, 0, 5)
        cache.set_fenced(1)
        cache.set_limbo(1, in_limbo=True)
        await done(cache.flush)
        crash(disk, cache)
        again = opened(disk)
        assert again.header(1) == IndexHeader(b"key", fenced=True, in_limbo=True)
        assert again.get(1, 0) == 5

    virtually(story)


@pytest.mark.parametrize("quirks", [frozenset(), frozenset([Quirk.FOLDERS_UNSYNCED])])
def test_the_names_of_new_files_are_durable_unless_bookkeeper_is_imitated(
    virtually: Virtually, quirks: frozenset[Quirk]
) -> None:
    async def story() -> None:
        disk = CountingDisk(sync_covers_names=False)
        cache = opened(disk, quirks=quirks)
        cache.create(1, b"key")
        cache.put(1, 0, 5)
        await done(cache.flush)
        crash(disk, cache)
        assert opened(disk).ledger_ids() == ([] if quirks else [1])

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
def test_a_failed_sync_is_not_tried_again_unless_bookkeeper_is_imitated(
    virtually: Virtually, is_faithful: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk, quirks=frozenset([Quirk.FAILED_SYNC_RETRIED] if is_faithful else []))
        cache.create(1, b"key")
        cache.put(1, 0, 5)
        disk.faults.plant(DiskFault(DiskOperation.SYNC, DiskFaultKind.ERROR))
        assert isinstance(await outcome(cache.flush), StorageIOError)
        assert (await outcome(cache.flush) is None) is is_faithful

    virtually(story)


def test_a_failed_write_leaves_pages_dirty(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk)
        cache.create(1, b"key")
        cache.put(1, 0, 5)
        for skip in (0, 1):
            disk.faults.plant(DiskFault(DiskOperation.WRITE, DiskFaultKind.PARTIAL, skip=skip, amount=3))
            assert isinstance(await outcome(cache.flush), StorageIOError)
            disk.faults.heal()
        await done(cache.flush)
        crash(disk, cache)
        assert opened(disk).get(1, 0) == 5

    virtually(story)


def test_a_deleted_ledger_is_gone_with_its_pages(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        cache = opened(disk, IndexConfig(pages_max=2))
        for ledger_id in (1, 2):
            cache.create(ledger_id, b"key")
            cache.put(ledger_id, 0, 5)
        calls: list[object] = []
        cache.flush(lambda *call: calls.append(call), None)
        cache.delete(1)
        cache.delete(2)
        await done(cache.flush)
        assert (cache.ledger_ids(), calls, disk.folders(PATH)) == ([], [(None, None)], [])
        cache.create(1, b"new")
        assert (cache.get(1, 0), cache.header(1)) == (0, IndexHeader(b"new"))

    virtually(story)


def test_a_file_that_was_being_moved_is_given_its_name_or_removed() -> None:
    disk = CountingDisk()
    folder = Folder(disk, PATH)
    folder.write_small("0/1/1.idx.rloc", IndexHeader(b"moved").encode())
    folder.write_small("0/2/2.idx.rloc", IndexHeader(b"copied").encode())
    folder.write_small("0/2/2.idx", IndexHeader(b"whole").encode())
    folder.write_small("0/2/rubbish", b"")
    cache = opened(disk)
    assert [cache.header(ledger_id).master_key for ledger_id in cache.ledger_ids()] == [b"moved", b"whole"]
    assert disk.names(f"{PATH}/0/1") == ["1.idx"]
    assert disk.names(f"{PATH}/0/2") == ["2.idx", "rubbish"]


def test_a_file_whose_header_never_arrived_is_a_ledger_without_a_key_and_another_one_is_damaged() -> None:
    disk = CountingDisk()
    folder = Folder(disk, PATH)
    folder.write_small("0/1/1.idx", b"")
    folder.write_small("0/2/2.idx", bytes(2000))
    folder.write_small("0/3/3.idx", b"x" * 2000)
    cache = opened(disk)
    assert [cache.header(1), cache.header(2)] == [IndexHeader(), IndexHeader()]
    with pytest.raises(IndexDamaged):
        cache.header(3)


def test_limits_are_kept(virtually: Virtually) -> None:
    async def story() -> None:
        cache = opened(CountingDisk(), IndexConfig(file_bytes_max=HEADER_SIZE + 80))
        cache.create(1, b"key")
        cache.put(1, 9, 5)
        with pytest.raises(StorageIOError):
            cache.put(1, 10, 5)
        assert [cache.get(1, 9), cache.get(1, 10)] == [5, 0]
        with pytest.raises(HeaderFull):
            cache.create(2, b"k" * 1005)
        with pytest.raises(HeaderFull):
            cache.set_explicit_lac(1, LAC * 40)
        assert (cache.ledger_ids(), cache.header(1)) == ([1], IndexHeader(b"key"))

    virtually(story)


@pytest.mark.parametrize("wrong", [{"pages_max": 0}, {"open_files_max": 0}, {"file_bytes_max": 1031}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="index"):
        IndexConfig(**wrong)


@pytest.mark.parametrize("step", ["index.create", "index.header", "index.pages", "index.sync", "index.remove"])
@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_bookie_may_die_at_every_step(virtually: Virtually, step: str, mode: CrashMode) -> None:
    disk = CountingDisk(Random(1))
    flushed: list[int] = []

    async def until_it_dies() -> None:
        def on_step(name: str) -> None:
            if name == step and flushed:
                disk.crash(mode)
                raise CrashPoint(name)

        cache = opened(disk, on_step=on_step)
        cache.create(1, b"key")
        cache.put(1, 0, 5)
        await done(cache.flush)
        flushed.append(1)
        cache.create(2, b"other")
        if step == "index.remove":
            cache.delete(1)
        cache.put(1, 3000, 6)
        await done(cache.flush)

    async def afterwards() -> None:
        cache = opened(disk)
        assert cache.get(1, 0) == 5
        assert cache.header(1) == IndexHeader(b"key")

    assert run_to_crash_point(until_it_dies) == step
    virtually(afterwards)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 4000)),
        st.tuples(st.sampled_from(["fence", "lac"]), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.sampled_from([0, 1])),
    ),
    max_size=40,
)


class Story:
    """A cache whose disk crashes now and then, and what it was told."""

    def __init__(self, disk: CountingDisk, config: IndexConfig) -> None:
        self.disk, self.config = disk, config
        self.cache = opened(disk, config)
        self.put: dict[tuple[int, Any], set[int]] = {}
        self.latest: dict[tuple[int, Any], int] = {}
        self.flushed: dict[tuple[int, Any], int] = {}

    def found(self, ledger_id: int, what: Any) -> int:
        if ledger_id not in self.cache:
            return 0
        header = self.cache.header(ledger_id)
        if what in ("fence", "lac"):
            return int(header.fenced if what == "fence" else header.explicit_lac == LAC)
        return self.cache.get(ledger_id, what)

    def crash(self, mode: CrashMode) -> None:
        crash(self.disk, self.cache, mode)
        self.cache = opened(self.disk, self.config)
        for key, values in self.put.items():
            self.latest[key] = self.found(*key)
            assert self.latest[key] in values | {0}, "a value that nobody put"
            assert self.latest[key] >= self.flushed.get(key, 0), "what was flushed is older now"

        for (ledger_id, what), value in self.latest.items():
            if value:
                self.change(ledger_id, what, value)  # as a replay of the journal does

    def change(self, ledger_id: int, what: Any, value: int) -> None:
        if ledger_id not in self.cache or self.cache.header(ledger_id).master_key is None:
            self.cache.create(ledger_id, b"key")
        if what == "fence":
            self.cache.set_fenced(ledger_id)
        elif what == "lac":
            self.cache.set_explicit_lac(ledger_id, LAC)
        else:
            self.cache.put(ledger_id, what, value)
        self.put.setdefault((ledger_id, what), set()).add(value)
        self.latest[ledger_id, what] = value


@settings(max_examples=100, deadline=None)
@given(ACTIONS, st.integers(0, 1 << 32), st.booleans(), st.integers(1, 4), st.integers(1, 3))
def test_what_was_flushed_survives_every_crash_and_nothing_is_made_up(
    actions: list[tuple[str, int, int]], seed: int, covers: bool, pages: int, files: int
) -> None:
    async def tell() -> None:
        disk = CountingDisk(Random(seed), sync_covers_names=covers)
        story = Story(disk, IndexConfig(pages_max=pages, open_files_max=files))
        for number, (action, ledger_id, amount) in enumerate(actions, 1):
            if action == "crash":
                story.crash(list(CrashMode)[amount])
            elif action == "flush":
                story.cache.settle(story.cache.unsettled())  # as a store does when copies are durable
                await done(story.cache.flush)
                story.flushed |= story.latest
            elif action == "put":
                story.change(ledger_id, amount, number)
            else:
                story.change(ledger_id, action, 1)
        assert {key: story.found(*key) for key in story.latest} == story.latest

    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(tell())
    finally:
        loop.close()
