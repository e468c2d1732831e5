"""Plans with schedules: determinism, replay without a draw, shrinking, and the text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scenarios.cli.app import app
from scenarios.history import History
from scenarios.model import RunResult, TransportKind
from scenarios.plan import Plan, PlanError, parse_plan, print_plan
from scenarios.plan.library import library_plan
from scenarios.plan.named import plan_named
from scenarios.plan.schedule import (
    ChosenSchedule,
    DelaySchedule,
    PctSchedule,
    PlanSchedule,
    UniformSchedule,
    late_turns,
    parse_schedule,
    schedule_word,
    strand_lines,
)
from scenarios.replaying import replay_history
from scenarios.runner import run_plan
from scenarios.shrinking import shrink

ROOT = Path(__file__).parents[2]
SCHEDULES = [UniformSchedule(), PctSchedule(3, turns=300), DelaySchedule(4, turns=300)]
RACE = """
plan race
expect anything

cluster 4 3/3/2

client writer
  create a
  append a 6 window=4
  close a

client recoverer
  open a recover attempts=3
  read a

client rival
  open a recover attempts=3
  read a

when APP_ACK actor=writer entry=3 maybe: start recoverer
when APP_ACK actor=writer entry=3 maybe after=0.002s: start rival
"""
ONE_RECOVERY = """
plan one-recovery
expect anything

cluster 3 3/3/2
  network jitter=0s

client writer
  create a
  append a 2 window=2

client recoverer
  open a recover attempts=3

