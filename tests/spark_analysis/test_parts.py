"""Histories are judged a part at a time: the verdict is that of all at once, and what a part needed is given up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_analysis.invariants import Invariant, select
from spark_analysis.jobs import inputs
from spark_analysis.jobs.compare import compare
from spark_analysis.jobs.ingest import ingest
from spark_analysis.jobs.inputs import Histories, histories_of
from spark_analysis.jobs.judging import judged_histories
from spark_analysis.jobs.verify import verify
from tests.spark_analysis.recorded import bystander, record, truncated, truncating, unfinished

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TRUNCATION = select(["NoLacTruncation"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven files, of which six are histories; in four of them a ledger is closed too low."""
    folder = tmp_path_factory.mktemp("parts")
    record(folder / "a.bkh", truncating(1), bystander(2), truncating(3), scenario="bad", seed=5)
    record(folder / "b" / "first.bkh", truncating(1), unfinished(2), scenario="bad", seed=6)
    record(folder / "b" / "second.bkh", bystander(1), seed=7)
    record(folder / "c.bkh", bystander(4), seed=8)
    truncated(folder / "d.bkh")
    record(folder / "e.bkh", truncating(1), scenario="bad", seed=9)
    record(folder / "f.bkh", truncating(1), scenario="bad", seed=10)
    return folder


@pytest.fixture(scope="module")
def dataset(spark: SparkSession, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a folder whose name has what means something to Spark."""
    target = tmp_path_factory.mktemp("parts") / "a data set's [1] {2}*"
    assert ingest(spark, folder, target, buckets=5).taken == 6
    return target


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Histories]:
    """The parts that are judged from now on."""
    parts: list[Histories] = []

    def judge(spark: SparkSession, part: Histories, invariants: tuple[Invariant, ...]) -> Any:
        parts.append(part)
        return judged_histories(spark, part, invariants)

    for job in ("verify", "compare"):
        monkeypatch.setattr(f"spark_analysis.jobs.{job}.judged_histories", judge)
    return parts


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["files", "dataset"])
def test_a_verdict_in_parts_is_the_verdict_on_all(
    spark: SparkSession,
    folder: Path,
    dataset: Path,
    kind: str,
    judged: list[Histories],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = folder if kind == "files" else dataset
    whole = verify(spark, source, invariants=TRUNCATION, max_witnesses=3)
    assert len(judged) == 1
    assert (whole.histories, whole.rejected_files, whole.invariants[0].violated) == (6, 1, 5)
    assert [(one.history, one.ledger) for one in whole.violations] == [("a.bkh", 1), ("a.bkh", 3), ("b/first.bkh", 1)]

    monkeypatch.setattr(inputs, "PART_BYTES", histories_of(source).size // 3)
    told: list[tuple[int, int]] = []
    in_parts = verify(
        spark, source, invariants=TRUNCATION, max_witnesses=3, progress=lambda done, in_all: told.append((done, in_all))
    )
    assert replace(in_parts, seconds=0) == replace(whole, seconds=0)
    assert len(judged) > 1 + 1
    assert told == [(done, len(judged) - 1) for done in range(len(judged) - 1)]


def test_what_is_kept_of_a_part_is_given_up(spark: SparkSession, folder: Path) -> None:
    """At once, and not when somebody's garbage collector comes across it."""
    with judged_histories(spark, histories_of(folder / "a.bkh"), TRUNCATION) as (table, findings):
        assert table.count() > findings.count() > 0
    for relation in (table, findings):
        with pytest.raises((Py4JJavaError, PySparkException), match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
            relation.count()


@pytest.mark.deep
def test_a_comparison_in_parts_is_that_of_all(
    spark: SparkSession, folder: Path, judged: list[Histories], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of witnesses that disagree: one does not know of durable entries any more."""
    blind = replace(TRUNCATION[0], observe=lambda facts: TRUNCATION[0].observe(facts).filter("history != 'e.bkh'"))
    whole = compare(spark, folder, invariants=[blind], max_shown=1)
    monkeypatch.setattr(inputs, "PART_BYTES", histories_of(folder).size // 2)
    parts = compare(spark, folder, invariants=[blind], max_shown=1)
    assert len(judged) == 1 + 2
    assert replace(parts, seconds=0) == replace(whole, seconds=0)
    assert (whole.histories, whole.rejected_files, whole.accusations, whole.agreed) == (6, 1, 5, 4)
    assert [(one.history, one.ledger) for one in whole.disagreements] == [("e.bkh", 1)]


# Without Spark -------------------------------------------------------------------------------------------------------


def parts_of(folder: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the parts of a folder with files of these sizes, for parts of 100 bytes."""
    for number, size in enumerate(sizes):
        (folder / f"{number:02d}.bkh").write_bytes(bytes(size))
    monkeypatch.setattr(inputs, "PART_BYTES", 100)
    return [part.size for part in histories_of(folder).parts()]


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([10] * 10, [100]),
        ([0, 0], [0]),
        ([10] * 11, [60, 50]),
        ([10] * 30, [100, 100, 100]),
        ([40] * 6, [80, 80, 80]),
        ([300, 10, 10], [300, 20]),
        ([10, 10, 300, 10], [20, 300, 10]),
    ],
)
def test_parts_are_about_equal_and_not_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], parts: list[int]
) -> None:
    assert parts_of(tmp_path, sizes, monkeypatch) == parts
