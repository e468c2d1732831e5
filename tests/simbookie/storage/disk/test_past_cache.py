"""Files of a real folder past the page cache: the same bytes, by another way; and the way back where a file system refuses."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, NoSpace, StorageIOError
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.directory import DirectoryDisk, DirectoryFile
from simbookie.storage.disk.past_cache import BLOCK_BYTES, AlignedBuffer, PastCache, is_whole_blocks
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.entry_logs.config import DIRECT_WRITE_BUFFERS, DirectConfig, EntryLogConfig
from simbookie.storage.folders import Folder, Folders
from tests.simbookie.storage.stores import Owner, done, entry, read_by

DIRECT = getattr(os, "O_DIRECT", 0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DirectoryDisk]:
    disk = DirectoryDisk(tmp_path / "disk")
    yield disk
    disk.crash(CrashMode.PROCESS)


def refuse_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the operating system do what a file system without this does."""
    really_open = os.open

    def refusing(path: Any, flags: int, *rest: int) -> int:
        if flags & DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return really_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", refusing)


class Refusing(PastCache):
    """A file that is opened for it, and takes nothing."""

    error = errno.EINVAL

    def write(self, offset: int, data: memoryview) -> None:
        raise OSError(self.error, os.strerror(self.error))

    def read(self, offset: int, size: int) -> bytes:
        raise OSError(self.error, os.strerror(self.error))


