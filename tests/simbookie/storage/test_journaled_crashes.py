"""Whatever step a crash comes before, and whatever of the unsynced survives it: what was acknowledged is there afterwards."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode, StorageError, StorageIOError, WriteCacheFull
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.ledger_store import CrashPoint, LedgerStore
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sorted import SortedConfig, SortedLedgerStore
from tests.simbookie.storage.journals import journal_settings
from tests.simbookie.storage.stores import entry, read_by, run_to_crash_point, small_databases

KEY = b"key"
LEDGERS = (0, 1, 300)


@dataclass
class Promises:
    """What a client may rely on, whatever happens."""

    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    fences: set[int] = field(default_factory=set)
    #: The LACs that may be found: the last one acknowledged, and those that came later.
    lacs: dict[int, list[int]] = field(default_factory=dict)
    next_ids: Counter[int] = field(default_factory=Counter)

    def add(self, token: tuple[int, int, bytes], error: StorageError | None) -> None:
        if error is None:
            self.entries[token[:2]] = token[2]

    def fence(self, ledger_id: int, error: StorageError | None) -> None:
        if error is None:
            self.fences.add(ledger_id)

    def lac(self, token: tuple[int, int], error: StorageError | None) -> None:
        ledger_id, lac = token
        if error is None:
            self.lacs[ledger_id] = [later for later in self.lacs[ledger_id] if later >= lac]

    async def check(self, storage: JournaledStorage) -> None:
        for (ledger_id, entry_id), body in self.entries.items():
            found = await read_by(partial(storage.read_entry, ledger_id, entry_id))
            assert found == body, f"entry {entry_id} of ledger {ledger_id} is not what was acknowledged"
        for ledger_id in sorted({ledger_id for ledger_id, _ in self.entries} | self.fences):
            info = storage.ledger(ledger_id)
            assert info is not None
            assert info.master_key == KEY, f"ledger {ledger_id} has no key"
            assert info.fenced or ledger_id not in self.fences, f"ledger {ledger_id} is not fenced any more"
        for ledger_id, lacs in self.lacs.items():
            if lacs[0] >= 0:
                packet = storage.explicit_lac(ledger_id)
                assert packet is not None, f"the explicit LAC of ledger {ledger_id} is gone"
                assert struct.unpack(">qq", packet)[1] in lacs


class Machine:
    """A storage on a disk over several lives."""

    def __init__(self, *, kind: str, seed: int, journals: int, quirks: frozenset[Quirk], names: bool) -> None:
        costs = DiskCosts(sync_s=0.001, at_a_time=3)
        self.disk = SimulatedDisk(Random(seed), costs=costs, sync_covers_names=names)
        self.promises = Promises()
        self.countdown = 0
        self.until = ""
        self.mode = CrashMode.PROCESS
        folders = 2 if kind == "db in two folders" else 1
        ledgers = [Folder(self.disk, f"ledgers{index}/current") for index in range(folders)]
        journal = journal_settings(
            preallocation_bytes=4_096, file_bytes_max=3_000, write_buffer_bytes=700, backups_max=0, queue_size=20
        )
        self.storage = JournaledStorage(
            [Folder(self.disk, f"journal{index}/current") for index in range(journals)],
            ledgers,
            self.store(kind, Folders(ledgers, Random(seed)), quirks),
            JournaledConfig(journal=journal),
            quirks=quirks,
            on_step=self.step,
        )

    def store(self, kind: str, folders: Folders, quirks: frozenset[Quirk]) -> LedgerStore:
        log = EntryLogConfig(log_size_max=3_000, write_buffer_bytes=500)
        interleaved = InterleavedConfig(entry_log=log)
        if kind.startswith("db"):
            size = 3_000 * len(folders.all)
            db_config = DbConfig(write_cache_bytes=size, read_cache_bytes=2_000, batch_rows_max=3, entry_log=log)
            databases = small_databases(self.step)
            return DbLedgerStore(folders, db_config, databases=databases, on_step=self.step, quirks=quirks)
        if kind == "interleaved":
            return InterleavedLedgerStore(folders, interleaved, on_step=self.step, quirks=quirks)
        config = SortedConfig(memtable_bytes=1_500, interleaved=interleaved)
        return SortedLedgerStore(folders, config, on_step=self.step, quirks=quirks)

    def step(self, name: str) -> None:
        self.countdown -= 1
        if self.countdown == 0 or name == self.until:
            self.storage.crash(self.mode)
            raise CrashPoint(name)

    def live_until(self, step: str, mode: CrashMode = CrashMode.PROCESS) -> None:
        """Open, and die before ``step``."""
        self.mode, self.until = mode, step
        assert run_to_crash_point(partial(self.life, [("wait", 1.0)])) == step
        self.until = ""

    def live(self, operations: list[tuple[Any, ...]], crash_at: int, mode: CrashMode) -> str | None:
        """Open, check, do ``operations``, and die, at the latest in the end; returns the step at which it came earlier."""
        self.countdown, self.mode = crash_at, mode
        reached = run_to_crash_point(partial(self.life, operations))
        self.countdown = 0
        return reached

    async def life(self, operations: list[tuple[Any, ...]]) -> None:
        opened = asyncio.get_running_loop().create_future()
        self.storage.open(lambda: opened.set_result(None), lambda _: None)
        await opened
        await self.promises.check(self.storage)
        for operation, *arguments in operations:
            await getattr(self, operation)(*arguments)
            if operation == "end":
                return
        self.storage.crash(self.mode)

    async def end(self) -> None:
        ended = asyncio.get_running_loop().create_future()
        self.storage.shutdown(lambda: ended.set_result(None))
        await ended

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def known(self, ledger_id: int) -> None:
        info = self.storage.ledger(ledger_id)
        if info is None or info.master_key is None:
            self.storage.set_master_key(ledger_id, KEY)

    async def add(self, ledger_id: int, size: int) -> None:
        entry_id = self.promises.next_ids[ledger_id]
        self.promises.next_ids[ledger_id] += 1
        content = entry(ledger_id, entry_id, bytes([1 + entry_id % 200]) * size, lac=entry_id - 1)
        while True:
            self.known(ledger_id)
            try:
                self.storage.add_entry(ledger_id, entry_id, content, self.promises.add, (ledger_id, entry_id, content))
            except WriteCacheFull:
                await asyncio.sleep(0.01)
            else:
                return

    async def fence(self, ledger_id: int) -> None:
        self.known(ledger_id)
        self.storage.fence(ledger_id, self.promises.fence, ledger_id)

    async def lac(self, ledger_id: int) -> None:
        self.known(ledger_id)
        lacs = self.promises.lacs.setdefault(ledger_id, [-1])
        lac = lacs[-1] + 1
        lacs.append(lac)
        self.storage.set_explicit_lac(
            ledger_id, lac, struct.pack(">qq", ledger_id, lac), self.promises.lac, (ledger_id, lac)
        )


ADDS = st.tuples(st.just("add"), st.sampled_from(LEDGERS), st.sampled_from([0, 8, 100, 180, 400, 900]))
OPERATIONS = st.one_of(
    ADDS,
    ADDS,
    ADDS,
    st.tuples(st.just("fence"), st.sampled_from(LEDGERS)),
    st.tuples(st.just("lac"), st.sampled_from(LEDGERS)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.0005, 0.003, 0.05])),
)
LIVES = st.lists(
    st.tuples(
        st.lists(OPERATIONS, max_size=25),
        st.integers(1, 120),
        st.sampled_from(list(CrashMode)),
    ),
    min_size=1,
    max_size=5,
)
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.parametrize("kind", ["interleaved", "sorted", "db", "db in two folders"])
@settings(SLOW, max_examples=40)
@given(lives=LIVES, seed=st.integers(0, 1_000), journals=st.sampled_from([1, 2]), names=st.booleans())
def test_what_was_acknowledged_is_there_after_any_crashes(
    kind: str, lives: list[tuple[Any, ...]], seed: int, journals: int, *, names: bool
) -> None:
    machine = Machine(kind=kind, seed=seed, journals=journals, quirks=REPAIRED, names=names)
    for operations, crash_at, mode in lives:
        machine.live(operations, crash_at, mode)
    assert machine.live([], 0, CrashMode.PROCESS) is None


@pytest.mark.parametrize("is_faithful", [False, True])
def test_a_mark_does_not_outlive_the_file_that_it_names(*, is_faithful: bool) -> None:
    quirks = frozenset({Quirk.REPLAYED_FILES_UNSYNCED}) if is_faithful else REPAIRED
    machine = Machine(kind="interleaved", seed=1, journals=1, quirks=quirks, names=False)
    machine.live([("wait", 1.0)], 0, CrashMode.PROCESS)
    # the next file is made, but its name is not durable
    machine.live_until("journal.header")
    machine.live([], 0, CrashMode.POWER_LOSS)
    if is_faithful:
        with pytest.raises(StorageIOError, match="is missing"):
            machine.live([], 0, CrashMode.PROCESS)
    else:
        machine.live([], 0, CrashMode.PROCESS)


def test_the_name_of_an_index_file_is_made_durable_by_the_next_life_of_the_bookie() -> None:
    machine = Machine(kind="interleaved", seed=1, journals=1, quirks=REPAIRED, names=False)
    machine.live([("add", 0, 8), ("wait", 0.05)], 0, CrashMode.PROCESS)
    assert len(machine.promises.entries) == 1
    machine.live_until("index.sync")
    machine.live([], 0, CrashMode.POWER_LOSS)
    machine.live([], 0, CrashMode.PROCESS)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["interleaved", "sorted", "db"])
@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_crash_before_every_step_of_one_story_loses_nothing(kind: str, mode: CrashMode) -> None:
    story: list[tuple[Any, ...]] = []
    for number in range(8):
        story += [("add", 0, 400), ("wait", 0.003), ("add", 1, 180), ("wait", 0.003)]
        if number in (3, 6):
            story += [("fence", number), ("lac", 1), ("wait", 0.05)]
    seen: Counter[str] = Counter()
    for crash_at in range(1, 1_000):
        machine = Machine(kind=kind, seed=crash_at, journals=1, quirks=REPAIRED, names=crash_at % 2 == 0)
        machine.live(story[:8], 0, CrashMode.PROCESS)
        reached = machine.live(story, crash_at, mode)
        assert machine.live([("add", 0, 8)], 0, mode) is None
        assert machine.live([], 0, CrashMode.PROCESS) is None
        if reached is None:
            break
        seen[reached] += 1
    expected = {
        *(
            f"journal.{step}"
            for step in ("create", "header", "flush", "written", "sync", "synced", "acknowledge", "remove")
        ),
        *(f"mark.{step}" for step in ("open", "truncate", "write", "sync")),
        *(f"checkpoint.{step}" for step in ("store", "marks", "done")),
        *("open.replay", "open.sync", "open.flush", "flush.logs", "flush.done", "log.roll"),
        *(("flush.swap", "flush.locations", "flush.ledgers") if kind == "db" else ("flush.index",)),
    }
    assert expected - set(seen) == set()


@pytest.mark.parametrize("is_faithful", [False, True])
@pytest.mark.parametrize("ends", ["killed", "in order"])
def test_a_fence_that_came_alone_outlives_the_checkpoint_after_it(*, ends: str, is_faithful: bool) -> None:
    quirks = frozenset({Quirk.IDLE_CHECKPOINT_SKIPPED}) if is_faithful else REPAIRED
    machine = Machine(kind="db", seed=1, journals=1, quirks=quirks, names=True)
    machine.live([("add", 1, 8), ("wait", 11.0)], 0, CrashMode.PROCESS)
    end = [("end",)] if ends == "in order" else [("wait", 11.0)]
    machine.live([("fence", 1), ("wait", 0.05), *end], 0, CrashMode.PROCESS)
    assert machine.promises.fences == {1}
    if is_faithful:
        with pytest.raises(AssertionError, match="is not fenced any more"):
            machine.live([], 0, CrashMode.PROCESS)
    else:
        machine.live([], 0, CrashMode.PROCESS)


@pytest.mark.parametrize("is_faithful", [False, True])
def test_a_mark_that_a_kill_cut_does_not_come_back_with_the_power(*, is_faithful: bool) -> None:
    """Entries before it were durable; a replay from no mark moves them, and the power fails before that is durable."""
    quirks = frozenset({Quirk.MARKS_IN_PLACE, Quirk.COPIES_REPLACED_EARLY}) if is_faithful else REPAIRED

    def lives() -> None:
        for seed in range(50):
            machine = Machine(kind="interleaved", seed=seed, journals=1, quirks=quirks, names=False)
            machine.live([*[("add", 300, 400)] * 2, ("wait", 1.0)], 0, CrashMode.PROCESS)
            machine.live([("wait", 1.0)], 0, CrashMode.PROCESS)  # what was replayed is durable, and the mark says so
            machine.live_until("mark.write")
            machine.live_until("flush.logs", CrashMode.POWER_LOSS)
            machine.live([], 0, CrashMode.PROCESS)

    if is_faithful:
        with pytest.raises(AssertionError, match="is not what was acknowledged"):
            lives()
    else:
        lives()


def test_a_lac_that_was_written_and_not_synced_is_synced_when_it_is_replayed() -> None:
    machine = Machine(kind="interleaved", seed=1, journals=1, quirks=REPAIRED, names=True)
    machine.live([("add", 0, 8), ("wait", 0.05)], 0, CrashMode.PROCESS)
    machine.live([("wait", 0.05), ("lac", 0), ("wait", 0.05)], 0, CrashMode.PROCESS)
    assert machine.promises.lacs[0] == [0]
    machine.live_until("index.sync")  # its header is in the page cache
    machine.live([], 0, CrashMode.POWER_LOSS)
    machine.live([], 0, CrashMode.PROCESS)
