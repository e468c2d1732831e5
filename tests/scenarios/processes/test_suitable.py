"""Which plans processes can play, and what is said of the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scenarios.plan import parse_plan, print_plan
from scenarios.plan.library import library_names, library_plan
from scenarios.processes import UnsuitablePlanError, problems_of, run_plan_with_processes

DOCS = Path(__file__).parents[3] / "docs" / "reference"
_DIES_AT = re.compile(r"at [^:]*: kill ")
_PLAN = """plan asks-too-much
expect anything

cluster 3 3/3/2 {cluster}

client writer
  create a
  append a 5

{step}
"""


def problem(step: str = "", cluster: str = "", *, records: bool = True) -> str:
    found = list(problems_of(parse_plan(_PLAN.format(step=step, cluster=cluster)), records=records))
    assert len(found) <= 1
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "at 1s: weather writer bookie-0 loss-probability=0.1",
            "step 'weather writer bookie-0 loss-probability=0.1': chance neither loses",
        ),
        ("at 1s: weather writer bookie-0 duplicate-probability=0.1", "chance neither loses nor doubles frames"),
        ("at 1s: crash bookie-0 mode=power-loss", "a process dies and its machine keeps its power"),
        ("at 1s: metadata conflict write writer", "single calls of a session"),
        ("at 1s: wipe bookie-0", "refuses a disk without its cookie"),
        ("at 1s: alter bookie-0 a", "not altered from outside"),
        ("at 1s: limbo bookie-0 a", "not altered from outside"),
        ("at 1s: cut-after writer bookie-0 100", "does not count bytes"),
        ("at 1s: half-open writer bookie-0", "ends both sides"),
        ("at 1s: slow-reader writer bookie-0", "reads what comes"),
        ("at 1s: disk-slow bookie-0", "share the disk"),
        ("at 1s: disk-full bookie-0", "share the disk"),
        ("at 1s: late-watches writer", "single calls of a session"),
        ("at 1s: kill writer before=add", "not killed at a step of its protocol"),
        ("at 1s: clock-jump writer 60s", "share the clock of their machine"),
        ("at 1s: clock-drift bookie-0 0.5", "share the clock of their machine"),
    ],
)
def test_a_step_that_asks_too_much_is_named(step: str, said: str) -> None:
    assert said in problem(step)


def test_clusters_that_processes_are_not_are_refused() -> None:
    assert "loses or doubles" in problem(cluster="\n  network loss-probability=0.1")
    assert "fail by chance" in problem(cluster="\n  metadata conflict-probability=0.1")
    assert "forget fences like db" in problem(cluster="forgets=db")


@pytest.mark.parametrize("line", ["uniform", "pct 3", "delay 2", "choices\n  writer>bookie-0 3:12"])
def test_a_schedule_is_refused(line: str) -> None:
    plan = parse_plan(_PLAN.format(step="", cluster="").replace("anything\n", f"anything\nschedule {line}\n"))
    (found,) = problems_of(plan, records=True)
    verb = line.split(maxsplit=1)[0]
    assert found == f"its schedule ({verb}) makes things late, and the machine decides when processes run"
    with pytest.raises(UnsuitablePlanError, match=r"asks-too-much cannot be played with processes: its schedule"):
        run_plan_with_processes(plan, 0)


@pytest.mark.parametrize(
    "step",
    [
        "at 1s: drop add writer bookie-0",
        "at 1s: hold add writer bookie-0 answers",
        "at 1s: delay add writer bookie-0 by=2s",
        "at 1s: duplicate add writer bookie-0",
        "at 1s: cut writer bookie-0 way=from",
        "at 1s: clog writer bookie-0",
        "at 1s: partition writer bookie-0,bookie-1",
        "at 1s: reset writer bookie-0",
        "at 1s: weather writer bookie-0 latency=0.1s slow-probability=0.5",
        "at 1s: crash bookie-0",
        "at 1s: pause bookie-0",
        "at 1s: kill writer",
        "at 1s: store-down",
        "at 1s: lose-session bookie-0",
    ],
)
def test_what_processes_can_do_is_not_refused(step: str) -> None:
    assert not problem(step, records=False)


def test_bookies_that_do_not_record_cannot_be_waited_for() -> None:
    step = "when BK_STORE actor=bookie-0: kill writer"
    assert not problem(step)
    assert "waits for BK_STORE, which these bookies do not record" in problem(step, records=False)
    assert not problem("when BK_CRASH actor=bookie-0: kill writer", records=False), "the director sees that"


def test_enough_plans_of_the_library_suit_both_kinds_of_bookies_and_the_pages_say_how_many() -> None:
    plans = [library_plan(name) for name in library_names()]
    ours, apaches = (sum(not list(problems_of(plan, records=records)) for plan in plans) for records in (True, False))
    assert apaches >= 30
    assert f"that are left, {ours} of {len(plans)}." in (DOCS / "plans.md").read_text(encoding="utf-8")
    assert f"# {apaches} fault plans with processes" in (DOCS / "interop.md").read_text(encoding="utf-8")


def test_nothing_is_started_for_a_plan_that_asks_too_much() -> None:
    with pytest.raises(UnsuitablePlanError, match="change-lost cannot be played with processes: step 'metadata"):
        run_plan_with_processes(library_plan("change-lost"), 0)


def test_no_client_of_the_library_dies_at_a_time_by_which_it_may_not_have_begun() -> None:
    """In virtual time it has; a process on a busy machine may take longer to connect than the plan gives it."""
    playable = [name for name in library_names() if not list(problems_of(library_plan(name), records=False))]
    assert [
        (name, line)
        for name in playable
        for line in print_plan(library_plan(name)).splitlines()
        if _DIES_AT.match(line)
    ] == []
