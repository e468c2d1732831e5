"""Journals in front of a ledger store: what is replayed, when marks move, and what a bookie of BookKeeper would forget."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, LedgerInfo, NoSpace, StorageError, StorageIOError
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.journal.mark import LogMark, read_mark
from simbookie.storage.journal.records import explicit_lac_body, file_name, header, key_body
from simbookie.storage.journal.replay import file_ids
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.quirks import FAITHFUL, REPAIRED, Quirk
from simbookie.storage.space import SpaceConfig
from tests.simbookie.storage.journals import Acknowledged, journal_records, journal_settings
from tests.simbookie.storage.stores import entry, read_by

Virtually = Callable[[Callable[[], Any]], None]
KEY = b"key"


class StorageBench:
    """A storage on one disk, that can be crashed and opened again."""

    def __init__(
        self,
        *,
        journals: int = 1,
        log_bytes: int = 2_000,
        quirks: frozenset[Quirk] = REPAIRED,
        disk: SimulatedDisk | None = None,
        space: SpaceConfig | None = None,
        sync_s: float = 0.001,
        **journal: Any,
    ) -> None:
        self.disk = disk if disk is not None else SimulatedDisk(Random(1), costs=DiskCosts(sync_s=sync_s))
        self.journal_folders = [Folder(self.disk, f"journal{index}/current") for index in range(journals)]
        self.ledger_folder = Folder(self.disk, "ledgers/current")
        log = EntryLogConfig(log_size_max=log_bytes)
        store = InterleavedLedgerStore(
            Folders([self.ledger_folder], Random(1)), InterleavedConfig(entry_log=log), quirks=quirks
        )
        self.steps: list[str] = []
        self.fatal: list[StorageError] = []
        self.spaces: list[bool] = []
        self.acknowledged = Acknowledged()
        self.storage = JournaledStorage(
            self.journal_folders,
            [self.ledger_folder],
            store,
            JournaledConfig(
                journal=journal_settings(group_wait_max_s=0, **journal),
                space=space if space is not None else SpaceConfig(),
            ),
            quirks=quirks,
            on_fatal=self.fatal.append,
            on_step=self.steps.append,
        )

    async def opened(self) -> StorageBench:
        done = asyncio.get_running_loop().create_future()
        self.storage.open(lambda: done.set_result(None), self.spaces.append)
        await done
        await asyncio.sleep(0.1)
        return self

    async def reopened(self, mode: CrashMode = CrashMode.POWER_LOSS) -> StorageBench:
        self.storage.crash(mode)
        return await self.opened()

    async def added(self, ledger_id: int, *entry_ids: int, size: int = 40) -> None:
        """Store entries and wait until they are acknowledged."""
        if self.storage.ledger(ledger_id) is None:
            self.storage.set_master_key(ledger_id, KEY)
        for entry_id in entry_ids:
            self.storage.add_entry(ledger_id, entry_id, body(ledger_id, entry_id, size), self.acknowledged, entry_id)
        await asyncio.sleep(0.1)
        assert self.acknowledged.tokens[-len(entry_ids) :] == list(entry_ids)

    async def fenced(self, ledger_id: int) -> None:
        if self.storage.ledger(ledger_id) is None:
            self.storage.set_master_key(ledger_id, KEY)
        self.storage.fence(ledger_id, self.acknowledged, "fence")
        await asyncio.sleep(0.1)
        assert self.acknowledged.tokens[-1] == "fence"

    async def closed(self) -> None:
        done = asyncio.get_running_loop().create_future()
        self.storage.shutdown(lambda: done.set_result(None))
        await done

    async def has(self, ledger_id: int, *entry_ids: int, size: int = 40) -> bool:
        return [await self.read(ledger_id, number) for number in entry_ids] == [
            body(ledger_id, number, size) for number in entry_ids
        ]

    async def read(self, ledger_id: int, entry_id: int) -> bytes | StorageError | None:
        return await read_by(partial(self.storage.read_entry, ledger_id, entry_id))

    def info(self, ledger_id: int) -> LedgerInfo:
        info = self.storage.ledger(ledger_id)
        assert info is not None
        return info

    @property
    def mark(self) -> LogMark:
        return read_mark([self.ledger_folder], "lastMark")


def body(ledger_id: int, entry_id: int, size: int = 40) -> bytes:
    return entry(ledger_id, entry_id, b"x" * (size - 32), lac=entry_id - 1)


# ---------------------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize("mode", list(CrashMode))
def test_what_was_acknowledged_is_there_after_a_crash(virtually: Virtually, mode: CrashMode) -> None:
    async def story() -> None:
        bench = await StorageBench().opened()
        await bench.added(7, 0, 1, 2)
        bench.storage.set_explicit_lac(7, 5, struct.pack(">qq", 7, 5) + b"digest", bench.acknowledged, "lac")
        await bench.fenced(7)
        await bench.fenced(8)
        assert "lac" in bench.acknowledged.tokens
        await bench.reopened(mode)
        assert await bench.has(7, 0, 1, 2)
        assert bench.info(7) == LedgerInfo(KEY, fenced=True, lac=5)
        assert bench.storage.explicit_lac(7) == struct.pack(">qq", 7, 5) + b"digest"
        assert bench.info(8) == LedgerInfo(KEY, fenced=True)
        assert (bench.storage.entry_ids(7), bench.storage.ledger_ids()) == ([0, 1, 2], [7, 8])

    virtually(story)


def test_an_entry_is_readable_before_it_is_acknowledged_and_gone_if_the_bookie_is_killed_then(
    virtually: Virtually,
) -> None:
    async def story() -> None:
        bench = await StorageBench().opened()
        await bench.added(7, 0)
        bench.storage.add_entry(7, 1, body(7, 1), bench.acknowledged, 1)
        bench.storage.fence(7, bench.acknowledged, "fence")
        assert await bench.has(7, 1)
        report = bench.storage.crash(CrashMode.POWER_LOSS)
        assert (report.entries_lost, report.fences_lost) == (((7, 1),), (7,))
        await bench.opened()
        assert await bench.has(7, 0)
        assert (await bench.read(7, 1)) is None
        assert not bench.info(7).fenced
        assert bench.acknowledged.tokens == [0]

    virtually(story)


def test_what_a_process_crash_leaves_in_the_page_cache_is_not_lost(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(sync_s=1.0).opened()
        bench.storage.set_master_key(7, KEY)
        await asyncio.sleep(10)
        bench.storage.add_entry(7, 0, body(7, 0), bench.acknowledged, 0)
        await asyncio.sleep(0.5)
        report = bench.storage.crash(CrashMode.PROCESS)
        assert (report.entries_lost, bench.acknowledged.tokens) == ((), [])
        await bench.opened()
        assert await bench.has(7, 0)

    virtually(story)


def test_the_first_record_of_a_ledger_since_the_start_comes_with_its_key(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench().opened()
        await bench.added(7, 0)
        await bench.added(7, 1)
        await bench.closed()
        await bench.opened()
        await bench.added(7, 2)
        kinds = [record.kind.value for record in journal_records(bench.journal_folders[0])]
        assert kinds == ["key", "entry", "entry", "key", "entry"]

    virtually(story)


def test_a_replay_knows_keys_of_the_journal_and_of_the_store_and_skips_what_has_neither(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench().opened()
        await bench.added(7, 0)
        await bench.closed()
        records = [
            body(7, 1),
            body(7, 2)[:20],
            explicit_lac_body(7, bytes(8)),
            body(9, 0),
            struct.pack(">qq", 9, -8192),
            struct.pack(">qq", 7, -77),
        ]
        content = header(6) + b"".join(struct.pack(">i", len(record)) + record for record in records)
        bench.journal_folders[0].create(file_name(50)).write(0, content)
        await bench.opened()
        assert (bench.storage.ledger_ids(), bench.storage.entry_ids(7)) == ([7], [0, 1])

    virtually(story)


@pytest.mark.parametrize("is_faithful", [False, True])
def test_a_record_of_zeros_is_not_entry_0(virtually: Virtually, *, is_faithful: bool) -> None:
    async def story() -> None:
        # a second file, whose only record is torn
        bench = await StorageBench(
            quirks=frozenset({Quirk.ZERO_RECORDS_REPLAYED}) if is_faithful else REPAIRED
        ).opened()
        await bench.added(0, 0)
        bench.storage.crash(CrashMode.PROCESS)
        content = header(6) + struct.pack(">i", 40) + bytes(40)
        bench.journal_folders[0].create(file_name(50)).write(0, content)
        await bench.opened()
        assert (await bench.has(0, 0)) is not is_faithful

    virtually(story)


@pytest.mark.parametrize("is_faithful", [False, True])
def test_a_torn_explicit_lac_does_not_replace_one_that_was_acknowledged(
    virtually: Virtually, *, is_faithful: bool
) -> None:
    packet = struct.pack(">qq", 0, 5)

    async def story() -> None:
        bench = await StorageBench(
            quirks=frozenset({Quirk.ZERO_RECORDS_REPLAYED}) if is_faithful else REPAIRED
        ).opened()
        await bench.added(0, 0)
        bench.storage.set_explicit_lac(0, 5, packet, bench.acknowledged, "lac")
        await asyncio.sleep(1)
        bench.storage.crash(CrashMode.PROCESS)
        torn = explicit_lac_body(0, bytes(16))
        content = header(6) + struct.pack(">i", len(torn)) + torn
        bench.journal_folders[0].create(file_name(50)).write(0, content)
        await bench.opened()
        assert bench.storage.explicit_lac(0) == (bytes(16) if is_faithful else packet)

    virtually(story)


@pytest.mark.parametrize("is_faithful", [False, True])
@pytest.mark.parametrize("torn", [b"", bytes(20), b"key of 0"[:4] + bytes(4)])
def test_a_torn_key_does_not_replace_the_one_that_a_ledger_has(
    virtually: Virtually, torn: bytes, *, is_faithful: bool
) -> None:
    """A bookie journals the key of a ledger anew in each of its lives; a power loss may tear that."""

    async def story() -> None:
        bench = await StorageBench(
            quirks=frozenset({Quirk.ZERO_RECORDS_REPLAYED}) if is_faithful else REPAIRED
        ).opened()
        await bench.added(0, 0)
        info = bench.storage.ledger(0)
        assert info is not None
        bench.storage.crash(CrashMode.PROCESS)
        record = key_body(0, torn)
        content = header(6) + struct.pack(">i", len(record)) + record
        bench.journal_folders[0].create(file_name(50)).write(0, content)
        await bench.opened()
        replayed = bench.storage.ledger(0)
        assert replayed is not None
        assert (replayed.master_key == info.master_key) is not is_faithful
        assert await bench.has(0, 0)

    virtually(story)


@pytest.mark.parametrize("torn", [b"", bytes(20)])
def test_a_ledger_whose_first_key_is_torn_takes_the_key_that_comes_next(virtually: Virtually, torn: bytes) -> None:
    async def story() -> None:
        bench = await StorageBench().opened()
        bench.storage.crash(CrashMode.PROCESS)
        records = [key_body(7, torn), body(7, 0)]
        content = header(6) + b"".join(struct.pack(">i", len(record)) + record for record in records)
        bench.journal_folders[0].create(file_name(50)).write(0, content)
        await bench.opened()
        assert bench.storage.ledger(7) == LedgerInfo(None, fenced=False, in_limbo=False, lac=-1)
        assert bench.storage.entry_ids(7) == [0]
        bench.storage.set_master_key(7, b"key")
        assert bench.storage.ledger(7) == LedgerInfo(b"key", fenced=False, in_limbo=False, lac=-1)

    virtually(story)


def test_a_damaged_journal_refuses_the_start_and_the_storage_may_be_opened_again(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench().opened()
        await bench.added(7, 0)
        bench.storage.crash(CrashMode.PROCESS)
        broken = bench.journal_folders[0].create(file_name(50))
        broken.write(0, header(6) + struct.pack(">i", -7))
        for _ in range(2):
            with pytest.raises(StorageIOError, match=r"32\.txn"):
                bench.storage.open(lambda: None, bench.spaces.append)
        bench.journal_folders[0].remove(file_name(50))
        await bench.opened()
        assert await bench.has(7, 0)

    virtually(story)


def test_an_orderly_end_leaves_nothing_to_replay(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(sync_s=0.010).opened()
        bench.storage.set_master_key(7, KEY)
        bench.storage.add_entry(7, 0, body(7, 0), bench.acknowledged, 0)
        bench.storage.fence(7, bench.acknowledged, "fence")
        await bench.closed()
        assert bench.acknowledged.tokens == [0, "fence"]
        assert bench.mark == LogMark(1, 1_024)
        bench.disk.remove("journal0/current/1.txn")
        bench.ledger_folder.remove("lastMark")
        await bench.opened()
        assert await bench.has(7, 0)
        assert bench.info(7).fenced

    virtually(story)


# ------------------------------------------------------------------------------------------------ several journals


def test_a_ledger_has_one_journal_and_each_journal_a_mark(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(journals=3).opened()
        for ledger_id in range(7):
            await bench.added(ledger_id, 0)
        for index, folder in enumerate(bench.journal_folders):
            assert {record.ledger_id for record in journal_records(folder)} == set(range(index, 7, 3))
        await bench.reopened()
        assert [await bench.has(ledger_id, 0) for ledger_id in range(7)] == [True] * 7
        await bench.closed()
        marks = [read_mark([bench.ledger_folder], f"lastMark.{index}") for index in range(3)]
        assert all(mark > LogMark() for mark in marks)
        assert not bench.ledger_folder.exists("lastMark")

    virtually(story)


def test_the_memory_for_what_waits_is_shared_in_whole_mebibytes(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(journals=2, memory_bytes_max=3 << 20).opened()
        bench.storage.set_master_key(0, KEY)
        bench.storage.set_master_key(1, KEY)
        for number in range(3):
            bench.storage.add_entry(0, number, body(0, number, 600_000), None, None)
            bench.storage.add_entry(1, number, body(1, number, 600_000), None, None)
        # each has 1 MiB, and one may go over it
        assert [(journal.memory_used > 1_200_000 // 2, journal.in_line) for journal in bench.storage.journals] == [
            (True, 1)
        ] * 2

    virtually(story)


# ------------------------------------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_moves_the_mark_and_lets_old_journals_go(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(file_bytes_max=1_000, backups_max=1, log_bytes=2_500).opened()
        for entry_id in range(30):
            await bench.added(7, entry_id, size=400)
        ids, mark = file_ids(bench.journal_folders[0]), bench.mark
        assert mark.file_id > 10
        assert ids[0] == mark.file_id - 1, "one backup"
        assert bench.storage.checkpoints is not None
        assert bench.storage.checkpoints.done > 3
        replayed = [record.entry_id for record in journal_records(bench.journal_folders[0])]
        assert 0 not in replayed
        await bench.reopened()
        assert await bench.has(7, *range(30), size=400)

    virtually(story)


def test_a_checkpoint_covers_what_came_before_it_was_taken_and_no_more(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(log_bytes=2_500).opened()
        for entry_id in range(3):
            await bench.added(7, entry_id, size=400)
        assert bench.mark == LogMark()
        before = bench.storage.journals[0].mark
        await bench.added(7, 3, size=400)  # in another log
        assert bench.mark == before < bench.storage.journals[0].mark
        await bench.reopened()
        assert await bench.has(7, 0, 1, 2, 3, size=400)

    virtually(story)


@pytest.mark.parametrize("where", ["ledgers/*.log", "ledgers/*.idx"])
def test_a_store_that_fails_leaves_the_mark_and_nothing_is_lost(virtually: Virtually, where: str) -> None:
    async def story() -> None:
        bench = await StorageBench(log_bytes=2_500).opened()
        bench.disk.faults.plant(DiskFault(DiskOperation.SYNC, path=where, times=None))
        for entry_id in range(12):
            await bench.added(7, entry_id, size=400)
        assert bench.mark == LogMark()
        assert bench.storage.checkpoints is not None
        assert (bench.storage.checkpoints.done, bench.storage.checkpoints.failed > 0) == (1, True)
        await bench.reopened()
        bench.disk.faults.heal()
        assert await bench.has(7, *range(12), size=400)

    virtually(story)


@pytest.mark.parametrize("is_faithful", [False, True])
def test_a_mark_that_could_not_be_written_keeps_the_journals(virtually: Virtually, *, is_faithful: bool) -> None:
    async def story() -> None:
        quirks = frozenset({Quirk.MARK_ERRORS_IGNORED}) if is_faithful else REPAIRED
        bench = await StorageBench(file_bytes_max=1_000, backups_max=0, log_bytes=2_500, quirks=quirks).opened()
        await bench.added(7, 0, size=400)
        await bench.closed()
        await bench.opened()
        bench.disk.faults.plant(DiskFault(DiskOperation.TRUNCATE, path="*lastMark*", times=None))
        for entry_id in range(1, 12):
            await bench.added(7, entry_id, size=400)
        bench.disk.faults.heal()
        bench.storage.crash(CrashMode.PROCESS)
        if is_faithful:
            with pytest.raises(StorageIOError, match="missing"):
                bench.storage.open(lambda: None, bench.spaces.append)
        else:
            await bench.opened()
            assert await bench.has(7, *range(12), size=400)

    virtually(story)


def test_a_store_that_does_not_ask_gets_checkpoints_at_intervals(
    virtually: Virtually, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(InterleavedLedgerStore, "asks_for_checkpoints", False)
        bench = await StorageBench(log_bytes=1 << 20).opened()
        await asyncio.sleep(35)
        assert bench.storage.checkpoints is not None
        assert bench.storage.checkpoints.done == 4, "one after the replay"

    virtually(story)


# ------------------------------------------------------------------------------------------------- fences and keys


@pytest.mark.parametrize("quirks", [REPAIRED, frozenset({Quirk.KEYLESS_FENCES})])
def test_a_fence_of_an_unknown_ledger_brings_its_key(virtually: Virtually, quirks: frozenset[Quirk]) -> None:
    async def story() -> None:
        bench = await StorageBench(quirks=quirks).opened()
        await bench.fenced(7)
        await bench.reopened()
        info = bench.storage.ledger(7)
        assert (info is not None and info.fenced) is (not quirks)

    virtually(story)


def test_a_fence_outlives_every_restart(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(log_bytes=2_500).opened()
        await bench.fenced(7)
        for number in range(4):
            await bench.reopened()
            assert bench.info(7).fenced
            await bench.added(8, *range(number * 4, number * 4 + 4), size=400)

    virtually(story)


def test_an_old_journal_format_needs_a_quirk_because_it_forgets_explicit_lacs() -> None:
    with pytest.raises(ValueError, match="explicit LACs"):
        StorageBench(format_version=5)
    StorageBench(format_version=5, quirks=FAITHFUL)


# ------------------------------------------------------------------------------------------------------ the rest of it


def test_without_journalled_data_entries_are_acknowledged_at_once_and_fences_are_kept(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(write_data=False).opened()
        assert not bench.storage.acks_are_durable
        await bench.added(7, 0)
        await bench.fenced(7)
        assert bench.acknowledged.times[0] < bench.acknowledged.times[1]
        report = bench.storage.crash(CrashMode.PROCESS)
        assert report.entries_lost == ((7, 0),)
        await bench.opened()
        assert (await bench.read(7, 0)) is None
        assert bench.info(7).fenced
        await bench.added(7, 1)
        await bench.closed()
        await bench.opened()
        assert await bench.has(7, 1)

    virtually(story)


def test_nothing_acknowledged_at_once_is_told_after_a_crash(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(write_data=False).opened()
        bench.storage.set_master_key(7, KEY)
        bench.storage.add_entry(7, 0, body(7, 0), bench.acknowledged, 0)
        bench.storage.crash(CrashMode.PROCESS)
        await asyncio.sleep(1)
        assert bench.acknowledged == []

    virtually(story)


def test_a_journal_whose_disk_fails_is_fatal(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench().opened()
        await bench.added(7, 0)
        bench.disk.faults.plant(DiskFault(DiskOperation.SYNC, path="journal0/*"))
        bench.storage.add_entry(7, 1, body(7, 1), bench.acknowledged, 1)
        await asyncio.sleep(1)
        bench.storage.add_entry(7, 2, body(7, 2), bench.acknowledged, 2)
        await asyncio.sleep(1)
        assert len(bench.fatal) == 1
        assert [token for token, _ in bench.acknowledged.errors] == [1, 2]

    virtually(story)


def test_forcing_fails_when_the_queue_is_full(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench(queue_size=2).opened()
        bench.storage.force(99, bench.acknowledged, "unknown ledger")
        await asyncio.sleep(1)
        bench.storage.set_master_key(7, KEY)
        for entry_id in range(4):
            bench.storage.add_entry(7, entry_id, body(7, entry_id), None, None)
        bench.storage.force(7, bench.acknowledged, "force")
        assert bench.acknowledged.errors == []
        await asyncio.sleep(1)
        assert bench.acknowledged.tokens == ["unknown ledger"]
        assert [(token, type(error)) for token, error in bench.acknowledged.errors] == [("force", StorageError)]

    virtually(story)


def test_too_little_space_is_told_and_told_again_when_it_is_over(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(capacity_bytes=409_600)
        bench = await StorageBench(disk=disk, log_bytes=10_000).opened()
        bench.storage.set_master_key(7, KEY)
        assert bench.spaces == []
        disk.create("ballast").write(0, bytes(disk.capacity().free - 3 * 4_096))
        bench.storage.add_entry(7, 0, body(7, 0), None, None)
        assert bench.spaces == [], "one looks every ten seconds"
        await asyncio.sleep(10)
        bench.storage.add_entry(7, 1, body(7, 1), None, None)
        assert bench.spaces == [True]
        disk.remove("ballast")
        await asyncio.sleep(11)
        assert bench.spaces == [True, False]

    virtually(story)


def test_an_entry_for_which_there_is_no_space_is_refused_and_told_at_once(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(capacity_bytes=400_000)
        bench = await StorageBench(disk=disk, log_bytes=200_000).opened()
        await bench.added(7, 0)
        disk.faults.plant(DiskFault(DiskOperation.WRITE, DiskFaultKind.FULL, path="*.log", times=None))
        disk.create("ballast").write(0, bytes(disk.capacity().free // 4_096 * 4_096 - 8_192))
        with pytest.raises(NoSpace):
            bench.storage.add_entry(7, 1, body(7, 1, 100_000), None, None)
        assert bench.spaces == [True]

    virtually(story)


def test_a_store_that_cannot_write_what_it_took_takes_no_more_for_good(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await StorageBench().opened()
        bench.storage.flush_failed(StorageIOError("no"))
        await asyncio.sleep(30)
        assert bench.spaces == [True]

    virtually(story)


def test_the_capacity_counts_each_disk_once() -> None:
    bench = StorageBench(disk=SimulatedDisk(capacity_bytes=8_192))
    assert bench.storage.capacity().total == 8_192


@pytest.mark.parametrize(
    "fields",
    [
        *({"interval_s": 0}, {"full_above": 0.5}, {"writable_below": 0}, {"full_above": 1.1}),
        {"high_priority_bytes_min": -1},
    ],
)
def test_settings_of_space_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="storage"):
        SpaceConfig(**fields)


def test_intervals_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="flush_interval_s"):
        JournaledConfig(flush_interval_s=0)
    with pytest.raises(ValueError, match="mark_gap_s"):
        JournaledConfig(mark_gap_s=-1)


def test_at_least_one_folder_of_each_kind_is_needed() -> None:
    bench = StorageBench()
    with pytest.raises(ValueError, match="at least one folder"):
        JournaledStorage([], [bench.ledger_folder], bench.storage.store)