when APP_ACK actor=writer maybe: start recoverer
"""


def raced(schedule: PlanSchedule | None, seed: int = 1, **options: object) -> RunResult:
    return run_plan(replace(parse_plan(RACE), schedule=schedule), seed, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", TransportKind)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.verb)
def test_a_run_comes_out_the_same_again_and_from_what_was_chosen(
    schedule: PlanSchedule, transport: TransportKind, tmp_path: Path
) -> None:
    usual = raced(None, transport=transport)
    first = raced(schedule, transport=transport, record=tmp_path)
    assert first.choices
    assert not any("final-" in strand for strand in first.choices), "it has ended when these clients read back"
    assert first.digest != usual.digest
    again = raced(schedule, transport=transport)
    assert (again.digest, again.choices) == (first.digest, first.choices)
    chosen = raced(ChosenSchedule(late_turns(first.choices)), seed=1, transport=transport)
    assert (chosen.digest, chosen.choices) == (first.digest, first.choices)
    replayed = replay_history(Path(first.path))
    assert replayed.is_same
    assert replayed.result.choices == first.choices


def test_replaying_asks_no_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(raced(SCHEDULES[1], record=tmp_path).path)

    def draws(*_: object) -> None:
        raise AssertionError("drawn again")

    monkeypatch.setattr(PctSchedule, "policy", draws)
    assert replay_history(path).is_same


def test_a_history_holds_what_was_chosen_and_others_have_no_word_of_it(tmp_path: Path) -> None:
    def read(schedule: PlanSchedule | None) -> tuple[RunResult, History]:
        result = raced(schedule, record=tmp_path / str(schedule))
        history = History(Path(result.path))
        assert not history.choices, "they are at its end"
        assert list(history.events())
        return result, history

    result, history = read(SCHEDULES[2])
    assert list(history.choices) == strand_lines(late_turns(result.choices)) != []
    assert read(None)[1].choices == ()


def test_other_processes_with_other_hash_seeds_make_the_same_runs() -> None:
    program = (
        "import json, sys\n"
        "from tests.scenarios.test_schedules import SCHEDULES, TransportKind, raced\n"
        "print(json.dumps([raced(s, transport=t).digest for s in SCHEDULES for t in TransportKind]))\n"
    )
    here = [raced(schedule, transport=transport).digest for schedule in SCHEDULES for transport in TransportKind]
    made = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    assert json.loads(made.stdout) == here


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.verb)
def test_the_shipped_client_holds_whatever_is_late(schedule: PlanSchedule) -> None:
    for seed in range(6):
        result = run_plan(replace(plan_named("swarm-live", seed), schedule=schedule), seed)
        assert (result.verdict, result.violations, result.problem) == ("ok", (), ""), f"seed {seed}"


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.verb)
def test_the_shipped_client_holds_whatever_is_late_with_many_seeds(schedule: PlanSchedule) -> None:
    for seed in range(300):
        result = run_plan(replace(plan_named("swarm-live", seed), schedule=schedule), seed)
        assert (result.verdict, result.violations, result.problem) == ("ok", (), ""), f"seed {seed}"


@pytest.mark.deep
def test_a_defect_that_needs_things_late_shrinks_to_few_late_things() -> None:
    """It needs that in the smallest cluster, too; others show without it when one bookie is enough for an entry."""
    mutant = "recovery-closes-before-write-back"
    plan = replace(parse_plan(ONE_RECOVERY), schedule=UniformSchedule())
    assert not run_plan(replace(plan, schedule=None), 0, mutant=mutant).violations
    before = run_plan(plan, 0, mutant=mutant)
    shrunk = shrink(plan, 0, mutant=mutant)
    small = shrunk.failure
    assert not shrunk.stopped
    assert isinstance(small.plan.schedule, ChosenSchedule)
    assert sum(map(len, before.choices.values())) > 50
    assert len(small.plan.schedule.late) <= 3
    assert run_plan(small.plan, small.seed, mutant=mutant).violations
    assert run_plan(replace(small.plan, schedule=None), small.seed, mutant=mutant).violations == ()


def test_a_schedule_that_does_not_matter_is_taken_back() -> None:
    plan = replace(library_plan("fence-lost-late-add"), schedule=DelaySchedule(1))
    assert shrink(plan, 0, mutant="recovery-reads-do-not-fence").failure.plan.schedule is None


# The text ----------------------------------------------------------------------------------------------------------


def scheduled(lines: str) -> Plan:
    return parse_plan(RACE.replace("expect anything\n", f"expect anything\n{lines}\n"), "x.scn")


def test_choices_are_lines_for_strands() -> None:
    text = "schedule choices\n  writer>bookie-0 3:12,9:1\n  recoverer 0:4"
    plan = scheduled(text)
    assert text in print_plan(plan)
    assert parse_plan(print_plan(plan, full=True)) == plan


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("schedule pc 3", "expected pct"),
        ("schedule", "expected uniform or pct or delay or choices, found 'the end of the line'"),
        ("schedule pct", "expected depth, found the end of the line"),
        ("schedule pct 0", "expected depth from 1"),
        ("schedule delay 1 moment=3s", "expected moment > 0s and at most 2s"),
        ("schedule choices", "expected turns of a schedule, each once"),
        ("schedule choices\n  writer 1:1\n  writer 1:2", "expected turns of a schedule, each once"),
        ("schedule choices\n  writer 1", "expected STRAND NUMBER:PASSES"),
        ("schedule choices\n  writer 1:0", "passes >= 1"),
        ("schedule uniform\nschedule uniform", "expected schedule once, found it twice"),
        ("schedule uniform\n  writer 1:1", "expected a line that is not indented"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_line(lines: str, problem: str) -> None:
    with pytest.raises(PlanError, match=r"x\.scn:\d+: ") as refused:
        scheduled(lines)
    assert problem in str(refused.value)


# the option of commands ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "schedule"),
    [("uniform", UniformSchedule()), ("pct:3", PctSchedule(3)), ("delay:2", DelaySchedule(2)), ("", None)],
)
def test_a_word_stands_for_a_policy(word: str, schedule: PlanSchedule | None) -> None:
    assert schedule_word(schedule) == word
    if word:
        assert parse_schedule(word) == schedule


@pytest.mark.parametrize(
    "word", ["", "random", "uniform:1", "pct", "pct:", "pct:x", "pct:-1", "delay:12345678", "pct:0"]
)
def test_a_word_that_stands_for_no_policy_is_refused(word: str) -> None:
    with pytest.raises(PlanError, match="expected"):
        parse_schedule(word)


def test_a_run_and_a_sweep_take_a_policy() -> None:
    plain = CliRunner().invoke(app, ["run", "swarm-live", "--seed", "1", "--json"])
    late = CliRunner().invoke(app, ["run", "swarm-live", "--seed", "1", "--schedule", "pct:3", "--json"])
    assert (plain.exit_code, late.exit_code) == (0, 0)
    assert json.loads(plain.stdout)["digest"] != json.loads(late.stdout)["digest"]
    swept = CliRunner().invoke(
        app, ["sweep", "--scenario", "swarm-live", "--seeds", "3", "--schedule", "delay:2", "--processes", "1"]
    )
    assert swept.exit_code == 0, swept.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "dead-writer", "--schedule", "uniform"], "a schedule is for plans"),
        (["run", "two-recoverers", "--schedule", "soon"], "--schedule: expected uniform, pct:DEPTH or delay:DELAYS"),
        (["sweep", "--scenario", "dead-writer", "--schedule", "uniform"], "a schedule is for plans"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 2
    assert said in ended.output
