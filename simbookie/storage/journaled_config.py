"""Settings of a storage with journals."""

from __future__ import annotations

from dataclasses import dataclass, field

from simbookie.storage.compaction.plan import CompactionConfig
from simbookie.storage.journal.settings import JournalSettings
from simbookie.storage.space import SpaceConfig

__all__ = ["JournaledConfig"]


@dataclass(frozen=True, slots=True)
class JournaledConfig:
    """Settings of a :class:`~simbookie.storage.journaled.JournaledStorage`."""

    journal: JournalSettings = field(default_factory=JournalSettings)
    #: Between checkpoints, for stores that do not ask for them (``flushInterval``).
    flush_interval_s: float = 10.0
    #: Seconds between looking at the marks of two journals then: BookKeeper's thread may stand still there.
    mark_gap_s: float = 0.0
    space: SpaceConfig = field(default_factory=SpaceConfig)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)

    def __post_init__(self) -> None:
        if not self.flush_interval_s > 0:
            raise ValueError(f"storage: flush_interval_s must be > 0, got {self.flush_interval_s}")
        if not self.mark_gap_s >= 0:
            raise ValueError(f"storage: mark_gap_s must be >= 0, got {self.mark_gap_s}")
