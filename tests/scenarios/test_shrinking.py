"""A failing plan is made smaller while the same clause breaks, until nothing more can be left out."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from scenarios.cli.app import app
from scenarios.history import History
from scenarios.model import TransportKind
from scenarios.mutants import RUN_MUTANTS
from scenarios.plan import Plan, parse_plan, print_plan
from scenarios.plan.library import library_plan
from scenarios.plan.words import Sizes
from scenarios.runner import run_plan
from scenarios.shrinking import ShrinkBounds, ShrinkError, Shrunk, parts, shrink, values
from scenarios.shrinking.minimal import minimal
from tests.scenarios.arbitrary_plans import PLANS

#: The recovery asks for the LAC only: what bookies were not told yet is lost.
pytestmark = pytest.mark.deep  # a search for each, of seconds

MUTANT = "recovery-closes-at-found-lac"
#: Of all this, the first append matters: in the end every ledger is recovered.
BUSY = """
# Much happens here.
plan busy
summary appends, and a recovery among other things
expect safe
meets recovery

cluster 5 3/3/2
  network jitter=0.004s
  timeouts add=0.5s

client writer
  create a
  append a 7 window=3
  sleep 0.5s
  append a 2

# It is not needed.
client reader
  open a
  read a

client recoverer
  create b
  append b 3
  open a recover
  read a

when APP_ACK entry=6: start recoverer
when APP_ACK entry=0 as slow: weather writer bookie-4 latency=0.05s
at 0.3s: end slow
at 0.1s as cold: crash bookie-3
at 1.5s: end cold
when REC_DECIDE maybe: reset reader bookie-1
"""
#: All copies are lost, which no client survives.
LOST = """
plan lost
cluster 2 2/2/2
client writer
  create a
  append a 3
