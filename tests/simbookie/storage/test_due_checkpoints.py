"""Checkpoints at intervals over several journals, whose marks are not looked at all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from simbookie.storage.base import CrashMode
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journal.mark import LogMark
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from tests.simbookie.storage.journals import Acknowledged, journal_settings
from tests.simbookie.storage.stores import entry

Virtually = Callable[[Callable[[], Any]], None]
INTERVAL_S = 10.0


class TwoJournals:
    """A storage with a database and two journals: ledger 2 is in the first, ledger 1 in the second."""

    def __init__(self, gap_s: float) -> None:
        self.disk = SimulatedDisk(Random(1), costs=DiskCosts(sync_s=0.001))
        self.steps: list[tuple[str, float]] = []
        ledgers = Folder(self.disk, "ledgers/current")
        self.storage = JournaledStorage(
            [Folder(self.disk, f"journal{index}/current") for index in range(2)],
            [ledgers],
            DbLedgerStore(Folders([ledgers], Random(1)), DbConfig(write_cache_bytes=1 << 20)),
            JournaledConfig(
                journal=journal_settings(group_wait_max_s=0), flush_interval_s=INTERVAL_S, mark_gap_s=gap_s
            ),
            on_step=lambda name: self.steps.append((name, asyncio.get_running_loop().time())),
        )

    async def opened(self) -> TwoJournals:
        done = asyncio.get_running_loop().create_future()
        self.storage.open(lambda: done.set_result(None), lambda _: None)
        await done
        self.began = asyncio.get_running_loop().time()
        self.steps.clear()
        for ledger_id in (1, 2):
            if self.storage.ledger(ledger_id) is None:
                self.storage.set_master_key(ledger_id, b"key")
        return self

    async def at(self, seconds: float) -> None:
        """Wait until so long after the start."""
        await asyncio.sleep(self.began + seconds - asyncio.get_running_loop().time())

    async def add(self, entry_id: int) -> None:
        """One to each ledger."""
        acknowledged = Acknowledged()
        for ledger_id in (1, 2):
            self.storage.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id), acknowledged, ledger_id)
        await asyncio.sleep(0.1)
        assert set(acknowledged.tokens) == {1, 2}

    @property
    def checkpoints(self) -> list[float]:
        """When they began, since the start."""
        return [round(time - self.began, 3) for name, time in self.steps if name == "checkpoint.store"]

    @property
    def persisted(self) -> list[LogMark]:
        assert self.storage.checkpoints is not None
        return list(self.storage.checkpoints.persisted)

    @property
    def marks(self) -> list[LogMark]:
        return [journal.mark for journal in self.storage.journals]

    async def closed(self) -> None:
        done = asyncio.get_running_loop().create_future()
        self.storage.shutdown(lambda: done.set_result(None))
        await done


def test_marks_are_looked_at_one_after_the_other(virtually: Virtually) -> None:
    async def story() -> None:
        both = await TwoJournals(gap_s=2.0).opened()
        await both.at(9)
        await both.add(0)
        first = both.marks[0]
        await both.at(11)
        await both.add(1)
        await both.at(13)
        assert both.checkpoints == [12.0]
        assert both.persisted == [first, both.marks[1]]
        assert first < both.marks[0]
        both.storage.crash(CrashMode.POWER_LOSS)
        await both.opened()
        assert [both.storage.entry_ids(ledger_id) for ledger_id in (1, 2)] == [[0, 1], [0, 1]]

    virtually(story)


def test_without_a_gap_they_are_looked_at_at_once(virtually: Virtually) -> None:
    async def story() -> None:
        both = await TwoJournals(gap_s=0.0).opened()
        await both.add(0)
        await both.at(10.5)
        assert both.checkpoints == [10.0]
        assert both.persisted == both.marks

    virtually(story)


def test_a_look_that_takes_longer_than_the_interval_is_not_begun_anew(virtually: Virtually) -> None:
    async def story() -> None:
        both = await TwoJournals(gap_s=25.0).opened()
        await both.at(100)
        assert both.checkpoints == [35.0, 65.0, 95.0]

    virtually(story)


def test_an_end_in_between_is_the_last_checkpoint(virtually: Virtually) -> None:
    async def story() -> None:
        both = await TwoJournals(gap_s=2.0).opened()
        await both.at(11)
        await both.closed()
        assert both.checkpoints == [11.0]
        await both.at(30)
        assert both.checkpoints == [11.0], "nothing goes on"

    virtually(story)


def test_a_crash_in_between_ends_it(virtually: Virtually) -> None:
    async def story() -> None:
        both = await TwoJournals(gap_s=2.0).opened()
        await both.at(11)
        both.storage.crash(CrashMode.PROCESS)
        await both.at(30)
        assert both.checkpoints == []

    virtually(story)
