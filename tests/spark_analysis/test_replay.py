"""Replays: runs made again on executors are the same, and every way not to be is told apart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import scenarios.replaying
from scenarios.history import Event, HistoryWriter, Kind, read_history
from scenarios.model import RunResult
from scenarios.runner import run_scenario
from spark_analysis.jobs.files import NoHistoriesError
from spark_analysis.jobs.replay import ReplayVerdict, replay
from tests.spark_analysis.recorded import HARMED, bystander, record, truncated
from tests.spark_analysis.test_cli import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def altered(source: Path, target: Path, alter: Callable[[Event], Event | None], **header: object) -> Path:
    """A copy of a history with other events, or another header, as another version might have made it."""
    known, events = read_history(source)
    now = 0
    target.parent.mkdir(exist_ok=True)
    writer = HistoryWriter({**known, "package_version": "0.0.1", **header}, lambda: now, target)
    for event in filter(None, map(alter, events)):
        now = event.time_us
        writer.record(event.kind, event.actor, event.ledger, **event.fields)
    writer.close()
    return target


def unaltered(event: Event) -> Event:
    return event


def later(event: Event) -> Event:
    """The end of the run comes a millisecond later; no invariant looks at it."""
    return replace(event, time_us=event.time_us + 1000) if event.kind == Kind.RUN_END else event


def closed_at_nothing(event: Event) -> Event:
    """Ledgers are closed as empty ones."""
    if event.kind == Kind.META_CAS and event.fields["state"] == "CLOSED":
        return replace(event, fields={**event.fields, "last_entry": -1, "length": 0})
    return event


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the shipped client, with acknowledged entries and a recovery."""
    return Path(run_scenario("dead-writer", 1, record=tmp_path_factory.mktemp("shipped")).path)


