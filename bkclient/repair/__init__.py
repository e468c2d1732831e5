"""Checking and repairing ledgers: what BookKeeper's administrators and its auto-recovery do.

:class:`~bkclient.repair.admin.RepairAdmin` does it once, on demand; :func:`~bkclient.repair.service.run_auto_recovery` all
the time. ``docs/repair.md`` explains both.
"""

from bkclient.repair.admin import RepairAdmin
from bkclient.repair.config import RepairConfig
from bkclient.repair.service import run_auto_recovery

__all__ = ["RepairAdmin", "RepairConfig", "run_auto_recovery"]
