"""The online checker on executors judges as it does here; and beside Spark's formulas, every disagreement comes up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from scenarios.checker import INVARIANTS, OnlineChecker
from scenarios.history import Event
from scenarios.liveness import EVENTUALLY_CLOSED
from scenarios.model import RunResult
from spark_analysis.cli import check as cli_check
from spark_analysis.invariants import INVARIANTS as FORMULAS
from spark_analysis.jobs import check as checking
from spark_analysis.jobs.check import Broken, CheckVerdict, check, check_history, unchecked
from spark_analysis.jobs.compare import Comparison, Disagreement, compare, disagreements
from spark_analysis.jobs.files import NoHistoriesError
from spark_analysis.jobs.inputs import judge_files
from spark_analysis.jobs.verify import Verdict, WitnessedViolation
from spark_analysis.source import find_histories
from tests.spark_analysis.plants import HONEST, NEAR_MISSES, PLANTS
from tests.spark_analysis.recorded import bystander, record, truncated, truncating
from tests.spark_analysis.test_cli import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def checked(spark: SparkSession, histories: Path, verdict: Verdict) -> CheckVerdict:
    """The checker's verdict on the whole corpus, on which Spark's is ``verdict``."""
    return check(spark, histories, max_witnesses=10_000)


def test_every_history_is_judged_as_it_was_here(checked: CheckVerdict, runs: dict[str, RunResult]) -> None:
    expected = {
        (name, found.clause, found.ledger, found.witness)
        for name, result in runs.items()
        for found in result.violations
        if found.clause != EVENTUALLY_CLOSED  # which the stage finds, and no history shows
    }
    for plant in (*PLANTS, *NEAR_MISSES):
        expected |= {
            (plant.file, found.clause, found.ledger, found.witness) for found in plant.story.checked().finish()
        }
    told = {(found.history, found.clause, found.ledger, found.witness) for found in checked.violations}
    assert told == expected
    assert HONEST not in {found.history for found in checked.violations}


def test_the_counts_are_those_of_histories(checked: CheckVerdict, verdict: Verdict) -> None:
    assert (checked.histories, checked.rejected_files) == (verdict.histories, verdict.rejected_files)
    assert checked.events == verdict.events
    assert [found.name for found in checked.invariants] == list(INVARIANTS)
    for found in checked.invariants:
        broken = {violation.history for violation in checked.violations if violation.invariant == found.name}
        assert found.violated_histories == len(broken)
        assert found.violated_histories <= found.histories <= checked.histories
    assert not checked.is_clean


def test_both_witnesses_agree_on_the_whole_corpus(spark: SparkSession, checked: CheckVerdict, verdict: Verdict) -> None:
    """On the two verdicts that are there; ``compare`` computes its own."""
    both = {invariant.name for invariant in verdict.invariants}
    ours = told(spark, "checker", by_ledger(broken for broken in checked.violations if broken.invariant in both))
    theirs = told(spark, "formulas", by_ledger(verdict.violations))
    accused, differing = disagreements(ours, theirs)
    assert differing.collect() == []
    assert accused.count() >= len(PLANTS)


def by_ledger(found: Iterable[Broken | WitnessedViolation]) -> dict[tuple[str, str, int], list[str]]:
    clauses: dict[tuple[str, str, int], set[str]] = {}
    for one in found:
        clauses.setdefault((one.history, one.invariant, one.ledger), set()).add(one.clause)
    return {key: sorted(told) for key, told in clauses.items()}


def told(spark: SparkSession, witness: str, clauses: dict[tuple[str, str, int], list[str]]) -> DataFrame:
    schema = f"history string, invariant string, ledger bigint, {witness} array<string>"
    return spark.createDataFrame([(*key, found) for key, found in clauses.items()], schema)


@pytest.mark.parametrize(
    ("checker", "formulas", "agree"),
    [
        ({("h", "LacHonest", 1): ["C1"]}, {("h", "LacHonest", 1): ["C1"]}, True),
        ({("h", "LacHonest", 1): ["C1", "C2"]}, {("h", "LacHonest", 1): ["C1", "C2"]}, True),
        ({("h", "LacHonest", 1): ["C1", "C2"]}, {("h", "LacHonest", 1): ["C2"]}, False),
        ({("h", "LacHonest", 1): ["C1"]}, {("h", "LacHonest", 1): ["C1", "C2"]}, False),
        ({("h", "LacHonest", 1): ["C1"]}, {}, False),
        ({}, {("h", "LacHonest", 1): ["C1"]}, False),
        ({("h", "LacHonest", 1): ["C1"]}, {("h", "LacHonest", 1): ["C2"]}, False),
        ({("h", "LacHonest", 1): ["C1"]}, {("h", "LacHonest", 2): ["C1"]}, False),
        ({("h", "LacHonest", 1): ["C1"]}, {("i", "LacHonest", 1): ["C1"]}, False),
        ({("h", "LacHonest", 1): ["C1"]}, {("h", "NoLacTruncation", 1): ["C1"]}, False),
    ],
)
def test_what_is_a_disagreement(
    spark: SparkSession,
    checker: dict[tuple[str, str, int], list[str]],
    formulas: dict[tuple[str, str, int], list[str]],
    agree: bool,
) -> None:
    _, differing = disagreements(told(spark, "checker", checker), told(spark, "formulas", formulas))
    assert (differing.collect() == []) is agree


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    record(folder / "good.bkh", bystander(), seed=1)
    record(folder / "bad.bkh", truncating(3), seed=2)
    truncated(folder / "cut.bkh")
    return folder


def test_comparing_counts_accusations_and_files(spark: SparkSession, few: Path) -> None:
    found = compare(
        spark, few, invariants=[named for named in FORMULAS if named.name in ("LacHonest", "NoLacTruncation")]
    )
    assert (found.histories, found.rejected_files) == (2, 1)
    assert found.accusations == found.agreed > 0
    assert (found.disagreed, found.disagreements) == (0, ())
    assert not found.is_clean


def test_without_histories_there_is_nothing_to_check(spark: SparkSession, tmp_path: Path) -> None:
    for job in (check, compare):
        with pytest.raises(NoHistoriesError, match="holds no history"):
            job(spark, tmp_path)


# The commands --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_a_clean_folder_exits_with_0_and_a_violation_with_1(few: Path) -> None:
    code, out, err = run("check", few / "good.bkh")
    assert (code, err) == (0, "")
    assert "1 histories" in out

    code, out, err = run("check", few / "bad.bkh", "--json")
    shown = json.loads(out)
    assert (code, err) == (1, "")
    assert {found["name"] for found in shown["invariants"] if found["violated_histories"]} == {
        found["invariant"] for found in shown["violations"]
    }
    assert "NoLacTruncation" in {found["invariant"] for found in shown["violations"]}
    assert {found["replay"] for found in shown["violations"]} == {f"bk-chaos replay {few / 'bad.bkh'}"}
    assert f"  again: bk-chaos replay {few / 'bad.bkh'}" in run("check", few / "bad.bkh")[1].replace("\n", " ")


@pytest.mark.usefixtures("spark")
def test_an_unusable_file_is_named_and_exits_with_2(tmp_path: Path) -> None:
    record(tmp_path / "good.bkh", bystander())
    truncated(tmp_path / "cut.bkh")
    code, out, err = run("check", tmp_path)
    assert code == 2
    assert "cut.bkh" in out
    assert err.startswith("bk-verify: cut.bkh: is truncated")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"accusations": 2, "agreed": 2}, 1),
        ({"rejected_files": 1}, 2),
        ({"accusations": 2, "agreed": 1, "disagreed": 1, "rejected_files": 1}, 4),
    ],
)
def test_the_exit_code_of_a_comparison(
    few: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], code: int
) -> None:
    nothing: dict[str, Any] = {"histories": 2, "rejected_files": 0, "accusations": 0, "agreed": 0, "disagreed": 0}
    one = Disagreement("h.bkh", "LacHonest", 4, ("C1",), ())
    file = Disagreement("i.bkh", "", -1, (), ("is damaged",))
    found = Comparison(**nothing | changes, disagreements=(one, file) if "disagreed" in changes else (), seconds=1.0)
    monkeypatch.setattr(cli_check, "compare", lambda *_arguments, **_options: found)

    status, out, _ = run("compare", few)
    assert status == code
    assert "2 histories judged by both witnesses" in out
    if found.disagreed:
        assert "LacHonest  h.bkh, ledger 4\n  checker: C1\n  formulas: nothing wrong" in out
        assert "file  i.bkh\n  checker: nothing wrong\n  formulas: is damaged" in out
    assert run("compare", few, "--json")[0] == code


# Without Spark -------------------------------------------------------------------------------------------------------


def test_whatever_a_history_holds_the_others_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FailsForThree(OnlineChecker):
        def feed_all(self, events: Iterable[Event]) -> None:
            for event in events:
                if event.ledger == 3:
                    raise OverflowError("too much")
                super().feed_all((event,))

    record(tmp_path / "a.bkh", truncating(3))
    record(tmp_path / "b.bkh", bystander())
    monkeypatch.setattr(checking, "OnlineChecker", FailsForThree)
    rows = list(judge_files(find_histories(tmp_path), check_history, unchecked))
    assert [(row[0], row[1]) for row in rows] == [
        ("a.bkh", "holds what cannot be judged (OverflowError: too much)"),
        ("b.bkh", None),
    ]
