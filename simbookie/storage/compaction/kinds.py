"""The two kinds of compaction."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["CompactionKind"]


class CompactionKind(Enum):
    """How much is compacted."""

    MINOR = auto()
    MAJOR = auto()
