"""Verdicts: what is counted and shown, and that Spark and the online checker judge the same runs alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scenarios.history import Kind
from scenarios.model import RunResult
from scenarios.mutants import RUN_MUTANTS
from spark_analysis.invariants import INVARIANTS, select
from spark_analysis.jobs.files import Copy, NoHistoriesError
from spark_analysis.jobs.ingest import ingest
from spark_analysis.jobs.verify import Verdict, WitnessedViolation, verify
from tests.spark_analysis.plants import honest_life
from tests.spark_analysis.recorded import (
    CAUGHT,
    HARMED,
    HARMLESS,
    SHIPPED,
    bystander,
    record,
    truncated,
    truncating,
    unfinished,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Accused = dict[str, dict[str, list[WitnessedViolation]]]


# Counts and witnesses ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Four usable files of six, seven ledgers, of which four are closed too low in two histories, one is not closed."""
    folder = tmp_path_factory.mktemp("counted")
    record(folder / "a.bkh", truncating(1), bystander(2), truncating(3), truncating(4), scenario="bad", seed=5)
    record(folder / "b.bkh", truncating(1), unfinished(2), scenario="bad", seed=6)
    record(folder / "c.bkh", honest_life())
    record(folder / "d.bkh")
    truncated(folder / "e.bkh")
    (folder / "f.bkh").write_bytes(b"")
    return verify(spark, folder, invariants=select(["NoLacTruncation", "RecoveryReads"]), max_witnesses=3)


def test_files_ledgers_and_events_are_counted(counted: Verdict) -> None:
    stories = [truncating(1), bystander(2), truncating(3), truncating(4), truncating(1), unfinished(2), honest_life()]
    assert (counted.histories, counted.ledgers) == (4, len(stories))
    assert counted.events == sum(len(story.events) for story in stories)
    assert counted.seconds > 0


def test_ledgers_are_checked_hold_are_violated_or_unknown(counted: Verdict) -> None:
    truncation, reads = counted.invariants
    assert (truncation.name, reads.name) == ("NoLacTruncation", "RecoveryReads"), "only what was asked for"
    assert (truncation.checked, truncation.holds, truncation.violated, truncation.unknown) == (6, 2, 4, 1)
    assert truncation.violated_histories == 2
    assert (truncation.why, reads.why) == ({"cut off": 1}, {"no premise": 6})
    assert (reads.checked, reads.holds, reads.violated, reads.unknown) == (1, 1, 0, 6)
    assert reads.violated_histories == 0
    assert not counted.is_clean


def test_witnesses_are_limited_and_counts_are_not(counted: Verdict) -> None:
    shown = [(violation.history, violation.ledger) for violation in counted.violations]
    assert len(shown) == len(set(shown)) == 3
    assert set(shown) < {("a.bkh", 1), ("a.bkh", 3), ("a.bkh", 4), ("b.bkh", 1)}
    for violation in counted.violations:
        assert violation.invariant == "NoLacTruncation"
        assert (violation.scenario, violation.seed) == ("bad", {"a.bkh": 5, "b.bkh": 6}[violation.history])
        assert "entry 1 was acknowledged" in violation.witness


def test_unusable_files_are_named(counted: Verdict) -> None:
    assert [rejected.file for rejected in counted.rejected] == ["e.bkh", "f.bkh"]
    assert "truncated" in counted.rejected[0].problem
    assert "not a history" in counted.rejected[1].problem


def test_the_json_has_what_its_readers_rely_on(counted: Verdict) -> None:
    """More keys may come, none of these may go."""
    shown: dict[str, Any] = json.loads(json.dumps(counted.as_json()))
    assert {"histories", "events", "rejected", "invariants", "violations", "seconds"} <= shown.keys()
    assert (shown["histories"], shown["events"]) == (counted.histories, counted.events)
    assert [entry["file"] for entry in shown["rejected"]] == ["e.bkh", "f.bkh"]
    assert all(entry["problem"] for entry in shown["rejected"])
    names = ("name", "checked", "holds", "violated", "unknown", "why")
    assert [tuple(entry[name] for name in names) for entry in shown["invariants"]] == [
        ("NoLacTruncation", 6, 2, 4, 1, {"cut off": 1}),
        ("RecoveryReads", 1, 1, 0, 6, {"no premise": 6}),
    ]
    assert len(shown["violations"]) == 3
    for entry, violation in zip(shown["violations"], counted.violations, strict=True):
        told = {name: getattr(violation, name) for name in ("invariant", "history", "ledger", "witness")}
        assert {name: entry[name] for name in told} == told
    assert isinstance(shown["seconds"], float)