def test_the_file_system_of_this_folder_is_asked_and_the_answer_is_what_is_done(
    disk: DirectoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    file = disk.create("a")
    can = file.pass_by_cache()
    assert file.pass_by_cache() is can
    if can:
        found = disk.past_cache("a")
        assert found is not None
        assert fcntl.fcntl(found.descriptor, fcntl.F_GETFL) & DIRECT
        found.close()
        assert caplog.messages == []
    else:
        assert "cannot pass by the page cache here" in caplog.text


@pytest.mark.parametrize("seed", range(8))
def test_the_same_bytes_are_read_however_they_were_written(disk: DirectoryDisk, seed: int) -> None:
    rng, model = Random(seed), bytearray()
    file, other = disk.create("a"), disk.open("a")
    file.pass_by_cache()
    for _ in range(40):
        unit = BLOCK_BYTES if rng.random() < 0.6 else 1
        offset, size = rng.randrange(600) * unit, rng.randrange(1, 600) * unit
        data = rng.randbytes(size)
        file.write(offset, data)
        model.extend(bytes(max(0, offset + size - len(model))))
        model[offset : offset + size] = data
        for reader in (file, other):
            offset, size = rng.randrange(600) * unit, rng.randrange(1, 600) * unit
            assert reader.read_now(offset, size) == model[offset : offset + size]
    assert file.size == len(model)
    assert other.read_now(0, len(model)) == model


def test_the_end_within_a_block_is_the_end(disk: DirectoryDisk) -> None:
    file = disk.create("a")
    file.pass_by_cache()
    file.write(0, bytes(BLOCK_BYTES))
    file.write(BLOCK_BYTES, b"and some")
    assert file.read_now(0, 4 * BLOCK_BYTES) == bytes(BLOCK_BYTES) + b"and some"
    assert file.read_now(8 * BLOCK_BYTES, BLOCK_BYTES) == b""


@pytest.mark.parametrize(
    ("offset", "size", "is_whole"),
    [(0, 4096, True), (8192, 8192, True), (0, 0, False), (1, 4096, False), (0, 4095, False), (4096, 512, False)],
)
def test_only_whole_blocks_pass(offset: int, size: int, *, is_whole: bool) -> None:
    assert is_whole_blocks(offset, size) is is_whole


def test_a_file_system_that_refuses_is_told_once_and_everything_goes_through_the_cache(
    disk: DirectoryDisk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_open(monkeypatch)
    with caplog.at_level(logging.WARNING):
        files = [disk.create(name) for name in "ab"]
        assert [file.pass_by_cache() for file in files] == [False, False]
    (message,) = caplog.messages
    assert message.startswith(f"{disk.root}: files cannot pass by the page cache here, and go through it: ")
    for file in files:
        file.write(0, bytes(range(256)) * 16)
        assert file.read_now(0, BLOCK_BYTES) == bytes(range(256)) * 16


def test_an_operating_system_without_it_is_told(
    disk: DirectoryDisk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_DIRECT", raising=False)
    assert not disk.create("a").pass_by_cache()
    assert "this operating system has no O_DIRECT" in caplog.text


def refusing(disk: DirectoryDisk, name: str, error: int) -> DirectoryFile:
    """A file that passes by the cache until it is used."""
    file = disk.create(name)
    file.write(0, b"o" * BLOCK_BYTES)
    past_cache = object.__new__(Refusing)
    past_cache.descriptor = os.open(disk.root / name, os.O_RDWR)
    past_cache.error = error
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "past_cache", lambda _: past_cache)
        assert file.pass_by_cache()
    return file


def test_a_file_system_that_refuses_the_first_call_is_found_out_too(
    disk: DirectoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    file = refusing(disk, "a", errno.EINVAL)
    file.write(0, b"n" * BLOCK_BYTES)
    assert not file.passes_by_cache
    assert file.read_now(0, BLOCK_BYTES) == b"n" * BLOCK_BYTES
    other = refusing(disk, "b", errno.EINVAL)
    assert other.read_now(0, BLOCK_BYTES) == b"o" * BLOCK_BYTES
    assert len(caplog.messages) == 1
    assert not disk.create("c").pass_by_cache()


@pytest.mark.parametrize(("error", "kind"), [(errno.ENOSPC, NoSpace), (errno.EIO, StorageIOError)])
def test_other_errors_are_errors(disk: DirectoryDisk, error: int, kind: type[Exception]) -> None:
    file = refusing(disk, "a", error)
    with pytest.raises(kind, match="could not write a at 0"):
        file.write(0, bytes(BLOCK_BYTES))
    with pytest.raises(kind, match="could not read a at 0"):
        file.read_now(0, BLOCK_BYTES)


def test_a_file_lets_go_of_both_descriptors(disk: DirectoryDisk) -> None:
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else None
    files = [disk.create(name) for name in "abc"]
    for file in files:
        file.pass_by_cache()
        file.write(0, bytes(BLOCK_BYTES))
        file.close()
    if before is not None:
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_simulated_disk_has_no_other_way() -> None:
    assert not SimulatedDisk().create("a").pass_by_cache()


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_store_with_direct_logs_keeps_what_it_was_given(
    disk: DirectoryDisk, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    if is_refused:
        refuse_to_open(monkeypatch)
    used: list[int] = []
    really_write = PastCache.write

    def counted(self: PastCache, offset: int, data: memoryview) -> None:
        used.append(len(data))
        really_write(self, offset, data)

    monkeypatch.setattr(PastCache, "write", counted)
    direct = DirectConfig(write_bytes=DIRECT_WRITE_BUFFERS * 65_536, read_bytes=262_144, block_bytes=65_536)
    config = DbConfig(write_cache_bytes=400_000, entry_log=EntryLogConfig(log_size_max=300_000, direct=direct))
    keys = [(ledger_id, entry_id) for ledger_id in range(3) for entry_id in range(100)]
    for life in range(2):
        store = DbLedgerStore(Folders([Folder(disk, "ledgers/current")], Random(1)), config)
        store.open(Owner())
        if life == 0:
            for ledger_id in range(3):
                store.set_master_key(ledger_id, b"key")
            for number, key in enumerate(keys):
                store.add_entry(*key, entry(*key, bytes(number % 3000)))
                if number % 60 == 59:
                    await done(store.flush)
            await done(store.flush)
        for number, key in enumerate(keys):

            def read(on_read: Any, token: object, key: tuple[int, int] = key) -> None:
                store.read_entry(*key, on_read, token)  # noqa: B023  called before the loop goes on

            assert await read_by(read) == entry(*key, bytes(number % 3000))
        store.close()
    assert all(size % BLOCK_BYTES == 0 for size in used)
    can = not is_refused and PastCacheHere(disk).can
    assert bool(used) is can


class PastCacheHere:
    """Whether this folder's file system lets files pass by the page cache."""

    def __init__(self, disk: DirectoryDisk) -> None:
        probe = disk.root / "probe"
        probe.write_bytes(b"")
        try:
            PastCache(probe, AlignedBuffer()).close()
        except OSError:
            self.can = False
        else:
            self.can = True
