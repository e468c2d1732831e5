"""What tests of journals share: a journal on a disk in memory, and who is called back when."""

from __future__ import annotations

import asyncio
from typing import Any

from simbookie.storage.base import StorageError
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.folders import Folder
from simbookie.storage.journal.journal import Journal
from simbookie.storage.journal.mark import LogMark
from simbookie.storage.journal.reader import JournalScan
from simbookie.storage.journal.records import JournalRecord, file_name, parse_body
from simbookie.storage.journal.replay import file_ids
from simbookie.storage.journal.settings import JournalSettings
from simbookie.storage.ledger_store import OnStep, no_step
from simbookie.storage.quirks import REPAIRED, Quirk
from tests.simbookie.storage.stores import entry

__all__ = ["Acknowledged", "JournalBench", "journal_records", "journal_settings"]


def journal_settings(**fields: Any) -> JournalSettings:
    """Small files on small steps."""
    return JournalSettings(**{"preallocation_bytes": 16_384, **fields})


class Acknowledged(list[tuple[object, float]]):
    """Takes callbacks: ``(token, time)``, and what failed."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[tuple[object, StorageError]] = []

    def __call__(self, token: object, error: StorageError | None) -> None:
        if error is None:
            self.append((token, round(asyncio.get_running_loop().time(), 6)))
        else:
            self.errors.append((token, error))

    @property
    def tokens(self) -> list[object]:
        return [token for token, _ in self]

    @property
    def times(self) -> list[float]:
        return [time for _, time in self]


class JournalBench:
    """A running journal and everyone it calls back. Ids of files begin with 1."""

    def __init__(
        self,
        settings: JournalSettings | None = None,
        disk: SimulatedDisk | None = None,
        *,
        sync_s: float = 0.0,
        memory_bytes_max: int = 0,
        mark: LogMark | None = None,
        quirks: frozenset[Quirk] = REPAIRED,
        on_step: OnStep = no_step,
    ) -> None:
        self.disk = disk if disk is not None else SimulatedDisk(costs=DiskCosts(sync_s=sync_s))
        self.folder = Folder(self.disk, "journal/current")
        self.settings = settings if settings is not None else journal_settings()
        self.acknowledged = Acknowledged()
        self.written = Acknowledged()
        self.failures: list[StorageError] = []
        self.journal = Journal(
            self.folder,
            self.settings,
            mark=mark if mark is not None else LogMark(),
            clock_ms=lambda: 0,
            memory_bytes_max=memory_bytes_max,
            quirks=quirks,
            on_failure=self.failures.append,
            on_step=on_step,
        )
        self.journal.start()

    async def opened(self) -> JournalBench:
        """Wait until the first file is there, and go to a full second."""
        await asyncio.sleep(1.0 - asyncio.get_running_loop().time() % 1.0)
        return self

    def add(self, *entry_ids: int, ledger_id: int = 7, size: int = 0, written: bool = False) -> None:
        """Queue entries; the token is the entry's id."""
        for entry_id in entry_ids:
            body = entry(ledger_id, entry_id, bytes(max(0, size - 32)))
            if written:
                self.journal.append(ledger_id, entry_id, body, None, entry_id, self.written)
            else:
                self.journal.append(ledger_id, entry_id, body, self.acknowledged, entry_id)

    def force(self, token: object = "force") -> bool:
        return self.journal.force(7, self.acknowledged, token)

    async def drained(self) -> None:
        done = asyncio.get_running_loop().create_future()
        self.journal.drain(lambda: done.set_result(None))
        await done

    def entries(self) -> list[int]:
        """The ids of the entries in the files, as the page cache has them."""
        return [record.entry_id for record in journal_records(self.folder)]


def journal_records(folder: Folder) -> list[JournalRecord]:
    """Every record in every file."""
    records: list[JournalRecord] = []
    for file_id in file_ids(folder):
        file = folder.open(file_name(file_id))
        scan = JournalScan(file)
        records += [parse_body(body, scan.version) for _, body in scan]
        file.close()
    return records
