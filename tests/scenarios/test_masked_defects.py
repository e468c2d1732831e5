"""A defect that no history shows: runs notice it, and break nothing; the page says why."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from scenarios.history import Event, Kind, read_history
from scenarios.model import RunResult
from scenarios.plan import parse_plan
from scenarios.runner import run_plan
from scenarios.specification.histories.conformance import conform_history
from simbookie.storage.base import CrashMode, CrashReport
from simbookie.storage.memory import MemoryStorage
from tests.scenarios.played import where

#: A reader hears of the last entry by the explicit LAC; all bookies are killed, and another reader asks.
EXPLICIT_LAC = parse_plan(
    """
plan explicit-lac-and-restarts
summary a reader comes after bookies were restarted that had been told the last add confirmed
expect anything

cluster 3 3/3/2

client writer
  create a
  append a 6 window=1
  tell-lac a
  stay

client early
  until when APP_ACK actor=writer entry=5 after=0.5s
  open a
  ask-lac a
  read a last=5

client late
  until when READ_RESULT actor=early entry=5 after=1s
  open a
  ask-lac a
  read a

when READ_RESULT actor=early entry=5: crash bookie-0
when READ_RESULT actor=early entry=5: crash bookie-1
when READ_RESULT actor=early entry=5: crash bookie-2
when READ_RESULT actor=early entry=5 after=0.5s: restart bookie-0
when READ_RESULT actor=early entry=5 after=0.5s: restart bookie-1
when READ_RESULT actor=early entry=5 after=0.5s: restart bookie-2
""".lstrip(),
    "explicit-lac-and-restarts",
)


def played(plan: Any) -> tuple[RunResult, list[Event]]:
    with tempfile.TemporaryDirectory() as folder:
        result = run_plan(plan, 0, record=Path(folder))
        return result, read_history(result.path)[1]


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bookies keep explicit LACs in memory only."""
    kept: dict[tuple[int, int], bytes] = {}
    crash = MemoryStorage.crash

    def set_explicit_lac(self: MemoryStorage, ledger_id: int, lac: int, body: bytes, *told: Any) -> None:
        kept[id(self), ledger_id] = body
        self.force(ledger_id, *told)

    def explicit_lac(self: MemoryStorage, ledger_id: int) -> bytes | None:
        return kept.get((id(self), ledger_id))

    def crash_and_forget(self: MemoryStorage, mode: CrashMode) -> CrashReport:
        kept.clear()
        return crash(self, mode)

    monkeypatch.setattr(MemoryStorage, "set_explicit_lac", set_explicit_lac)
    monkeypatch.setattr(MemoryStorage, "explicit_lac", explicit_lac)
    monkeypatch.setattr(MemoryStorage, "crash", crash_and_forget)


@pytest.mark.rule("M40")
@pytest.mark.parametrize("forgets", [False, True])
def test_no_clause_is_broken_when_bookies_forget_an_explicit_lac(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if forgets:
        forgetful(monkeypatch)
    result, events = played(EXPLICIT_LAC)
    read = {
        name: [one.fields["entry"] for one in where(events, Kind.READ_RESULT, actor=name, code=0)]
        for name in ("early", "late")
    }
    assert read["early"] == [0, 1, 2, 3, 4, 5]
    assert read["late"] == ([0, 1, 2, 3, 4] if forgets else read["early"])
    assert (result.verdict, result.violations) == ("ok", ())
    assert conform_history(events).holds
