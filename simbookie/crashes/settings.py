"""How one run's bookie is configured, drawn by the run's own chance."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from simbookie.crashes.kinds import FOLDERS_OF_SEVERAL, SEVERAL_FOLDERS, StoreLimits
from simbookie.storage.compaction.plan import CompactionConfig, CompactionRule
from simbookie.storage.journal.settings import JournalSettings
from simbookie.storage.quirks import REPAIRED, Quirk

__all__ = ["RunSettings"]

_MINOR_S = 2.0
_MAJOR_S = 5.0
#: The part of runs in which an index in a database is written a few rows at a time.
_IN_FEW_ROWS = 0.3
#: The part of runs with ledgers that are deleted soon.
_DROPPING = 0.15
_MARK_GAPS_S = (0.0, 0.0, 0.002, 0.02)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Everything that differs between the bookies of two runs."""

    kind: str
    seed: int
    quirks: frozenset[Quirk] = REPAIRED
    journals: int = 1
    #: Whether a sync of a file makes names durable too.
    syncs_cover_names: bool = True
    sync_data: bool = True
    #: Whether journals have entries at all.
    write_data: bool = True
    #: Whether a fencing read that finds nothing is answered when its fence is durable.
    error_waits_for_fence: bool = True
    #: Seconds between looking at the marks of two journals when a checkpoint is due.
    mark_gap_s: float = 0.0
    in_transactions: bool = False
    backups_max: int = 0
    #: Whether operations of the disk fail now and then.
    has_faults: bool = False
    #: Whether the run is about compaction: entry logs fill up, ledgers are deleted, and lives end where logs are rewritten.
    is_compacting: bool = False
    #: Whether lives end with a slow sync of a journal, behind which files are filled.
    is_rolling: bool = False
    #: Whether there are many ledgers that are deleted soon, before their entries are written to a log.
    is_dropping: bool = False
    limits: StoreLimits = field(default_factory=StoreLimits)

    @classmethod
    def draw(cls, kind: str, seed: int, quirks: frozenset[Quirk]) -> RunSettings:
        """Those of a run."""
        rng, batches = Random(f"settings {seed}"), Random(f"batches {seed}")  # noqa: S311
        gaps = Random(f"gaps {seed}")  # noqa: S311
        return cls(
            kind,
            seed,
            quirks,
            journals=rng.choice([1, 1, 2]),
            syncs_cover_names=rng.random() < 0.5,
            sync_data=rng.random() >= 0.15 and Quirk.FORCE_WITHOUT_SYNC not in quirks,
            in_transactions=rng.random() < 0.5,
            backups_max=rng.choice([0, 0, 2]),
            has_faults=rng.random() < 0.3,
            is_compacting=rng.random() < 0.25,
            is_rolling=rng.random() >= 0.9 or Quirk.ROLLED_FILE_SYNCED_LATE in quirks,
            is_dropping=Random(f"drops {seed}").random() < _DROPPING,  # noqa: S311
            mark_gap_s=gaps.choice(_MARK_GAPS_S),
            limits=StoreLimits(batch_rows=2) if batches.random() < _IN_FEW_ROWS else StoreLimits(),
        )

    @property
    def folders(self) -> int:
        """How many folders the ledger store has."""
        return FOLDERS_OF_SEVERAL if self.kind.endswith(SEVERAL_FOLDERS) else 1

    @property
    def journal(self) -> JournalSettings:
        """Small files, in small steps."""
        return JournalSettings(
            preallocation_bytes=4_096,
            file_bytes_max=3_000,
            write_buffer_bytes=700,
            backups_max=self.backups_max,
            queue_size=20,
            sync_data=self.sync_data,
            write_data=self.write_data,
            page_cache_flush_interval_s=0.05,
            format_version=5 if Quirk.EXPLICIT_LAC_UNWRITTEN in self.quirks else 6,
        )

    @property
    def compaction(self) -> CompactionConfig:
        """Eager."""
        return CompactionConfig(
            CompactionRule(0.5, _MINOR_S),
            CompactionRule(0.95, _MAJOR_S),
            gc_interval_s=1.0,
            entries_per_s=10_000.0,
            moved_max=5,
            in_transactions=self.in_transactions and "per-ledger" not in self.kind,  # which exclude each other
            force_always=True,
        )
