"""Ways to violations in small clusters, as plans that runs of the whole client take."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bkclient.protocol.adds import NewEntry
from scenarios.cli import exhaustive as cli_exhaustive
from scenarios.exhausting import Settings, exhaust
from scenarios.exhaustive.automata import Ask
from scenarios.exhaustive.configuration import CONFIGURATIONS, SmallCluster
from scenarios.exhaustive.traces import MoveKind, Trace, TracedMove
from scenarios.mutants import MACHINE_MUTANTS
from scenarios.plan import Plan, parse_plan, print_plan
from scenarios.runner import run_plan
from scenarios.traced_plans import Replayed, plan_of_trace, replayed
from tests.scenarios.test_cli import bk_chaos

PAGE = (Path(__file__).parents[2] / "docs/inside/exhaustive-search.md").read_text()
DEFECTS = dict(re.findall(r"^\| `(\S+)` \| `(\S+)` \| \S+ \(\S+\) \| [\d,]+ \| \d+ \|$", PAGE, re.MULTILINE))
RUNS = re.findall(r"^\| `(\S+)` \| (\d+) \| (\S+) \|$", PAGE, re.MULTILINE)


def traced(mutant: str, configuration: str, clause: str | None = None) -> tuple[Plan, str]:
    """The way to a violation as a plan, and the clause that it breaks."""
    settings = Settings(clauses=frozenset({clause}) if clause else None)
    found = exhaust(configuration, CONFIGURATIONS[configuration], settings, MACHINE_MUTANTS[mutant])
    assert found.trace is not None
    assert found.searched.found is not None
    broken = found.searched.found.broken.clause
    plan = plan_of_trace("traced", "a way to a violation", found.cluster, found.trace, broken)
    assert parse_plan(print_plan(plan), "traced") == plan
    return plan, broken


@pytest.mark.deep
@pytest.mark.parametrize(
    ("mutant", "configuration", "clause", "run"),
    [
        ("recovery-reads-do-not-fence", "both-copies", "A1", Replayed(0, "A1")),
        ("recovery-starts-below-last-fragment", "one-copy-change", "A1", Replayed(1, "A1")),
        ("recovery-lac-advances", "both-copies-close", "F5", Replayed(0, "F5")),
    ],
)
def test_a_run_takes_the_way_to_the_same_violation(mutant: str, configuration: str, clause: str, run: Replayed) -> None:
    """The two defects that Apache BookKeeper had up to 4.13, and the LAC of write-backs that advances."""
    plan, broken = traced(mutant, configuration, clause)
    assert broken == clause
    assert replayed(plan, clause, mutant) == run
    assert run_plan(plan, run.seed).violations == (), "without the defect nothing is broken"


@pytest.mark.deep
@pytest.mark.parametrize(("mutant", "seed", "clause"), RUNS)
def test_the_page_says_which_runs_take_a_way_and_what_they_break(mutant: str, seed: str, clause: str) -> None:
    plan, broken = traced(mutant, DEFECTS[mutant])
    assert replayed(plan, broken, mutant) == Replayed(int(seed), clause)
    assert run_plan(plan, int(seed)).violations == (), "without the defect nothing is broken"
    assert {clause, broken} <= set(MACHINE_MUTANTS[mutant].clauses) | {broken, "D3", "A4"}


def test_runs_take_the_ways_of_all_defects() -> None:
    assert [mutant for mutant, _, _ in RUNS] == list(DEFECTS)


def test_a_plan_has_the_moves_as_prose_and_a_step_for_each() -> None:
    """Of a trace made by hand: a request that a client gives up on, a crash, and writes to the metadata store."""
    add = Ask("a", "add", 0, fence=False, add=NewEntry(0, b"", -1, 0))
    read = Ask("b", "read", 0, fence=True, add=None)
    steps = (
        TracedMove(MoveKind.APPENDS, 0),
        TracedMove(MoveKind.GIVES_UP, 0, add),
        TracedMove(MoveKind.BEGINS, 1),
        TracedMove(MoveKind.STORES, 1, state="IN_RECOVERY"),
        TracedMove(MoveKind.IS_TOLD, 1),
        TracedMove(MoveKind.REFUSES, 0, state="OPEN"),
        TracedMove(MoveKind.TELLS, 0),
        TracedMove(MoveKind.ARRIVES, 1, read),
        TracedMove(MoveKind.HEARS, 1, read),
        TracedMove(MoveKind.CRASHES, 1, read),
        TracedMove(MoveKind.CLOSES, 0),
    )
    trace = Trace(("one", "two"), (), steps, ((0, add), (1, read)), ((1, "IN_RECOVERY"), (0, "OPEN")))
    cluster = SmallCluster(2, 2, 2, bookies=3, recoveries=1)
    text = print_plan(plan_of_trace("traced", "by hand", cluster, trace))
    assert text.startswith("# 1. one\n# 2. two\nplan traced\n")
    assert "cluster 3 2/2/2" in text
    assert "  timeouts read=30s\n" in text, "adds are given up after a second, as usual"
    steps_told = [line for line in text.splitlines() if line.startswith("when ")]
    assert steps_told == [
        "when ADD_RESP actor=writer entry=0 bookie=bookie-0: start recoverer",
        "when META_READ actor=recoverer: end m5",
        "when META_CAS actor=recoverer after=0.05s cause=recover outcome=ok: end m6",
        "when META_CAS actor=writer cause=ensemble outcome=conflict: end m7",
        "when META_READ actor=writer: end m3",
        "when BK_ANSWER actor=bookie-1 source=recoverer operation=recovery-read entry=0: end m4",
        "when REC_READ_RESP actor=recoverer entry=0 bookie=bookie-1: crash bookie-1",
        "when CLOSE_START actor=writer after=0.05s: end m2",
        "when CLOSE_START actor=writer after=0.05s: end m8",
        "when CLOSE_START actor=writer after=0.1s: heal",
    ]
    assert "at 0s as m8: metadata hold-answer read writer" in text, "the writer has not heard it at the end"
    assert "  until when BK_CRASH actor=bookie-1\n  close a\n  stay" in text


WRITER = {number: Ask("a", "add", number, fence=False, add=NewEntry(number, b"", -1, 0)) for number in range(2)}
BOTH = (TracedMove(MoveKind.APPENDS, 0), TracedMove(MoveKind.APPENDS, 0), TracedMove(MoveKind.GIVES_UP, 0, WRITER[1]))


def steps_of(*steps: TracedMove) -> list[str]:
    trace = Trace(tuple("x" for _ in steps), (), steps, ((0, WRITER[0]), (0, WRITER[1])), ((0, "OPEN"),))
    text = print_plan(plan_of_trace("traced", "by hand", SmallCluster(1, 1, 1, bookies=2, recoveries=0), trace))
    return [line for line in text.splitlines() if line.startswith(("when ", "at ", "  timeouts"))]


def test_a_writer_that_gives_up_on_one_of_two_adds_is_refused_it() -> None:
    told = steps_of(*BOTH, TracedMove(MoveKind.ARRIVES, 0, WRITER[0]), TracedMove(MoveKind.HEARS, 0, WRITER[0]))
    assert told[0] == "  timeouts add=30s read=30s", "it waits for the other one"
    assert told[-7:] == [
        "when APP_ADD actor=writer nth=2 as r1: read-only bookie-0",
        "when APP_ADD actor=writer nth=2: end m3",
        "when BK_ANSWER actor=bookie-0 source=writer operation=add entry=1: end r1",
        "when BK_ANSWER actor=bookie-0 source=writer operation=add entry=1: end m4",
        "when ADD_RESP actor=writer entry=1 bookie=bookie-0: end m1",
        "when BK_ANSWER actor=bookie-0 source=writer operation=add entry=0: end m2",
        "when ADD_RESP actor=writer after=0.1s entry=0 bookie=bookie-0: heal",
    ]


@pytest.mark.parametrize(
    "rest",
    [(), (TracedMove(MoveKind.ARRIVES, 0, WRITER[1]), TracedMove(MoveKind.HEARS, 0, WRITER[0]))],
    ids=["and hears no other", "and it arrives later"],
)
def test_a_writer_that_gives_up_on_an_add_otherwise_has_waited_for_it(rest: tuple[TracedMove, ...]) -> None:
    told = steps_of(*BOTH, *rest)
    assert told[0] == "  timeouts read=30s"
    assert not any("read-only" in line for line in told)


@pytest.mark.parametrize(("between", "held"), [((), False), ((TracedMove(MoveKind.HEARS, 0, WRITER[0]),), True)])
def test_an_answer_of_the_store_is_held_back_if_something_comes_between(
    between: tuple[TracedMove, ...], held: bool
) -> None:
    told = steps_of(
        TracedMove(MoveKind.APPENDS, 0),
        TracedMove(MoveKind.STORES, 0, state="OPEN"),
        *between,
        TracedMove(MoveKind.IS_TOLD, 0),
        TracedMove(MoveKind.APPENDS, 0),
    )
    assert ("at 0s as m6: metadata hold-answer change writer" in told) is held
    assert any(line.endswith(": end m6") for line in told) is held


def test_a_plan_whose_runs_break_nothing_says_so() -> None:
    cluster = SmallCluster(1, 1, 1, bookies=1, recoveries=0)
    plan = plan_of_trace("traced", "nothing", cluster, Trace(("one",), (), (TracedMove(MoveKind.APPENDS, 0),)))
    assert [line for line in print_plan(plan).splitlines() if line.startswith("client ")] == ["client writer"]
    assert run_plan(plan, 0).verdict == "ok"


@pytest.mark.deep
def test_the_command_writes_plans_and_says_how_to_play_them(tmp_path: Path) -> None:
    arguments = ("exhaustive", "both-copies", "--mutant", "recovery-reads-do-not-fence", "--clause", "A1")
    shown = bk_chaos(*arguments, "--plans", tmp_path / "plans")
    assert shown.exit_code == 1
    played = re.search(r"  bk-chaos (run \S+ --seed 0 --mutant \S+)    breaks A1", shown.output.replace("\n  ", "\n  "))
    assert played is not None
    run = bk_chaos(*played.group(1).split())
    assert run.exit_code == 1
    assert "NoLacTruncation (A1)" in run.output
    told = json.loads(bk_chaos(*arguments, "--plans", tmp_path, "--json").output)
    path = tmp_path / "both-copies-recovery-reads-do-not-fence-a1.scn"
    assert told["plans"] == [{"configuration": "both-copies", "path": str(path), "seed": 0, "clause": "A1"}]
    path.unlink()
    (tmp_path / "file").write_text("")
    refused = bk_chaos(*arguments, "--plans", tmp_path / "file")
    assert refused.exit_code == 2
    assert "cannot be written" in refused.output


@pytest.mark.deep
def test_the_page_shows_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(
        r"^```console\n\$ bk-chaos (.*?) \|\|.*?\n\.\.\.\n(.*?)exit code 1\n```$", PAGE, re.MULTILINE | re.DOTALL
    )
    command, told = block
    monkeypatch.chdir(tmp_path)
    shown = bk_chaos(*command.split())
    assert shown.exit_code == 1
    assert shown.output.endswith(told)


@pytest.mark.deep
def test_a_way_that_no_run_takes_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_exhaustive, "replayed", lambda *_: None)
    shown = bk_chaos("exhaustive", "one-copy", "--mutant", "acks-after-close", "--plans", tmp_path)
    assert "no run of 64 seeds breaks a clause" in shown.output
    assert list(tmp_path.glob("*.scn"))
