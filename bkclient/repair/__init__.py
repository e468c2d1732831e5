"""Checking and repairing ledgers: what BookKeeper's administrators and its auto-recovery do.

:class:`~bkclient.repair.admin.RepairAdmin` does it once, on demand; :func:`~bkclient.repair.service.run_auto_recovery` all
the time. ``docs/using/repair.md`` explains both.
"""

from bkclient.repair.admin import RepairAdmin
from bkclient.repair.bookie_recovery import BookieRecoveryFailed, BookieRecoveryReport
from bkclient.repair.config import RepairConfig
from bkclient.repair.events import EventKind, OnRepairEvent, RepairEvent
from bkclient.repair.findings import BadPosition, Flaw, FragmentReport, LedgerReport
from bkclient.repair.replicas import ReplicaReport, Shortage
from bkclient.repair.restoring import RestoredCopies
from bkclient.repair.service import run_auto_recovery
from bkclient.repair.underreplication.marks import CheckKind, LedgerLock, LedgerMark, UnderReplication
from bkclient.wire.availability import EntryAvailability

__all__ = [
    "BadPosition",
    "BookieRecoveryFailed",
    "BookieRecoveryReport",
    "CheckKind",
    "EntryAvailability",
    "EventKind",
    "Flaw",
    "FragmentReport",
    "LedgerLock",
    "LedgerMark",
    "LedgerReport",
    "OnRepairEvent",
    "RepairAdmin",
    "RepairConfig",
    "RepairEvent",
    "ReplicaReport",
    "RestoredCopies",
    "Shortage",
    "UnderReplication",
    "run_auto_recovery",
]
