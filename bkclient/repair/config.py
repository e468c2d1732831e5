"""Settings of auto-recovery and of repairs: one frozen, validated object.

Names carry their units and durations are seconds. Defaults are those of BookKeeper's own auto-recovery, except where the
comment beside them says why not. ``docs/using/repair.md`` explains every setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from bkclient.config.fields import number, off, setting_of, whole
from bkclient.config.group import SettingsGroup, settings_class
from bkclient.errors import ArgumentError

__all__ = ["RepairConfig"]

_MS: Final = 0.001
_MIB: Final = 1024 * 1024
_DAY_S: Final = 86_400.0


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class RepairConfig(SettingsGroup):
    """How ledgers are checked and repaired. Wrong values and unknown names raise :class:`~bkclient.errors.ArgumentError`."""

    # Auditing. Intervals of 0 switch a check off.
    lost_bookie_recovery_delay_s: int = whole(0, key="lostBookieRecoveryDelay", low=0, high=2**31 - 1)
    bookie_check_interval_s: float = number(_DAY_S, key="auditorPeriodicBookieCheckInterval", low=0)
    ledger_check_interval_s: float = number(7 * _DAY_S, key="auditorPeriodicCheckInterval", low=0)
    placement_check_interval_s: float = number(0.0, key="auditorPeriodicPlacementPolicyCheckInterval", low=0)
    replica_check_interval_s: float = number(0.0, key="auditorPeriodicReplicasCheckInterval", low=0)
    mark_non_adherent_ledgers: bool = off(key="repairedPlacementPolicyNotAdheringBookieEnable")
    under_replicated_grace_s: float = number(0.0, key="underreplicatedLedgerRecoveryGracePeriod", low=0)
    max_concurrent_ledger_checks: int = whole(500, key="auditorMaxNumberOfConcurrentOpenLedgerOperations", low=1)
    ledger_check_wait_s: float = number(
        120.0, key="auditorAcquireConcurrentOpenLedgerOperationsTimeoutMSec", factor=_MS, low=0.001
    )
    # Checking. BookKeeper bounds the reads of its checker only if told to; a bound costs nothing and saves bookies from a flood.
    verification_percentage: float = number(0.0, key="auditorLedgerVerificationPercentage", low=0, high=100)
    max_checker_reads_in_flight: int = whole(
        512, key="inFlightReadEntryNumInLedgerChecker", low=1, off_below=1, off=512
    )
    # Copying
    batch_entries: int = whole(10, key="rereplicationEntryBatchSize", low=1, high=10_000)
    max_copy_bytes_in_flight: int = whole(32 * _MIB, low=1)
    copy_bytes_per_s: float | None = number(
        None, key="replicationRateByBytes", low=1, off_below=1, off=None, optional=True
    )
    # Working
    open_ledger_grace_s: float = number(30.0, key="openLedgerRereplicationGracePeriod", factor=_MS, low=0)
    failed_ledger_lock_release_s: float = number(
        300.0, key="lockReleaseOfFailedLedgerGracePeriod", factor=_MS, low=0.001
    )
    rereplicate_backoff_s: float = number(5.0, key="rwRereplicateBackoffMs", factor=_MS, low=0.001)
    #: A worker without work looks again after so long; it is told of the first mark, but not of all.
    idle_poll_s: float = number(10.0, low=0.001)
    #: Ledgers a worker keeps locked while it waits for their grace periods and back-offs.
    max_deferred_ledgers: int = whole(1000, low=1)
    #: Failures of the metadata service in a row after which a worker or an auditor gives up.
    max_metadata_failures: int = whole(10, low=1)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """The configuration that BookKeeper's keys say; keys of a bookie's other settings are passed over.

        Bookies and auto-recovery share one file in BookKeeper, so a key that is unknown here is no mistake.
        """
        settings: dict[str, Any] = {}
        for field in fields(cls):
            setting = setting_of(field)
            if setting.key is not None and setting.key in properties:
                try:
                    settings[field.name] = setting.from_property(properties[setting.key])
                except ValueError as error:
                    raise ArgumentError(f"{setting.key} {error}") from error
        return cls(**settings)
