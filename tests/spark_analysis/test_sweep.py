"""Sweeps on executors: they come to what a sweep here comes to, and go on where one was ended."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scenarios.model import TransportKind
from scenarios.situations import SITUATIONS
from scenarios.sweep import sweep as sweep_here
from spark_analysis.cli import sweep as cli_sweep
from spark_analysis.jobs.sweep import (
    SEEDS_PER_UNIT,
    OtherSweepError,
    SweepPlan,
    SweepVerdict,
    chosen,
    sweep,
    units_done,
)
from tests.spark_analysis.test_cli import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PLAN = SweepPlan(("dead-writer", "swarm"), 6, first_seed=SEEDS_PER_UNIT - 2, keep_every=SEEDS_PER_UNIT)
HARMFUL = SweepPlan(("lost-fence",), 3, mutant="recovery-reads-do-not-fence")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweeps") / "swept"


@pytest.fixture(scope="module")
def swept(spark: SparkSession, folder: Path) -> SweepVerdict:
    return sweep(spark, PLAN, folder)


def test_seeds_are_dealt_out_in_units_each_once() -> None:
    plan = SweepPlan(("a", "b"), 2 * SEEDS_PER_UNIT + 3, first_seed=7)
    seeds = Counter((scenario, seed) for scenario, first, count in plan.units() for seed in range(first, first + count))
    assert seeds == Counter({(scenario, seed): 1 for scenario in "ab" for seed in range(7, 7 + plan.seeds)})
    assert max(count for _, _, count in plan.units()) == SEEDS_PER_UNIT


def test_it_comes_to_what_a_sweep_here_comes_to(swept: SweepVerdict) -> None:
    here = sweep_here(range(PLAN.first_seed, PLAN.first_seed + PLAN.seeds), PLAN.scenarios, processes=1)
    assert (swept.runs, swept.events) == (here.runs, here.events)
    assert swept.simulated_seconds == pytest.approx(here.simulated_seconds)
    assert swept.met == {name: here.met.get(name, 0) for name in SITUATIONS}
    assert [(found.scenario, found.runs, found.violated, found.undecided) for found in swept.scenarios] == [
        (scenario, PLAN.seeds, 0, 0) for scenario in PLAN.scenarios
    ]
    assert (swept.units, swept.units_before) == (2, 0)
    assert swept.is_clean
    assert swept.is_decided


def test_every_nth_history_is_kept(swept: SweepVerdict, folder: Path) -> None:
    assert swept.is_clean
    kept = sorted(path.name for path in (folder / "histories").iterdir())
    assert kept == [f"{scenario}-{SEEDS_PER_UNIT}.bkh" for scenario in PLAN.scenarios]


def test_what_is_there_is_not_made_again(spark: SparkSession, swept: SweepVerdict, folder: Path) -> None:
    """One unit is missing, as after a sweep that was ended; another is there with a number that no run gives."""
    present, missing = sorted((folder / "units").iterdir())
    row = json.loads(present.read_text())
    present.write_text(json.dumps(row | {"events": row["events"] + 1_000_000}))
    missing.unlink()
    (folder / "units" / f".{missing.name}.123").write_text("{")  # the file that was being written

    again = sweep(spark, PLAN, folder)
    assert (again.units, again.units_before) == (2, 1)
    assert again.events == swept.events + 1_000_000
    assert sweep(spark, PLAN, folder).units_before == 2
    assert units_done(folder) == {present.name, missing.name}


def test_a_folder_has_one_sweep(spark: SparkSession, swept: SweepVerdict, folder: Path) -> None:
    other = replace(swept.plan, seeds=7, transport=TransportKind.BYTES)
    with pytest.raises(
        OtherSweepError, match=r"has another sweep \(seeds 6 instead of 7, transport 'objects' instead of"
    ):
        sweep(spark, other, folder)


def test_names_are_chosen_once_and_in_order() -> None:
    assert chosen(None, ["a", "b"]) == ("a", "b")
    assert chosen(["b", "a", "b"], ["a", "b", "c"]) == ("a", "b")
    with pytest.raises(KeyError, match="d"):
        chosen(["a", "d"], ["a"])


# The command ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_broken_runs_exit_with_1_and_keep_their_histories(tmp_path: Path) -> None:
    arguments = ("--seeds", 3, "--scenario", "lost-fence", "--mutant", "recovery-reads-do-not-fence")
    code, out, err = run("sweep", tmp_path / "swept", *arguments)
    here = sweep_here(range(3), HARMFUL.scenarios, mutant=HARMFUL.mutant, processes=1)
    broken = {failing.seed for failing in here.failing}
    assert (code, err) == (1, "")
    for failing in here.failing:
        assert f"{failing.invariant}  bk-chaos run lost-fence --seed {failing.seed} --mutant {HARMFUL.mutant}" in out
    assert len(list((tmp_path / "swept" / "histories").iterdir())) == len(broken) > 0

    code, out, _ = run("sweep", tmp_path / "swept", *arguments, "--max-shown", 1, "--json")
    shown = json.loads(out)
    assert (code, shown["units_before"], len(shown["failing"])) == (1, 1, 1)
    assert shown["scenarios"][0]["violated"] == len(broken)


@pytest.mark.usefixtures("spark")
def test_the_same_sweep_of_another_size_exits_with_2(swept: SweepVerdict, folder: Path) -> None:
    code, out, err = run("sweep", folder, "--seeds", swept.plan.seeds + 1)
    assert (code, out) == (2, "")
    assert "has another sweep" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--scenario", "tea-party"), "no scenario or plan is called tea-party"),
        (("--mutant", "tea-party"), "no scenario shows a defect called tea-party"),
        (("--seeds", "0"), "seeds"),
        (("--transport", "pigeons"), "transport"),
    ],
)
def test_unusable_arguments_exit_with_2(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    code, out, err = run("sweep", tmp_path / "swept", *arguments)
    assert (code, out) == (2, "")
    assert reason in err
    assert not (tmp_path / "swept").exists()


@pytest.mark.usefixtures("spark")
def test_a_folder_that_cannot_be_written_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    code, _, err = run("sweep", tmp_path / "file")
    assert code == 2
    assert "cannot be written" in err


@pytest.mark.usefixtures("spark")
def test_runs_without_a_verdict_exit_with_5(
    tmp_path: Path, swept: SweepVerdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = replace(swept.scenarios[0], undecided=1)
    undecided = replace(swept, scenarios=(scenario,), problems=(("calm-writes", 3, "it never ended"),))
    monkeypatch.setattr(cli_sweep, "sweep", lambda *_arguments, **_options: undecided)
    code, out, _ = run("sweep", tmp_path)
    assert code == 5
    assert "it never ended  bk-chaos run calm-writes --seed 3" in out


def test_one_run_in_twenty_may_miss_what_its_scenario_is_about(swept: SweepVerdict) -> None:
    few, many = (replace(swept.scenarios[0], runs=40, missed=missed) for missed in (2, 3))
    assert replace(swept, scenarios=(few,)).is_decided
    assert not replace(swept, scenarios=(few, many)).is_decided


@pytest.mark.usefixtures("swept")
def test_runs_that_missed_their_point_are_counted_and_told_if_there_are_many(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    for unit in sorted((copied / "units").glob("*.json")):
        row = json.loads(unit.read_text())
        del row["missed"]  # as units of before have none
        if row["scenario"] == PLAN.scenarios[0]:
            row["missed"] = [{"seed": PLAN.first_seed, "problem": "it met nothing"}]
        unit.write_text(json.dumps(row))
    verdict = sweep(spark, PLAN, copied)
    assert [found.missed for found in verdict.scenarios] == [1, 0]
    assert not verdict.is_decided
    assert verdict.problems == ((PLAN.scenarios[0], PLAN.first_seed, "it met nothing"),)
