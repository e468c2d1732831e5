"""What long-running repairs tell about themselves while they run, for command lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

__all__ = ["OnProgress", "Progress", "Step", "no_progress"]


class Step(Enum):
    """What has just happened."""

    #: A ledger was looked at, and nothing is to be done for it.
    EXAMINED = "examined"
    #: A ledger was left alone although something is to be done; the detail says why.
    SKIPPED = "skipped"
    #: A dry run found a fragment that would get new bookies, or a ledger that would be closed.
    PLANNED = "planned"
    #: A ledger that was open was fenced, recovered and closed.
    CLOSED = "closed"
    #: An entry was copied; ``size`` is its bytes.
    COPIED = "copied"
    #: A fragment has new bookies.
    REPLACED = "replaced"
    #: A ledger could not be repaired; the detail is the error.
    FAILED = "failed"
    #: Something is waited for; the detail says what.
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a repair: of which ledger and fragment (its first entry), and -1 where there is none."""

    step: Step
    ledger_id: int = -1
    first_entry_id: int = -1
    detail: str = ""
    size: int = 0


OnProgress = Callable[[Progress], None]
"""Is called from the loop, must not wait, and must not raise."""


def no_progress(progress: Progress) -> None:
    """Tell nobody."""