def test_copies_are_counted_once_and_named(spark: SparkSession, tmp_path: Path) -> None:
    """Of the same bytes, under whatever name; not of the same run that was recorded for another seed."""
    data = record(tmp_path / "b.bkh", truncating(1), seed=5).read_bytes()
    (tmp_path / "deep").mkdir()
    for name in ("a.bkh", "deep/c.bkh"):
        (tmp_path / name).write_bytes(data)
    record(tmp_path / "d.bkh", truncating(1), seed=6)
    for name in ("e.bkh", "f.bkh"):
        (tmp_path / name).write_bytes(b"")
    found = verify(spark, tmp_path, invariants=select(["NoLacTruncation"]))
    assert (found.histories, found.ledgers, found.invariants[0].violated, found.rejected_files) == (2, 2, 2, 2)
    assert [violation.history for violation in found.violations] == ["a.bkh", "d.bkh"]
    assert found.copies == (Copy("b.bkh", "a.bkh"), Copy("deep/c.bkh", "a.bkh"))
    assert found.copied_files == 2
    ingest(spark, tmp_path, tmp_path / "dataset")
    stored = verify(spark, tmp_path / "dataset", invariants=select(["NoLacTruncation"]))
    assert replace(stored, seconds=0, violations=(), rejected=()) == replace(
        found, seconds=0, violations=(), rejected=()
    )


def test_there_has_to_be_a_history(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(NoHistoriesError, match="holds no history"):
        verify(spark, tmp_path)
    with pytest.raises(NoHistoriesError, match="nowhere: no such folder or file"):
        verify(spark, tmp_path / "nowhere")


# Choosing invariants -------------------------------------------------------------------------------------------------


def test_invariants_are_chosen_by_name_whatever_the_case_in_their_own_order() -> None:
    assert select([]) == INVARIANTS
    chosen = select(["replicasagree", "NOLACTRUNCATION", "ReplicasAgree"])
    assert [invariant.name for invariant in chosen] == ["NoLacTruncation", "ReplicasAgree"]


def test_an_unknown_invariant_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no invariant Nonsense; there are NoLacTruncation, "):
        select(["NoLacTruncation", "Nonsense"])


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)
def test_an_invariant_says_what_it_states_and_what_it_looks_at(invariant: Any) -> None:
    assert invariant.statement.endswith(".")
    assert invariant.clauses
    assert invariant.kinds
    assert set(invariant.kinds) <= set(Kind)


# Against the online checker ------------------------------------------------------------------------------------------


def test_every_recorded_run_is_judged(verdict: Verdict, runs: dict[str, RunResult]) -> None:
    assert len(runs) == len(HARMED) + len(SHIPPED) + len(HARMLESS) + len(CAUGHT)
    assert {mutant for _, _, mutant in CAUGHT} == RUN_MUTANTS.keys() - {
        "cancelled-append-takes-its-entry-out",
        "close-includes-what-was-not-forced",
        "compaction-moves-before-it-flushes",
        "delayed-failures-not-counted",
        "disabled-change-never-retried",
        "force-covers-what-came-meanwhile",
        "force-needs-ack-quorum-only",
        "irreplaceable-bookies-forgotten",
        "lac-follows-acks-in-spite-of-deferred-sync",
        "log-loses-its-queue-when-it-rolls",
        "nothing-resent-after-change",
        "only-first-entry-retried",
        "only-last-failed-bookie-replaced",
        "reader-follows-nothing",
    }
    assert verdict.rejected == ()
    assert {result.verdict for result in runs.values()} == {"ok", "violated"}


@pytest.mark.parametrize("mutant", dict.fromkeys(mutant for _, _, mutant in HARMED))
def test_runs_that_a_mutant_harmed_are_violated(mutant: str, runs: dict[str, RunResult], accused: Accused) -> None:
    harmed = [
        name for name, result in runs.items() if (result.scenario, result.seed, mutant) in HARMED and result.mutant
    ]
    assert len(harmed) == 3
    for name in harmed:
        (headline,) = accused[name]["NoLacTruncation"]
        assert (headline.scenario, headline.seed) == (runs[name].scenario, runs[name].seed)


def test_runs_of_the_shipped_client_are_clean(runs: dict[str, RunResult], accused: Accused) -> None:
    shipped = [name for name, result in runs.items() if not result.mutant]
    assert len(shipped) == len(SHIPPED)
    assert not set(shipped) & accused.keys()


def test_spark_and_the_online_checker_come_to_the_same_verdicts(runs: dict[str, RunResult], accused: Accused) -> None:
    verdicts = {name: "violated" if name in accused else "ok" for name in runs}
    assert verdicts == {name: result.verdict for name, result in runs.items()}


def test_spark_and_the_online_checker_accuse_runs_of_the_same(runs: dict[str, RunResult], accused: Accused) -> None:
    """By all clauses that both know, and in the same ledgers."""
    known = {clause for invariant in INVARIANTS for clause in invariant.clauses}
    for name, result in runs.items():
        told = {(found.clause, found.ledger) for each in accused.get(name, {}).values() for found in each}
        assert told == {(found.clause, found.ledger) for found in result.violations if found.clause in known}, name


def test_the_headline_is_broken_in_the_same_ledgers(runs: dict[str, RunResult], accused: Accused) -> None:
    for name, result in runs.items():
        online = {found.ledger for found in result.violations if found.invariant == "NoLacTruncation"}
        assert online == {found.ledger for found in accused.get(name, {}).get("NoLacTruncation", ())}
