"""Storages and stores of a run, on the disk of its bookie or on copies of it."""

from __future__ import annotations

from random import Random
from typing import Any

from simbookie.crashes.kinds import STORE_KINDS
from simbookie.crashes.settings import RunSettings
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.ledger_store import LedgerStore
from simbookie.storage.steps import OnStep, no_step

__all__ = ["journal_folders", "ledger_folders", "storage_on", "store_on"]


def journal_folders(settings: RunSettings, disk: SimulatedDisk) -> list[Folder]:
    """Where the journals are."""
    return [Folder(disk, f"journal{index}/current") for index in range(settings.journals)]


def ledger_folders(settings: RunSettings, disk: SimulatedDisk) -> list[Folder]:
    """Where everything else is."""
    return [Folder(disk, f"ledgers{index or ''}/current") for index in range(settings.folders)]


def store_on(settings: RunSettings, disk: SimulatedDisk, on_step: OnStep = no_step) -> LedgerStore:
    """The ledger store of a run on ``disk``, which may be a copy."""
    folders = Folders(ledger_folders(settings, disk), Random(settings.seed))  # noqa: S311
    return STORE_KINDS[settings.kind](folders, settings.limits, on_step, settings.quirks)


def storage_on(
    settings: RunSettings, disk: SimulatedDisk, on_step: OnStep = no_step, **options: Any
) -> JournaledStorage:
    """The same with journals."""
    return JournaledStorage(
        journal_folders(settings, disk),
        ledger_folders(settings, disk),
        store_on(settings, disk, on_step),
        JournaledConfig(
            journal=settings.journal,
            flush_interval_s=0.05,
            mark_gap_s=settings.mark_gap_s,
            compaction=settings.compaction,
        ),
        quirks=settings.quirks,
        on_step=on_step,
        **options,
    )