@pytest.fixture(scope="module")
def mixed(shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one history of every fate."""
    folder = tmp_path_factory.mktemp("mixed")
    shutil.copy(shipped, folder / "same.bkh")
    altered(shipped, folder / "below" / "differs.bkh", later)
    altered(shipped, folder / "otherwise.bkh", closed_at_nothing)
    altered(shipped, folder / "shorter.bkh", lambda event: event if event.kind != Kind.RUN_END else None)
    altered(shipped, folder / "unknown-scenario.bkh", unaltered, scenario="tea-party")
    altered(shipped, folder / "unknown-mutant.bkh", unaltered, mutant="tea-party")
    record(folder / "no-origin.bkh", bystander(), scenario="", seed=1)
    truncated(folder / "truncated.bkh")
    name, seed, mutant = HARMED[0]
    run_scenario(name, seed, mutant=mutant, record=folder)
    return folder


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, mixed: Path) -> ReplayVerdict:
    return replay(spark, mixed)


@pytest.mark.deep
def test_recorded_runs_come_out_as_they_were(
    spark: SparkSession, histories: Path, runs: dict[str, RunResult], tmp_path: Path
) -> None:
    """Of the shipped client and of mutants."""
    for name in runs:
        shutil.copy(histories / name, tmp_path)
    verdict = replay(spark, tmp_path)

    assert (verdict.histories, verdict.rejected_files) == (len(runs), 0)
    assert verdict.is_same
    assert verdict.differing == ()
    assert verdict.events == sum(result.events for result in runs.values())
    expected: dict[str, list[RunResult]] = {}
    for result in runs.values():
        expected.setdefault(result.scenario, []).append(result)
    assert {
        found.scenario: (found.histories, found.same, found.violated, found.undecided) for found in verdict.scenarios
    } == {
        name: (
            len(results),
            len(results),
            sum(result.verdict == "violated" for result in results),
            sum(result.verdict == "unknown" for result in results),
        )
        for name, results in expected.items()
    }
    assert not verdict.is_clean


def test_each_fate_is_counted(replayed: ReplayVerdict) -> None:
    counted = {found.scenario: found for found in replayed.scenarios}
    assert set(counted) == {"dead-writer", HARMED[0][0]}
    dead = counted["dead-writer"]
    assert (dead.histories, dead.same, dead.differ, dead.end_otherwise, dead.violated) == (4, 1, 3, 1, 0)
    harmed = counted[HARMED[0][0]]
    assert (harmed.histories, harmed.same, harmed.differ, harmed.violated) == (1, 1, 0, 1)
    assert (replayed.histories, replayed.rejected_files) == (5, 4)


def test_a_run_that_differs_is_shown_with_its_first_event(replayed: ReplayVerdict, shipped: Path) -> None:
    by_name = {found.history: found for found in replayed.differing}
    assert list(by_name) == ["below/differs.bkh", "otherwise.bkh", "shorter.bkh"]
    end = len(read_history(shipped)[1]) - 1

    late = by_name["below/differs.bkh"]
    assert (late.scenario, late.seed, late.version, late.ends_otherwise) == ("dead-writer", 1, "0.0.1", False)
    assert (late.first_seq, late.recorded_violations, late.violations) == (end, (), ())
    assert late.recorded_event is not None
    assert late.event is not None
    assert late.recorded_event != late.event
    assert "RUN_END" in late.recorded_event
    assert "RUN_END" in late.event

    shorter = by_name["shorter.bkh"]
    assert (shorter.first_seq, shorter.recorded_event) == (end, "")

    otherwise = by_name["otherwise.bkh"]
    assert otherwise.ends_otherwise
    assert any(broken.startswith("NoLacTruncation (A1)") for broken in otherwise.recorded_violations)
    assert otherwise.violations == ()


def test_what_cannot_be_replayed_is_named_with_the_reason(replayed: ReplayVerdict) -> None:
    reasons = {rejected.file: rejected.problem for rejected in replayed.rejected}
    assert reasons == {
        "no-origin.bkh": "was recorded in the scenario , which this version does not have",
        "truncated.bkh": reasons["truncated.bkh"],
        "unknown-mutant.bkh": "was recorded with the defect tea-party, which this version does not have",
        "unknown-scenario.bkh": "was recorded in the scenario tea-party, which this version does not have",
    }
    assert "is truncated" in reasons["truncated.bkh"]


def test_only_so_many_are_shown_and_all_are_counted(spark: SparkSession, mixed: Path) -> None:
    verdict = replay(spark, mixed, max_differing=1)
    assert [found.history for found in verdict.differing] == ["below/differs.bkh"]
    assert sum(found.differ for found in verdict.scenarios) == 3


def test_without_histories_there_is_nothing_to_replay(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoHistoriesError, match="holds no history"):
        replay(spark, tmp_path)


def test_one_file_can_be_replayed(spark: SparkSession, shipped: Path) -> None:
    verdict = replay(spark, shipped)
    assert (verdict.histories, verdict.is_same, verdict.is_clean) == (1, True, True)


# The command ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_the_same_runs_exit_with_0(shipped: Path) -> None:
    code, out, err = run("replay", shipped)
    assert (code, err) == (0, "")
    assert "1 runs made again" in out
    assert "dead-writer" in out


@pytest.mark.usefixtures("spark")
def test_a_run_that_differs_exits_with_1_and_says_where(mixed: Path, replayed: ReplayVerdict) -> None:
    code, out, _ = run("replay", mixed)
    assert code == 1
    for found in replayed.differing:
        assert f"{found.history}  dead-writer, seed 1, by version 0.0.1" in out
        assert f"first difference at event {found.first_seq}" in out
    assert "no such event, the history has ended" in out
    assert "broken now: nothing" in out

    code, out, _ = run("replay", mixed, "--json")
    shown = json.loads(out)
    assert code == 1
    assert shown["same"] is False
    assert [found["history"] for found in shown["differing"]] == [found.history for found in replayed.differing]


@pytest.mark.usefixtures("spark")
def test_a_run_that_breaks_an_invariant_again_exits_with_1(tmp_path: Path) -> None:
    name, seed, mutant = HARMED[0]
    run_scenario(name, seed, mutant=mutant, record=tmp_path)
    code, out, _ = run("replay", tmp_path, "--json")
    assert code == 1
    assert json.loads(out)["same"] is True


@pytest.mark.usefixtures("spark")
def test_an_unusable_file_exits_with_2_and_the_others_are_replayed(tmp_path: Path, shipped: Path) -> None:
    shutil.copy(shipped, tmp_path / "good.bkh")
    altered(shipped, tmp_path / "unknown.bkh", unaltered, scenario="tea-party")
    code, out, err = run("replay", tmp_path)
    assert code == 2
    assert "1 runs made again" in out
    assert err == ("bk-verify: unknown.bkh: was recorded in the scenario tea-party, which this version does not have\n")


# Without Spark -------------------------------------------------------------------------------------------------------


def test_a_run_that_depends_on_more_than_its_seed_is_told_apart(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It differs, and made once more to see where, it does not."""
    made = iter(["another digest"])

    def sometimes(*arguments: object, **options: object) -> RunResult:
        result = run_scenario(*arguments, **options)  # type: ignore[arg-type]
        return replace(result, digest=next(made, result.digest))

    monkeypatch.setattr(scenarios.replaying, "run_scenario", sometimes)
    found = scenarios.replaying.replay_history(shipped)
    assert (found.is_same, found.difference) == (False, None)


def test_a_liveness_clause_is_told_by_the_run_alone(tmp_path: Path) -> None:
    """A history does not say that a ledger was never closed; its replay does."""
    recorded = run_scenario("lost-write-backs", 0, mutant="recovery-closes-before-write-back", record=tmp_path)
    found = scenarios.replaying.replay_history(Path(recorded.path))
    assert found.is_same
    assert {violation.clause for violation in found.recorded.violations} <= {
        violation.clause for violation in found.result.violations
    }
