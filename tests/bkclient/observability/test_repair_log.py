"""Auto-recovery tells the log what it tells its listener."""

from __future__ import annotations

import logging

import pytest

from bkclient.repair.events import EventKind, RepairEvent, logged


def test_every_event_of_auto_recovery_is_a_line_and_still_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.repair")
    told: list[RepairEvent] = []
    tell = logged(told.append)
    for kind in EventKind:
        tell(RepairEvent(kind, 7, "something"))
    tell(RepairEvent(EventKind.ELECTED))
    assert [event.kind for event in told] == [*EventKind, EventKind.ELECTED]
    assert len(caplog.records) == len(told)
    assert caplog.records[-1].getMessage() == "auto-recovery: elected"
    assert caplog.records[-1].ledger_id is None  # type: ignore[attr-defined]
    failed = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in failed] == ["ledger 7: something"]
    assert failed[0].ledger_id == 7  # type: ignore[attr-defined]