at 1s: reset writer bookie-0
at 2s: wipe bookie-0
at 2s: wipe bookie-1
"""


@pytest.fixture(scope="module")
def shrunk() -> Shrunk:
    return shrink(parse_plan(BUSY), 5, mutant=MUTANT, clause="A1")


def breaks(plan: Plan, seed: int, mutant: str = MUTANT, clause: str = "A1") -> bool:
    return clause in {violation.clause for violation in run_plan(plan, seed, mutant=mutant or None).violations}


# What comes of it --------------------------------------------------------------------------------------------------


def test_what_is_left_breaks_the_same_clause_with_the_defect_and_nothing_without(shrunk: Shrunk) -> None:
    failure = shrunk.failure
    plan = parse_plan(print_plan(failure.plan))
    assert plan == failure.plan
    assert breaks(plan, failure.seed)
    assert run_plan(plan, failure.seed).verdict == "ok"
    assert (shrunk.stopped, failure.clause, failure.seed) == ("", "A1", 0)
    assert (shrunk.origin.size, failure.size) == (16, 2)
    assert (plan.cluster.bookies, plan.cluster.sizes) == (1, Sizes(1, 1, 1))


def test_what_is_left_says_what_it_shows(shrunk: Shrunk) -> None:
    plan = shrunk.failure.plan
    assert plan.name == "busy-shrunk"
    assert plan.summary == f"breaks A1 with seed 0 with the defect {MUTANT}"
    assert plan.prose[0] == (
        f"Made smaller from busy, seed 5. Breaks NoLacTruncation (A1) with seed 0 with the defect {MUTANT}:"
    )
    assert " ".join(plan.prose[1:]) == shrunk.failure.witness


def test_nothing_more_can_be_left_out() -> None:
    result = shrink(library_plan("fence-lost-late-add"), 0, mutant="recovery-reads-do-not-fence")
    plan, places = result.failure.plan, parts.calls_of(result.failure.plan)
    assert (len(plan.steps), len(places)) == (4, 3)
    makers: list[Callable[[], Plan]] = [
        *(partial(parts.with_steps, plan, [step for step in plan.steps if step is not gone]) for gone in plan.steps),
        *(partial(parts.with_clients, plan, set(plan.client_names) - {name}) for name in plan.client_names),
        *(partial(parts.with_calls, plan, set(places) - {place}) for place in places),
    ]
    for make in makers:
        assert not breaks(make(), result.failure.seed, "recovery-reads-do-not-fence"), print_plan(make())


def test_it_comes_out_the_same_again() -> None:
    one, other = (shrink(parse_plan(BUSY), 5, mutant=MUTANT, bounds=ShrinkBounds(runs=8)) for _ in range(2))
    assert (one.failure, one.runs) == (other.failure, other.runs)


def test_a_defect_of_liveness_is_shrunk_with_the_demand_that_all_ends() -> None:
    text = BUSY.replace("  sleep 0.5s\n", "  within 0s append a 2\n").replace("entry=6: start", "maybe entry=99: start")
    result = shrink(parse_plan(text), 5, mutant="cancelled-append-takes-its-entry-out")
    assert result.failure.clause == "L2"
    assert "expect safe" in print_plan(result.failure.plan)
    assert result.failure.size == 3


def test_a_failure_without_a_defect_is_shrunk_to_the_smallest_such_plan() -> None:
    result = shrink(parse_plan(LOST), 1)
    assert (result.failure.clause, result.failure.mutant) == ("L1", "")
    assert [step.fault.verb for step in result.failure.plan.steps] == ["wipe"]
    assert "Breaks EventuallyClosed (L1) with seed 0:" in result.failure.plan.prose[0]


# What is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "busy breaks nothing with seed 5, so there is nothing to shrink"),
        (
            {"mutant": "acks-during-ensemble-change"},
            "busy breaks nothing with seed 5 with acks-during-ensemble-change, so there is nothing to shrink",
        ),
        ({"mutant": MUTANT, "clause": "C6"}, rf"busy breaks .*E7.* with seed 5 with {MUTANT}, and not C6"),
    ],
)
def test_a_plan_that_does_not_fail_is_refused(arguments: dict[str, str], says: str) -> None:
    with pytest.raises(ShrinkError, match=says):
        shrink(parse_plan(BUSY), 5, **arguments)  # type: ignore[arg-type]


def test_a_plan_that_fails_without_the_defect_is_refused() -> None:
    with pytest.raises(ShrinkError, match=f"lost breaks L1 with seed 1 without {MUTANT} too"):
        shrink(parse_plan(LOST), 1, mutant=MUTANT)


# ShrinkBounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "stopped", "runs"), [(ShrinkBounds(runs=3), "runs", 3), (ShrinkBounds(cpu_seconds=1e-9), "time", 0)]
)
def test_a_bound_ends_the_search_with_the_best_so_far(bounds: ShrinkBounds, stopped: str, runs: int) -> None:
    result = shrink(parse_plan(BUSY), 5, mutant=MUTANT, bounds=bounds)
    assert (result.stopped, result.runs) == (stopped, runs)
    assert breaks(result.failure.plan, result.failure.seed)


@pytest.mark.parametrize("wrong", [{"runs": 0}, {"cpu_seconds": 0.0}, {"cpu_seconds": float("nan")}])
def test_bounds_that_allow_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        ShrinkBounds(**wrong)


def test_an_interrupt_ends_the_search_with_the_best_so_far() -> None:
    told: list[tuple[int, int, int]] = []
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(*progress: int) -> None:
        told.append(progress)  # type: ignore[arg-type]
        if progress[2] >= 2:  # two plans that were smaller
            signal.raise_signal(signal.SIGINT)

    result = shrink(parse_plan(BUSY), 5, mutant=MUTANT, progress=interrupt)
    assert result.stopped == "interrupt"
    assert [runs for runs, _, _ in told] == list(range(1, len(told) + 1))
    assert result.failure.size < result.origin.size
    assert breaks(result.failure.plan, result.failure.seed, clause=result.failure.clause)
    assert signal.getsignal(signal.SIGINT) is handler


# The search --------------------------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 40)), st.integers(0, 41))
def test_the_search_finds_what_is_needed(needed: set[int], count: int) -> None:
    needed = {item for item in needed if item < count}
    tries = 0

    def holds(kept: tuple[int, ...]) -> bool:
        nonlocal tries
        tries += 1
        return needed <= set(kept)

    assert minimal(range(count), holds) == tuple(sorted(needed))
    assert tries <= 2 + (len(needed) + 1) * 2 * max(count, 1).bit_length() + 4 * len(needed)


@given(st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=1, max_size=4))
def test_what_the_search_finds_is_minimal_by_single_removals(reasons: list[set[int]]) -> None:
    def holds(kept: tuple[int, ...]) -> bool:
        return any(reason <= set(kept) for reason in reasons)

    found = minimal(range(13), holds)
    assert holds(found)
    assert not any(holds(tuple(item for item in found if item != left_out)) for left_out in found)


# Smaller plans -----------------------------------------------------------------------------------------------------


def check_paths(plan: Plan) -> None:
    for leaf in values.leaves(plan):
        assert values.with_value(plan, leaf.path, leaf.value) == plan
    unusual = [leaf for leaf in values.leaves(plan) if leaf.is_unusual]
    assert values.with_usual(plan, unusual, unusual) == plan


@settings(max_examples=12)
@given(PLANS, st.randoms(use_true_random=False))
def test_plans_without_some_of_their_parts_are_plans(plan: Plan, rng: Any) -> None:
    plan = parts.bare(plan, demands_end=rng.random() < 0.5)
    steps = [step for step in plan.steps if rng.random() < 0.5]
    fewer = parts.with_steps(plan, steps)
    assert set(map(id, fewer.clients)) <= set(map(id, plan.clients)) or fewer.clients == plan.clients
    assert len(fewer.steps) <= len(steps)
    names = set(rng.sample(plan.client_names, rng.randint(1, len(plan.clients))))
    assert set(parts.with_clients(plan, names).client_names) == names
    places = [place for place in parts.calls_of(plan) if rng.random() < 0.5]
    assert len(parts.calls_of(parts.with_calls(plan, places))) <= len(places)
    for bookies in range(1, plan.cluster.bookies + 1):
        smaller = parts.with_cluster(plan, Sizes(1, 1, 1), bookies)
        assert (smaller.cluster.bookies, smaller.cluster.sizes) == (bookies, Sizes(1, 1, 1))
        assert parse_plan(print_plan(smaller)) == smaller
    check_paths(fewer)


def test_a_plan_with_usual_values_says_nothing_but_what_it_has_to() -> None:
    plan = parse_plan(BUSY)
    plan = values.with_usual(plan, [leaf for leaf in values.leaves(plan) if leaf.is_unusual], [])
    text = print_plan(parts.bare(plan, demands_end=False))
    assert "cluster 5 3/3/2\n  network jitter=0s\n\nclient writer\n  create a\n  append a 7\n" in text


@given(st.integers(0, 10**6) | st.floats(0.0, 1e6, allow_nan=False))
def test_simpler_numbers_come_to_an_end(value: float) -> None:
    for _ in range(100):
        simpler = list(values.simpler_values(value))
        assert all(0 <= small != value for small in simpler)
        if not simpler:
            return
        value = simpler[-1]
    assert isinstance(value, int), "one less each time"


def test_sizes_become_smaller() -> None:
    assert list(parts.sizes_below(Sizes(2, 2, 1))) == [Sizes(1, 1, 1), Sizes(2, 1, 1)]
    assert Sizes(6, 5, 3) in set(parts.sizes_below(Sizes(7, 5, 3)))
    assert not list(parts.sizes_below(Sizes(1, 1, 1)))


def test_bookies_that_steps_name_get_the_first_names() -> None:
    plan = parts.with_cluster(parse_plan(BUSY.replace("bookie-1\n", "bookie-4\n")), Sizes(2, 2, 2), 2)
    assert {host for step in plan.steps for host in step.fault.hosts if "bookie" in host} == {"bookie-0", "bookie-1"}
    plan = parts.with_cluster(parse_plan(BUSY), Sizes(1, 1, 1), 1)
    assert [step.fault.verb for step in plan.steps] == ["start"]


def test_bookies_stay_in_their_racks() -> None:
    text = "plan p\n\ncluster 3 2/2/2 racks=x,y,z\n\nclient w\n  create a\n\nat 1s: crash bookie-2\n"
    plan = parts.with_cluster(parse_plan(text), Sizes(2, 2, 2), 2)
    assert (plan.cluster.racks, plan.steps[0].fault.hosts) == (("z", "x"), ("bookie-0",))
    assert parts.with_cluster(parse_plan(text), Sizes(1, 1, 1), 1).cluster.racks == ("z",)
    assert parts.with_cluster(parse_plan(text), Sizes(1, 1, 1), 3).cluster.racks == ("x", "y", "z")


# The command -------------------------------------------------------------------------------------------------------


def bk_chaos(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_leaves_a_plan_beside_the_file_that_fails_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shrunk: Shrunk
) -> None:
    asked: list[Any] = []

    def known(*arguments: object, **more: object) -> Shrunk:
        asked.extend((*arguments, more["mutant"], more["clause"], more["bounds"]))
        return shrunk

    monkeypatch.setattr("scenarios.cli.shrink.shrink", known)
    file = tmp_path / "busy.scn"
    file.write_text(BUSY)
    result = bk_chaos("shrink", file, "--seed", 5, "--mutant", MUTANT, "--clause", "A1", "--runs", 7)
    assert result.exit_code == 0, result.output
    assert asked == [parse_plan(BUSY), 5, MUTANT, "A1", ShrinkBounds(runs=7)]
    left = tmp_path / "busy-shrunk.scn"
    assert left.read_text() == print_plan(shrunk.failure.plan)
    for line in (
        "  6 steps and 10 operations of 3 clients before, now 0 and 2 of 1",
        "  5 bookies and 3/3/2 before, now 1 and 1/1/1",
        "  minimal: without any one step, client or operation it does not break",
        f"  bk-chaos run {left} --seed 0 --mutant {MUTANT} --timeline",
    ):
        assert line in result.stdout
    assert bk_chaos("run", left, "--seed", 0, "--mutant", MUTANT).exit_code == 1
    assert bk_chaos("run", left, "--seed", 0).exit_code == 0


def test_a_history_brings_its_seed_defect_and_transport(tmp_path: Path) -> None:
    plan = parse_plan(BUSY)
    made = run_plan(plan, 5, mutant=MUTANT, record=tmp_path, transport=TransportKind.BYTES)
    assert History(Path(made.path)).header["transport"] == "bytes"
    result = bk_chaos("shrink", made.path, "--runs", 2, "--json")
    assert result.exit_code == 3, result.output
    shown = json.loads(result.stdout)
    assert (shown["mutant"], shown["seed"], shown["runs"], shown["stopped"]) == (MUTANT, 5, 2, "runs")
    assert Path(shown["file"]) == tmp_path / "busy-shrunk.scn"
    assert "transport=bytes" in (tmp_path / "busy-shrunk.scn").read_text()


def test_an_interrupted_command_keeps_the_best_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = replace(shrink(parse_plan(BUSY), 5, mutant=MUTANT, bounds=ShrinkBounds(runs=1)), stopped="interrupt")
    monkeypatch.setattr("scenarios.cli.shrink.shrink", lambda *_, **__: stopped)
    file = tmp_path / "busy.scn"
    file.write_text(BUSY)
    result = bk_chaos("shrink", file, "--mutant", MUTANT)
    assert result.exit_code == 130
    assert "not minimal: interrupted" in result.stdout
    assert (tmp_path / "busy-shrunk.scn").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("happy-path",), "happy-path breaks nothing with seed 0, so there is nothing to shrink"),
        (("calm-writes",), "calm-writes is a scenario that draws what happens while it runs; it has no plan"),
        (("hapy-path",), "no plan is called hapy-path; did you mean happy-path?"),
        (("happy-path", "--clause", "Z9"), "no clause is called Z9"),
        (("nowhere.scn",), "nowhere.scn cannot be read"),
        (("nowhere.bkh",), "nowhere.bkh: cannot be opened"),
        (("happy-path", "--mutant", "none"), "no mutant is called none"),
    ],
)
def test_the_command_refuses_in_one_sentence(arguments: tuple[str, ...], says: str) -> None:
    result = bk_chaos("shrink", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_machines_show_of_a_defect_is_written_down_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs show all defects there are, so one is said not to be shown."""
    in_runs_too = {name: mutant for name, mutant in RUN_MUTANTS.items() if name != "fault-domains-ignored"}
    monkeypatch.setattr("scenarios.cli.mutants.RUN_MUTANTS", in_runs_too)
    folder = tmp_path / "defects"
    arguments = ("mutants", "--mutant", "fault-domains-ignored", "--seeds", 1, "--processes", 1)
    shown = bk_chaos(*arguments, "--shrink", folder)
    assert shown.exit_code == 0
    title, *moves = (folder / "fault-domains-ignored.txt").read_text().splitlines()
    assert title.endswith("in the world fault-domains of bk-chaos explore: AckHasQuorum (A13)")
    assert moves.pop() == "everything in flight arrives", "which is no move"
    assert f" {len(moves)} " in shown.output, "the table tells as many moves"
    assert "None" not in shown.output
    (folder / "fault-domains-ignored.txt").unlink()
    (folder / "fault-domains-ignored.txt").mkdir()
    refused = bk_chaos(*arguments, "--shrink", folder)
    assert refused.exit_code == 2
    assert "cannot be written" in refused.output
