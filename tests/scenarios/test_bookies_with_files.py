"""Bookies of plans that keep files: killed at steps of their storage, compacting; what memory and files exclude."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.history import History, Kind
from scenarios.mutants import MUTANTS
from scenarios.plan import Plan, PlanError, parse_plan
from scenarios.plan.faults import Crash
from scenarios.plan.library import library_plan
from scenarios.plan.triggers import When
from scenarios.plan.words import flag_word
from scenarios.runner import run_plan, run_scenario
from simbookie.storage.base import CrashMode
from simbookie.storage.kinds import StoreKind

LIFE = """
plan life
expect safe
end a 19

cluster 4 3/3/2 store=sorted
  network jitter=0.001s

client writer
  create a
  must append a 20 pause=0.02s
  must close a

client reader
  until when CLOSE_RESULT actor=writer
  must open a
  must read a

when APP_ACK entry=5 as dies: crash a@0 mode=power-loss
when BK_CRASH after=0.1s: restart a@0
"""


def life(store: StoreKind = StoreKind.SORTED, fault: str = "crash a@0 mode=power-loss") -> Plan:
    text = LIFE.replace("store=sorted", f"store={flag_word(store)}").replace("crash a@0 mode=power-loss", fault)
    return parse_plan(text)


@pytest.mark.parametrize("store", StoreKind)
def test_a_bookie_of_every_kind_comes_back_with_what_it_acknowledged(store: StoreKind) -> None:
    result = run_plan(life(store), 0)
    assert (result.verdict, result.problem) == ("ok", "")
    assert result.met["bookie-back-before-close"]


def test_a_run_with_files_comes_out_the_same_again() -> None:
    assert run_plan(life(StoreKind.DB), 5).digest == run_plan(life(StoreKind.DB), 5).digest
    assert run_plan(life(StoreKind.DB), 5).digest != run_plan(life(StoreKind.DB), 6).digest


@pytest.mark.parametrize("step", ["journal.flush", "journal.sync", "journal.acknowledge"])
@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_bookie_dies_before_a_step_of_its_storage(step: str, mode: CrashMode, tmp_path: Path) -> None:
    plan = life(fault=f"crash a@0 mode={flag_word(mode)} before={step} number=2")
    result = run_plan(plan, 1, record=tmp_path)
    assert (result.verdict, result.problem) == ("ok", "")
    events = list(History(Path(result.path)).events())
    (fault,) = [event for event in events if event.kind == Kind.FAULT and event.fields["phase"] == "begin"]
    assert (fault.fields["fault"], fault.fields["detail"].split()[-2:]) == ("dies", [f"before={step}", "number=2"])
    (crash,) = [event for event in events if event.kind == Kind.BK_CRASH]
    assert crash.actor == fault.fields["target"]
    assert crash.seq > fault.seq


def test_a_step_that_does_not_come_leaves_the_run_without_a_verdict() -> None:
    plan = life(fault="crash a@0 before=compaction.remove")
    result = run_plan(replace(plan, steps=plan.steps[:1], patience_s=1.0), 0)
    assert result.verdict == "unknown"
    assert re.search(r"bookie-\d did not come to the step compaction.remove", result.problem)


def on_files(name: str, store: StoreKind | None) -> Plan:
    """A plan of the library with other bookies."""
    plan = library_plan(name)
    return replace(plan, cluster=replace(plan.cluster, store=store))


@pytest.mark.parametrize("store", [None, *StoreKind])
@pytest.mark.parametrize(
    ("mutant", "clause"), [("rot-counts-as-denial", "A1"), ("digests-are-not-verified", "D9"), (None, None)]
)
def test_a_copy_rots_in_memory_and_in_files(store: StoreKind | None, mutant: str | None, clause: str | None) -> None:
    result = run_plan(on_files("corrupt-entry-in-files", store), 0, mutant=mutant)
    assert result.met["altered-copy"]
    broken = {violation.clause for violation in result.violations}
    assert broken >= {clause} if clause else result.verdict == "ok"


@pytest.mark.parametrize("store", [None, *StoreKind])
@pytest.mark.parametrize(("mutant", "clause"), [("one-denial-decides", "E3"), (None, None)])
def test_entries_are_lost_in_memory_and_in_files(
    store: StoreKind | None, mutant: str | None, clause: str | None
) -> None:
    result = run_plan(on_files("lost-entries-in-files", store), 0, mutant=mutant)
    assert result.met["denied-after-loss"]
    broken = {violation.clause for violation in result.violations}
    assert broken >= {clause} if clause else result.verdict == "ok"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("crash a@0 number=2", "expected before=... with a number, found none"),
        ("crash a@0 before=journal.sync number=0", "expected a number >= 1, found 0"),
        ("foreign-cookie a@0", "expected a cluster with cookies for foreign-cookie, found one without"),
    ],
)
def test_what_bookies_with_files_cannot_suffer_is_refused(line: str, found: str) -> None:
    with pytest.raises(PlanError, match=re.escape(found)):
        life(fault=line)


@pytest.mark.parametrize("line", ["compact a@0", "crash a@0 before=journal.sync"])
def test_what_only_bookies_with_files_can_suffer_is_refused(line: str) -> None:
    with pytest.raises(PlanError, match=re.escape("expected a cluster with store=...")):
        parse_plan(LIFE.replace(" store=sorted", "").replace("crash a@0 mode=power-loss", line))


def test_bookies_keep_files_or_forget_fences() -> None:
    with pytest.raises(PlanError, match="expected bookies that keep files or forget fences, found both"):
        parse_plan(LIFE.replace("store=sorted", "store=sorted forgets=db"))


def test_settings_of_files_that_no_storage_takes_are_refused() -> None:
    with pytest.raises(PlanError, match="memtable_bytes must be"):
        parse_plan(LIFE.replace("jitter=0.001s", "jitter=0.001s\n  files memtable-bytes=0"))


def test_a_restart_ends_whatever_killed_the_bookie() -> None:
    """Two deaths, one after the other, end with one restart each."""
    plan = life()
    first, back = plan.steps
    assert isinstance(first.trigger, When)
    assert isinstance(back.trigger, When)
    second = replace(first, name="again", fault=Crash(first.fault.hosts[0], before="journal.sync"))
    second = replace(second, trigger=replace(first.trigger, after_s=0.5))
    result = run_plan(replace(plan, steps=(first, second, replace(back, trigger=replace(back.trigger, times=2)))), 0)
    assert result.violations == ()


@pytest.mark.parametrize(
    ("plan", "mutant"),
    [
        pytest.param("torn-group", "journal-acknowledges-before-sync", marks=pytest.mark.rule("M43")),
        pytest.param("eviction-keeps-fence", "bookie-forgets-fence-when-evicted", marks=pytest.mark.rule("M44")),
        pytest.param("listing-omits-ledger", "bookie-believes-listings", marks=pytest.mark.rule("M52")),
        pytest.param("surplus-copy-is-needed-again", "bookie-drops-what-it-got-again", marks=pytest.mark.rule("M53")),
        pytest.param(
            "compaction-crash-after-index", "compaction-moves-before-it-flushes", marks=pytest.mark.rule("M54")
        ),
    ],
)
def test_the_plan_of_a_defect_of_bookies_shows_it_and_finds_none_in_ours(plan: str, mutant: str) -> None:
    assert run_scenario(plan, 3).verdict == "ok"
    broken = {violation.clause for violation in run_scenario(plan, 3, mutant=mutant).violations}
    assert broken & set(MUTANTS[mutant].clauses)
