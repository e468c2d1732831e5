"""What repairs tell about themselves while they run: those that an administrator asked for, and auto-recovery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bkclient.observability import log

__all__ = ["EventKind", "OnRepairEvent", "RepairEvent", "logged", "no_event"]


class EventKind(Enum):
    """What happened.

    Administrators are told of every ledger, fragment and entry; auto-recovery tells what is worth a line in a log.
    """

    ELECTED = "elected"
    DEPOSED = "deposed"
    AUDITED = "audited"
    MARKED = "marked"
    CHECKED = "checked"
    CONFLICT = "conflict"
    #: A ledger was looked at, and nothing is to be done for it.
    EXAMINED = "examined"
    #: A ledger was left alone although something is to be done; the detail says why.
    SKIPPED = "skipped"
    #: A dry run found a fragment that would get new bookies, or a ledger that would be closed.
    PLANNED = "planned"
    #: An entry was copied; ``size`` is its bytes.
    COPIED = "copied"
    #: A fragment has new bookies.
    REPLACED = "replaced"
    #: A ledger that was open was fenced, recovered and closed.
    CLOSED = "closed"
    REPLICATED = "replicated"
    #: Something is waited for; the detail says what.
    WAITING = "waiting"
    #: A ledger could not be repaired; the detail is the error.
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RepairEvent:
    """Something happened, to a ledger or, with -1, to the program; to the fragment from ``first_entry_id`` on, if not -1."""

    kind: EventKind
    ledger_id: int = -1
    detail: str = ""
    first_entry_id: int = -1
    size: int = 0


OnRepairEvent = Callable[[RepairEvent], None]
"""Is called from the loop, must not wait, and must not raise."""


def no_event(event: RepairEvent) -> None:
    """Ignore the event."""


def logged(on_event: OnRepairEvent) -> OnRepairEvent:
    """Write every event to the log (``bkclient.repair``), then tell ``on_event``."""

    def tell(event: RepairEvent) -> None:
        subject = "auto-recovery" if event.ledger_id < 0 else f"ledger {event.ledger_id}"
        ledger_id = None if event.ledger_id < 0 else event.ledger_id
        write = log.REPAIR_FAILED if event.kind is EventKind.FAILED else log.REPAIR_ACTION
        what = f"{event.kind.value} {event.detail}".rstrip()
        write(ledger_id=ledger_id, subject=subject, what=what, kind=event.kind.value, detail=event.detail)
        on_event(event)

    return tell
