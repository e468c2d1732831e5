"""Marks on disk, what is replayed from them, and which files go."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, StorageError, StorageIOError
from simbookie.storage.disk.faults import DiskFault, DiskOperation
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.folders import Folder
from simbookie.storage.journal.mark import LogMark, mark_name, read_mark, write_mark
from simbookie.storage.journal.reader import JournalScan
from simbookie.storage.journal.records import (
    LENGTH,
    JournalFormatError,
    explicit_lac_body,
    fence_body,
    file_name,
    header,
    key_body,
)
from simbookie.storage.journal.replay import JournalReplay, file_ids, remove_old_files
from simbookie.storage.journal.settings import JOURNAL_KEYS, JournalSettings
from simbookie.storage.quirks import Quirk
from tests.simbookie.storage.journals import JournalBench, journal_settings
from tests.simbookie.storage.stores import entry

Virtually = Callable[[Callable[[], Any]], None]


async def written(folders: list[Folder], mark: LogMark, **options: Any) -> StorageError | None:
    done = asyncio.get_running_loop().create_future()
    write_mark(folders, "lastMark", mark, lambda _, error: done.set_result(error), None, **options)
    assert not done.done()
    error: StorageError | None = await done
    return error


def two_folders(disk: SimulatedDisk) -> list[Folder]:
    return [Folder(disk, "l0/current"), Folder(disk, "l1/current")]


def put(folder: Folder, file_id: int, *bodies: bytes, version: int = 6, tail: bytes = b"") -> None:
    records = b"".join(LENGTH.pack(len(body)) + body for body in bodies)
    folder.create(file_name(file_id)).write(0, header(version) + records + tail)


def replayed(folder: Folder, mark: LogMark, **options: bool) -> tuple[list[int], LogMark]:
    replay = JournalReplay(folder, mark, **options)
    return [record.entry_id for record in replay], replay.mark


# ------------------------------------------------------------------------------------------------------------- marks


def test_a_mark_is_sixteen_bytes_in_every_ledger_folder(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        folders = two_folders(disk)
        assert read_mark(folders, "lastMark") == LogMark(0, 0)
        assert await written(folders, LogMark(3, 77)) is None
        disk.crash(CrashMode.POWER_LOSS)
        for folder in folders:
            assert folder.read_small("lastMark") == struct.pack(">qq", 3, 77)
        assert read_mark(folders, "lastMark") == LogMark(3, 77)
        assert [mark_name(index, 1) for index in range(1)] == ["lastMark"]
        assert [mark_name(index, 2) for index in range(2)] == ["lastMark.0", "lastMark.1"]

    virtually(story)


def test_of_several_marks_the_greatest_counts_and_short_ones_do_not() -> None:
    disk = SimulatedDisk()
    folders = [*two_folders(disk), Folder(disk, "l2/current"), Folder(disk, "l3/current")]
    folders[0].write_small("lastMark", LogMark(3, 5).encode())
    folders[1].write_small("lastMark", LogMark(2, 900).encode())
    folders[2].write_small("lastMark", LogMark(9, 0).encode()[:15])
    assert read_mark(folders, "lastMark") == LogMark(3, 5)
    disk.faults.plant(DiskFault(DiskOperation.READ, path="l0/*"))
    assert read_mark(folders, "lastMark") == LogMark(2, 900)


@pytest.mark.parametrize(
    ("step", "in_place", "left"),
    [
        *(("open", in_place, b"old") for in_place in (False, True)),
        *(("truncate", in_place, b"old") for in_place in (False, True)),
        ("write", True, b""),
        ("write", False, b"old"),
        ("sync", True, b"new"),
        ("sync", False, b"old"),
        ("rename", False, b"old"),
    ],
)
def test_a_process_crash_between_the_steps_leaves_the_old_copy_or_the_new_one_and_in_place_an_empty_one(
    virtually: Virtually, step: str, left: bytes, *, in_place: bool
) -> None:
    contents = {b"old": LogMark(1, 1).encode(), b"": b"", b"new": LogMark(2, 2).encode()}

    async def story() -> None:
        disk = SimulatedDisk()
        folders = two_folders(disk)
        await written(folders, LogMark(1, 1))
        found: list[bytes | None] = []

        def look(name: str) -> None:
            if name == f"mark.{step}" and not found:
                found.append(folders[0].read_small("lastMark"))

        await written(folders, LogMark(2, 2), on_step=look, in_place=in_place)
        assert found == [contents[left]]
        assert folders[0].read_small("lastMark") == contents[b"new"]

    virtually(story)


@pytest.mark.parametrize("ignore_errors", [False, True])
def test_a_mark_that_was_written_somewhere_counts_and_one_that_was_written_nowhere_does_not(
    virtually: Virtually, *, ignore_errors: bool
) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        folders = two_folders(disk)
        disk.faults.plant(DiskFault(DiskOperation.WRITE, path="l0/*", times=None))
        assert await written(folders, LogMark(1, 1), ignore_errors=ignore_errors) is None
        assert read_mark(folders, "lastMark") == LogMark(1, 1)
        disk.faults.plant(DiskFault(DiskOperation.SYNC, path="l1/*"))
        error = await written(folders, LogMark(2, 2), ignore_errors=ignore_errors)
        assert (error is None) is ignore_errors

    virtually(story)


# ------------------------------------------------------------------------------------------------------------ replay


def test_what_was_written_after_the_mark_is_replayed_and_the_mark_follows(virtually: Virtually) -> None:
    async def story() -> None:
        bench = await JournalBench(journal_settings(group_wait_max_s=0, file_bytes_max=1_536)).opened()
        mark = LogMark()
        for entry_id in range(5):
            bench.add(entry_id, size=400)
            await asyncio.sleep(0.001)
            if entry_id == 1:
                mark = bench.journal.mark
        await bench.drained()
        assert file_ids(bench.folder) == [1, 2]
        assert replayed(bench.folder, mark)[0] == [2, 3, 4]
        entries, end = replayed(bench.folder, LogMark())
        assert entries == [0, 1, 2, 3, 4]
        assert replayed(bench.folder, end) == ([], LogMark(2, end.offset + 4))

    virtually(story)


def test_a_missing_file_is_noticed_and_nothing_is_replayed() -> None:
    folder = Folder(SimulatedDisk(), "journal/current")
    for mark in (LogMark(4, 512), LogMark(6, 512), LogMark(2, 512)):
        with pytest.raises(StorageIOError, match="is missing"):
            replayed(folder, mark)
        if not file_ids(folder):
            put(folder, 5, entry(1, 0))
    assert replayed(folder, LogMark(0, 0)) == ([0], LogMark(5, 548))


@pytest.mark.parametrize(
    ("tail", "entries"),
    [
        (b"", [0]),
        (LENGTH.pack(36) + entry(1, 1), [0]),
        (LENGTH.pack(32) + entry(1, 1) + bytes(900), [0, 1]),
        (bytes(4) + LENGTH.pack(32) + entry(1, 1), [0]),
    ],
)
def test_a_torn_tail_ends_the_replay_of_its_file_and_no_other(tail: bytes, entries: list[int]) -> None:
    folder = Folder(SimulatedDisk(), "journal/current")
    put(folder, 1, entry(1, 0), tail=tail)
    put(folder, 2, entry(1, 9))
    assert replayed(folder, LogMark())[0] == [*entries, 9]


@pytest.mark.parametrize("content", [b"", header(6)])
def test_files_without_records_are_nothing(content: bytes) -> None:
    folder = Folder(SimulatedDisk(), "journal/current")
    folder.create(file_name(1)).write(0, content)
    assert replayed(folder, LogMark())[0] == []


def test_a_damaged_file_refuses_the_start_unless_it_may_be_given_up() -> None:
    folder = Folder(SimulatedDisk(), "journal/current")
    put(folder, 1, entry(1, 0), tail=LENGTH.pack(-7) + entry(1, 1))
    put(folder, 2, entry(1, 9))
    with pytest.raises(StorageIOError, match=r"1\.txn.*at 548"):
        replayed(folder, LogMark())
    assert replayed(folder, LogMark(), skip_invalid=True)[0] == [0, 9]


@pytest.mark.parametrize(
    ("body", "version"), [(key_body(1, b"k"), 2), (fence_body(1), 3), (explicit_lac_body(1, b"p"), 5)]
)
def test_a_record_that_its_format_cannot_have_refuses_the_start(body: bytes, version: int) -> None:
    folder = Folder(SimulatedDisk(), "journal/current")
    put(folder, 1, body, version=version)
    with pytest.raises(StorageIOError, match="version"):
        replayed(folder, LogMark())


@pytest.mark.parametrize(
    ("backups", "kept"), [(5, [15, 16, 17, 18, 19, 20, 21]), (0, [20, 21]), (30, list(range(10, 22)))]
)
def test_files_before_the_mark_go_but_the_newest_few(backups: int, kept: list[int]) -> None:
    folder = Folder(SimulatedDisk(), "journal/current")
    for file_id in range(10, 22):
        put(folder, file_id)
    folder.create("other")
    steps: list[str] = []
    gone = remove_old_files(folder, LogMark(20, 700), backups, steps.append)
    assert file_ids(folder) == kept
    assert (len(gone), len(steps)) == (12 - len(kept), 12 - len(kept))
    assert folder.exists("other")


# ---------------------------------------------------------------------------------------------------------- settings


def test_the_defaults_are_bookkeepers() -> None:
    conf = {
        "journalMaxSizeMB": "2048",
        "journalMaxBackups": "5",
        "journalPreAllocSizeMB": "16",
        "journalWriteBufferSizeKB": "64",
        "journalAlignmentSize": "512",
        "journalFormatVersionToWrite": "6",
        "journalSyncData": "true",
        "journalWriteData": "true",
        "journalMaxGroupWaitMSec": "2",
        "journalBufferedWritesThreshold": "524288",
        "journalBufferedEntriesThreshold": "0",
        "journalFlushWhenQueueEmpty": "false",
        "journalQueueSize": "10000",
        "journalMaxMemorySizeMb": "51",
        "journalPageCacheFlushIntervalMSec": "1000",
        "skipReplayJournalInvalidRecord": "false",
    }
    assert set(conf) == {key for key, _ in JOURNAL_KEYS.values()}
    assert JournalSettings.from_conf(conf) == JournalSettings() == JournalSettings.from_conf({"bookiePort": "3181"})


def test_the_page_lists_every_setting() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "reference" / "journal.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert [(field, key) for key, field, _ in rows] == [(field, key) for field, (key, _) in JOURNAL_KEYS.items()]
    assert JournalSettings.from_conf({key: default for key, _, default in rows}) == JournalSettings()


def test_the_page_knows_the_quirks_that_it_tells_of() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "reference" / "journal.md").read_text()
    listed = re.findall(r"^\| `([a-z-]+)` \| ", page.partition("## Quirks")[2], re.MULTILINE)
    assert len(listed) == 9
    assert set(listed) <= {quirk.value for quirk in Quirk}


def test_settings_are_read_by_bookkeepers_names_and_units() -> None:
    settings = JournalSettings.from_conf(
        {"journalMaxSizeMB": " 3 ", "journalMaxGroupWaitMSec": "1", "journalSyncData": "FALSE", "journalQueueSize": "7"}
    )
    assert (settings.file_bytes_max, settings.group_wait_max_s, settings.sync_data, settings.queue_size) == (
        3 << 20,
        0.001,
        False,
        7,
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("journalSyncData", "yes"),
        ("journalMaxSizeMB", "big"),
        ("journalMaxSizeMB", "-1"),
        ("journalMaxBackups", "-1"),
        ("journalPreAllocSizeMB", "0"),
        ("journalAlignmentSize", "256"),
        ("journalAlignmentSize", "1000"),
        ("journalAlignmentSize", str(32 << 20)),
        ("journalFormatVersionToWrite", "3"),
        ("journalFormatVersionToWrite", "7"),
        ("journalQueueSize", "0"),
        ("journalMaxGroupWaitMSec", "-1"),
        ("journalBufferedWritesThreshold", "-1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(key: str, value: str) -> None:
    with pytest.raises(ValueError, match="journal"):
        JournalSettings.from_conf({key: value})


@pytest.mark.parametrize("kept", [1, 2])
def test_padding_that_a_power_loss_tore_in_its_mark_ends_a_file(kept: int) -> None:
    folder = Folder(SimulatedDisk(), "journal/current")
    file = folder.create("1.txn")
    body = b"x" * (512 - LENGTH.size - kept)
    file.write(0, header(6) + len(body).to_bytes(4) + body)
    file.write(1024 - kept, b"\xff\xff\xff\0"[:kept] + bytes(600))
    assert len(list(JournalScan(file))) == 1
    file.write(1024 - kept, b"\x80")
    with pytest.raises(JournalFormatError):
        list(JournalScan(file))
