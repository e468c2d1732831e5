"""What auto-recovery tells about its work, one event for each thing worth a line in a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bkclient.observability import log

__all__ = ["EventKind", "OnRepairEvent", "RepairEvent", "logged", "no_event"]


class EventKind(Enum):
    """What happened."""

    ELECTED = "elected"
    DEPOSED = "deposed"
    AUDITED = "audited"
    MARKED = "marked"
    CHECKED = "checked"
    CONFLICT = "conflict"
    REPLACED = "replaced"
    CLOSED = "closed"
    REPLICATED = "replicated"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RepairEvent:
    """Something happened, to a ledger or, with -1, to the program."""

    kind: EventKind
    ledger_id: int = -1
    detail: str = ""


OnRepairEvent = Callable[[RepairEvent], None]
"""Is called from the loop, must not wait, and must not raise."""


def no_event(event: RepairEvent) -> None:
    """Tell nobody."""


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
