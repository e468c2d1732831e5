"""Settings of auto-recovery: BookKeeper's defaults under BookKeeper's keys."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bkclient.config.fields import setting_of
from bkclient.errors import ArgumentError
from bkclient.repair.config import RepairConfig

#: As BookKeeper's configuration reference has them.
BOOKKEEPERS_DEFAULTS = {
    "lostBookieRecoveryDelay": "0",
    "auditorPeriodicBookieCheckInterval": "86400",
    "auditorPeriodicCheckInterval": "604800",
    "auditorPeriodicPlacementPolicyCheckInterval": "0",
    "auditorPeriodicReplicasCheckInterval": "0",
    "auditorLedgerVerificationPercentage": "0",
    "auditorMaxNumberOfConcurrentOpenLedgerOperations": "500",
    "auditorAcquireConcurrentOpenLedgerOperationsTimeoutMSec": "120000",
    "openLedgerRereplicationGracePeriod": "30000",
    "lockReleaseOfFailedLedgerGracePeriod": "300000",
    "rwRereplicateBackoffMs": "5000",
    "rereplicationEntryBatchSize": "10",
    "replicationRateByBytes": "-1",
    "underreplicatedLedgerRecoveryGracePeriod": "0",
    "inFlightReadEntryNumInLedgerChecker": "-1",
}


def test_the_defaults_are_bookkeepers() -> None:
    assert RepairConfig.from_properties(BOOKKEEPERS_DEFAULTS) == RepairConfig()


def test_bookkeepers_keys_are_read_in_its_units_and_others_passed_over() -> None:
    config = RepairConfig.from_properties(
        {
            "openLedgerRereplicationGracePeriod": "1500",
            "replicationRateByBytes": 1000,
            "repairedPlacementPolicyNotAdheringBookieEnable": "true",
            "journalDirectory": "/data",
        }
    )
    assert config == RepairConfig(open_ledger_grace_s=1.5, copy_bytes_per_s=1000, mark_non_adherent_ledgers=True)


@pytest.mark.parametrize("value", ["soon", "-1", "1001000000000"])
def test_a_value_that_a_key_cannot_have_is_refused(value: str) -> None:
    with pytest.raises(ArgumentError):
        RepairConfig.from_properties({"lostBookieRecoveryDelay": value})


def test_settings_by_name_are_checked_and_misspelt_ones_refused() -> None:
    assert RepairConfig.of({"batch_entries": 3}).batch_entries == 3
    with pytest.raises(ArgumentError, match="did you mean batch_entries"):
        RepairConfig.of({"batch_entrys": 3})
    with pytest.raises(ArgumentError, match="verification_percentage"):
        RepairConfig(verification_percentage=101)


def test_the_page_for_operators_has_every_setting_with_its_default_and_its_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "using" / "repair.md").read_text()
    rows = [
        line.strip("| ").split(" | ") for line in page.split("## Settings")[1].splitlines() if line.startswith("| `")
    ]
    listed = [(row[0].strip("`"), row[1], row[2].strip("`") if row[2].startswith("`") else None) for row in rows]
    expected = [(field.name, shown(field.default), setting_of(field).key) for field in dataclasses.fields(RepairConfig)]
    assert listed == expected


def shown(default: object) -> str:
    if default is None or isinstance(default, bool):
        return "off" if default is False else "none"
    return str(int(default)) if isinstance(default, (int, float)) else str(default)
