"""One suite over every disk: the same operations bring the same results, in memory and over a real folder."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simbookie.storage.base import CrashMode, StorageError
from simbookie.storage.disk.base import Disk, DiskFile, FileExists, NoSuchFile, checked_path
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.disk.simulated import SimulatedDisk


@pytest.fixture(params=["simulated", "directory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    disk: Disk = SimulatedDisk() if request.param == "simulated" else DirectoryDisk(tmp_path / "disk")
    yield disk
    disk.crash(CrashMode.PROCESS)


def contents(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read_now(0, file.size)
    finally:
        file.close()


async def until_synced(file: DiskFile) -> None:
    done = asyncio.get_running_loop().create_future()
    file.sync(lambda _, error: done.set_exception(error) if error is not None else done.set_result(None), None)
    await done


async def test_what_is_written_is_read_with_zeros_in_the_gaps(disk: Disk) -> None:
    file = disk.create("a")
    assert (file.path, file.size) == ("a", 0)
    file.write(5_000, b"end")
    file.write(4_090, bytearray(b"across"))
    assert file.size == 5_003
    assert file.read_now(4_088, 10) == b"\0\0across\0\0"
    assert file.read_now(5_001, 100) == b"nd"
    assert file.read_now(6_000, 1) == b""
    file.write(0, memoryview(b"x"))
    assert contents(disk, "a")[:2] == b"x\0"


@pytest.mark.parametrize("size", [3, 4_096])
@pytest.mark.parametrize("past_cache", [False, True])
async def test_a_buffer_that_was_written_may_change_its_size_whoever_looks_at_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, *, past_cache: bool
) -> None:
    file = DirectoryDisk(tmp_path / "disk").create("a")
    if past_cache:
        file.pass_by_cache()
    seen: list[object] = []

    def watched(descriptor: int, data: memoryview, offset: int) -> int:
        seen.extend(each for each in gc.get_objects() if type(each) is memoryview)
        return pwrite(descriptor, data[: size - 1] if not past_cache and not offset else data, offset)

    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", watched)
    buffer = bytearray(size)
    file.write(0, buffer)
    buffer.clear()
    assert seen
    assert file.size == size


async def test_a_read_hands_its_token_back(disk: Disk) -> None:
    file = disk.create("a")
    file.write(0, b"abc")
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    file.read(1, 5, lambda *call: done.set_result(call), "token")
    assert await done == ("token", b"bc", None)


async def test_cutting_and_extending_leave_zeros(disk: Disk) -> None:
    file = disk.create("a")
    file.write(0, b"x" * 9_000)
    file.truncate(3)
    file.truncate(6)
    assert contents(disk, "a") == b"xxx\0\0\0"
    file.write(8, b"y")
    assert contents(disk, "a") == b"xxx\0\0\0\0\0y"


async def test_every_opening_of_a_file_sees_the_same_bytes(disk: Disk) -> None:
    one = disk.create("a")
    other = disk.open("a")
    one.write(0, b"x")
    assert other.size == 1
    one.close()
    other.write(1, b"y")
    assert other.read_now(0, 9) == b"xy"


async def test_names_come_and_go_with_folders(disk: Disk) -> None:
    for path in ("top", "f/b", "f/a", "f/g/c"):
        disk.create(path)
    assert (disk.names(""), disk.folders("")) == (["top"], ["f"])
    assert (disk.names("f"), disk.folders("f")) == (["a", "b"], ["g"])
    assert (disk.names("missing"), disk.folders("missing")) == ([], [])
    disk.rename("f/g/c", "h/c")
    assert (disk.folders(""), disk.folders("f")) == (["f", "h"], [])
    disk.remove("h/c")
    assert disk.folders("") == ["f"]
    assert disk.exists("f/a")
    assert not disk.exists("h/c")


async def test_a_rename_replaces_what_had_the_name(disk: Disk) -> None:
    disk.create("old").write(0, b"old")
    disk.create("new").write(0, b"new")
    disk.rename("new", "old")
    assert (disk.names(""), contents(disk, "old")) == (["old"], b"new")


async def test_a_file_with_two_names_is_one_file_and_stays_until_its_last_name_goes(disk: Disk) -> None:
    file = disk.create("f/a")
    disk.link("f/a", "g/b")
    file.write(0, b"x")
    assert contents(disk, "g/b") == b"x"
    with pytest.raises(FileExists):
        disk.link("f/a", "g/b")
    with pytest.raises(NoSuchFile):
        disk.link("f/missing", "g/c")
    disk.rename("f/a", "g/b")
    assert (disk.names("f"), disk.names("g")) == (["a"], ["b"]), "a rename between them does nothing"
    disk.remove("f/a")
    assert (disk.names("f"), contents(disk, "g/b")) == ([], b"x")


async def test_who_has_a_removed_file_open_keeps_it(disk: Disk) -> None:
    file = disk.create("a")
    file.write(0, b"x")
    disk.remove("a")
    assert file.read_now(0, 1) == b"x"
    disk.create("a")
    assert contents(disk, "a") == b""


async def test_missing_and_existing_files_are_told(disk: Disk) -> None:
    disk.create("a")
    with pytest.raises(FileExists):
        disk.create("a")
    acts: list[Callable[[], object]] = [
        lambda: disk.open("b"),
        lambda: disk.remove("b"),
        lambda: disk.rename("b", "c"),
    ]
    for act in acts:
        with pytest.raises(NoSuchFile):
            act()
    assert disk.names("") == ["a"]


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/./b"])
async def test_paths_stay_on_the_disk(disk: Disk, path: str) -> None:
    with pytest.raises(ValueError, match="a path on a disk"):
        checked_path(path)
    disk.create("a")
    acts: list[Callable[[str], object]] = [disk.create, disk.open, disk.exists, disk.remove]
    for act in acts:
        with pytest.raises(ValueError, match="a path on a disk"):
            act(path)
    with pytest.raises(ValueError, match="a path on a disk"):
        disk.rename("a", path)
    assert disk.names("") == ["a"]


async def test_syncs_of_a_file_call_back_in_order_and_never_at_once(disk: Disk) -> None:
    file, calls = disk.create("a"), list[object]()
    for number in range(5):
        file.write(number, b"x")
        file.sync(lambda token, error: calls.append((token, error)), number)
    assert calls == []
    await until_synced(file)
    assert calls == [(number, None) for number in range(5)]


async def test_a_file_may_be_closed_while_it_is_synced(disk: Disk) -> None:
    file = disk.create("a")
    done = asyncio.get_running_loop().create_future()
    file.sync(lambda token, error: done.set_result((token, error)), 1)
    file.close()
    assert await done == (1, None)
    with pytest.raises(AssertionError, match="closed"):
        file.write(0, b"x")


async def test_a_folder_is_synced(disk: Disk) -> None:
    disk.create("f/a")
    for folder in ("f", ""):
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def tell(token: object, error: StorageError | None, done: asyncio.Future[object] = done) -> None:
            done.set_result((token, error))

        disk.sync_folder(folder, tell, folder)
        assert not done.done()
        assert await done == (folder, None)


async def test_nothing_calls_back_after_a_crash_and_the_bytes_stay(disk: Disk) -> None:
    file, calls = disk.create("a"), list[object]()
    file.write(0, b"x")
    for _ in range(3):
        file.sync(lambda *call: calls.append(call), None)
    disk.sync_folder("", lambda *call: calls.append(call), None)
    disk.crash(CrashMode.PROCESS)
    disk.crash(CrashMode.PROCESS)
    await until_synced(disk.open("a"))
    await asyncio.sleep(0.01)
    assert calls == []
    assert contents(disk, "a") == b"x"
    with pytest.raises(AssertionError):
        file.write(0, b"y")


async def test_a_callback_may_crash_the_disk(disk: Disk) -> None:
    file, calls = disk.create("a"), list[object]()

    def crash(token: object, _error: object) -> None:
        calls.append(token)
        disk.crash(CrashMode.PROCESS)

    file.sync(crash, 1)
    file.sync(crash, 2)
    await asyncio.sleep(0.05)
    assert calls == [1]


async def test_there_is_space(disk: Disk) -> None:
    capacity = disk.capacity()
    assert 0 < capacity.free <= capacity.total


async def test_nothing_written_beyond_the_end_is_nothing(disk: Disk) -> None:
    file = disk.create("a")
    file.write(9, b"")
    assert (file.size, contents(disk, "a")) == (0, b"")


@pytest.mark.parametrize("folder", ["never/was", "was/there"])
async def test_a_folder_that_is_not_there_has_no_names_to_be_synced(disk: Disk, folder: str) -> None:
    disk.create("was/there/file").close()
    disk.create("was/other").close()
    disk.remove("was/there/file")
    done = asyncio.get_running_loop().create_future()
    disk.sync_folder(folder, lambda token, error: done.set_result((token, error)), "token")
    assert await done == ("token", None)


async def test_the_names_of_new_folders_are_synced_once_with_those_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, synced, is_failing = tmp_path / "disk", list[int](), list[None]()
    disk = DirectoryDisk(root)

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        if is_failing:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)

    async def folder_synced(folder: str) -> list[str]:
        synced.clear()
        done = asyncio.get_running_loop().create_future()
        disk.sync_folder(folder, lambda _, error: done.set_result(error), None)
        assert (await done is not None) is bool(is_failing)
        names = {each.stat().st_ino: each.relative_to(root).as_posix() for each in (root, *root.rglob("*"))}
        return [names[inode] for inode in synced]

    disk.create("f/g/a").close()
    assert await folder_synced("f/g") == ["f/g", "f", "."]
    assert await folder_synced("f/g") == ["f/g"]
    disk.create("f/h/a").close()
    assert await folder_synced("f/g") == ["f/g"]
    assert await folder_synced("f/h") == ["f/h", "f"]
    disk.remove("f/h/a")
    disk.create("f/h/a").close()
    assert await folder_synced("f/h") == ["f/h", "f"], "it was made again"
    disk.create("f/i/a").close()
    is_failing.append(None)
    assert await folder_synced("f/i") == ["f/i"]
    is_failing.clear()
    assert await folder_synced("f/i") == ["f/i", "f"], "it failed before"


async def test_nothing_is_kept_of_folders_that_come_and_go(tmp_path: Path) -> None:
    disk = DirectoryDisk(tmp_path / "disk")

    async def come_and_go(number: int, *, is_synced: bool) -> None:
        disk.create(f"{number:x}/{number:x}/a").close()
        if is_synced:
            done = asyncio.get_running_loop().create_future()
            disk.sync_folder(f"{number:x}/{number:x}", lambda _, error: done.set_result(error), None)
            assert await done is None
        disk.remove(f"{number:x}/{number:x}/a")

    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, (deque, Path)) for each in gc.get_objects())

    await come_and_go(1, is_synced=True)
    before = kept()
    for number in range(2, 42):
        await come_and_go(number, is_synced=number % 2 == 0)
    assert kept() - before < 10


async def test_a_folder_without_files_is_removed(tmp_path: Path) -> None:
    disk = DirectoryDisk(tmp_path / "disk")
    disk.create("f/g/a").close()
    disk.rename("f/g/a", "h/a")
    assert sorted(path.name for path in disk.root.iterdir()) == ["h"]
    disk.remove("h/a")
    assert list(disk.root.iterdir()) == []


def test_a_folder_cannot_lose_power(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="POWER_LOSS"):
        DirectoryDisk(tmp_path).crash(CrashMode.POWER_LOSS)


# ------------------------------------------------------------------------------------- any sequence of operations

PATHS = st.sampled_from(["a", "b", "f/a", "f/g/b", "h/a"])
OFFSETS = st.sampled_from([0, 1, 511, 4_095, 4_096, 8_190, 20_000])
DATA = st.integers(0, 9_000).flatmap(lambda size: st.just(bytes(index % 251 + 1 for index in range(size))))


def listing(disk: Disk, folder: str) -> object:
    return disk.names(folder), disk.folders(folder)


class BothDisks(RuleBasedStateMachine):
    """Whatever is done to both disks comes out the same."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.disks: tuple[Disk, Disk] = (SimulatedDisk(), DirectoryDisk(Path(self.folder.name)))
        self.files: list[tuple[Any, Any]] = []

    def teardown(self) -> None:
        for disk in self.disks:
            disk.crash(CrashMode.PROCESS)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.folder.cleanup()

    def both(self, act: Callable[[Any], object], pairs: tuple[Any, Any]) -> tuple[object, object]:
        outcomes: list[object] = []
        for one in pairs:
            try:
                outcomes.append(act(one))
            except StorageError as error:
                outcomes.append(type(error))
        return outcomes[0], outcomes[1]

    def same(self, act: Callable[[Any], object], pairs: tuple[Any, Any] | None = None) -> None:
        one, other = self.both(act, pairs if pairs is not None else self.disks)
        assert one == other

    def opened(self, act: Callable[[Any], object]) -> None:
        one, other = self.both(act, self.disks)
        if isinstance(one, type) or isinstance(other, type):
            assert one is other
        else:
            self.files.append((one, other))

    @rule(path=PATHS)
    def create(self, path: str) -> None:
        self.opened(lambda disk: disk.create(path))

    @rule(path=PATHS)
    def open(self, path: str) -> None:
        self.opened(lambda disk: disk.open(path))

    @rule(path=PATHS, new=PATHS)
    def rename(self, path: str, new: str) -> None:
        self.same(lambda disk: disk.rename(path, new))

    @rule(path=PATHS, new=PATHS)
    def link(self, path: str, new: str) -> None:
        self.same(lambda disk: disk.link(path, new))

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        self.same(lambda disk: disk.remove(path))

    @precondition(lambda self: self.files)
    @rule(which=st.integers(0, 9), offset=OFFSETS, data=DATA)
    def write(self, which: int, offset: int, data: bytes) -> None:
        self.same(lambda file: file.write(offset, data), self.files[which % len(self.files)])

    @precondition(lambda self: self.files)
    @rule(which=st.integers(0, 9), size=OFFSETS)
    def truncate(self, which: int, size: int) -> None:
        self.same(lambda file: file.truncate(size), self.files[which % len(self.files)])

    @precondition(lambda self: self.files)
    @rule(which=st.integers(0, 9), offset=OFFSETS, size=OFFSETS)
    def read(self, which: int, offset: int, size: int) -> None:
        self.same(lambda file: file.read_now(offset, size), self.files[which % len(self.files)])

    @precondition(lambda self: self.files)
    @rule(which=st.integers(0, 9))
    def sync(self, which: int) -> None:
        for file in self.files[which % len(self.files)]:
            self.loop.run_until_complete(until_synced(file))

    @precondition(lambda self: self.files)
    @rule(which=st.integers(0, 9))
    def close(self, which: int) -> None:
        for file in self.files.pop(which % len(self.files)):
            file.close()

    @rule()
    def crash(self) -> None:
        self.files.clear()
        self.same(lambda disk: disk.crash(CrashMode.PROCESS))

    @invariant()
    def the_same_is_there(self) -> None:
        for folder in ("", "f", "f/g", "h"):
            self.same(partial(listing, folder=folder))
        for pair in self.files:
            self.same(lambda file: (file.path, file.size, file.read_now(0, file.size)), pair)


TestBothDisks = BothDisks.TestCase
TestBothDisks.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
