"""Histories are judged a part at a time, by one plan: the verdict is that of all at once, and what a part needed is given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_analysis.invariants import Invariant, judge, select
from spark_analysis.invariants.facts import Facts
from spark_analysis.jobs import inputs, judging
from spark_analysis.jobs.compare import compare
from spark_analysis.jobs.ingest import ingest
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.keeping import Kept, kept_partitions
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
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The invariants that are planned from now on."""
    names: list[str] = []

    def judge_and_note(facts: Facts, invariants: Sequence[Invariant]) -> DataFrame:
        names.extend(invariant.name for invariant in invariants)
        return judge(facts, invariants)

    monkeypatch.setattr(judging, "judge", judge_and_note)
    return names


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["files", "dataset"])
def test_a_verdict_in_parts_is_the_verdict_on_all(
    spark: SparkSession, folder: Path, dataset: Path, kind: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder if kind == "files" else dataset
    told: list[tuple[int, int]] = []
    kept: list[Counter[int]] = []
    before = Counter(kept_partitions(spark))

    def tell(done: int, in_all: int) -> None:
        told.append((done, in_all))
        kept.append(Counter(kept_partitions(spark)) - before)

    whole = verify(spark, source, invariants=TRUNCATION, max_witnesses=3, progress=tell)
    assert told == []
    assert (whole.histories, whole.rejected_files, whole.invariants[0].violated) == (6, 1, 5)
    assert [(one.history, one.ledger) for one in whole.violations] == [("a.bkh", 1), ("a.bkh", 3), ("b/first.bkh", 1)]

    monkeypatch.setattr(judging, "PART_BYTES", 1)
    monkeypatch.setattr(inputs, "PARTITION_BYTES", -(-histories_of(source).size // 5))
    in_parts = verify(spark, source, invariants=TRUNCATION, max_witnesses=3, progress=tell)
    assert replace(in_parts, seconds=0) == replace(whole, seconds=0)
    assert asked == ["NoLacTruncation"] * 2, "once for each verdict, not for each part"
    assert told == [(0, 2), (1, 2)]
    nothing, after_one = kept
    assert not nothing
    assert set(after_one.values()) == {3}, "findings of the first part's partitions"
    assert 2 <= len(after_one) <= 3, "findings and files, and perhaps what a broadcast under way has computed again"
    assert not Counter(kept_partitions(spark)) - before, "other tests may have given up more"


def test_parts_are_large_and_leave_no_core_without_work(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = histories_of(folder)
    monkeypatch.setattr(inputs, "PARTITION_BYTES", -(-histories.size // 10))
    assert histories.partitions(spark) == 10
    for part_bytes, parts in ((histories.size, 1), (histories.size - 1, 2), (histories.size // 4 + 1, 4), (1, 5)):
        monkeypatch.setattr(judging, "PART_BYTES", part_bytes)
        assert judging.parts_of(spark, histories) == parts, part_bytes
    monkeypatch.setattr(inputs, "PARTITION_BYTES", histories.size)
    assert judging.parts_of(spark, histories) == 1, "of as many partitions as there are cores"


@pytest.mark.deep
def test_a_comparison_in_parts_is_that_of_all(
    spark: SparkSession, folder: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of witnesses that disagree: one does not know of durable entries any more."""
    blind = replace(TRUNCATION[0], observe=lambda facts: TRUNCATION[0].observe(facts).filter("history != 'e.bkh'"))
    whole = compare(spark, folder, invariants=[blind], max_shown=1)
    monkeypatch.setattr(judging, "PART_BYTES", 1)
    monkeypatch.setattr(inputs, "PARTITION_BYTES", -(-histories_of(folder).size // 4))
    parts = compare(spark, folder, invariants=[blind], max_shown=1)
    assert asked == [blind.name] * 2
    assert replace(parts, seconds=0) == replace(whole, seconds=0)
    assert (whole.histories, whole.rejected_files, whole.accusations, whole.agreed) == (6, 1, 5, 4)
    assert [(one.history, one.ledger) for one in whole.disagreements] == [("e.bkh", 1)]


# What is kept --------------------------------------------------------------------------------------------------------


def test_what_is_kept_is_computed_once_and_again_when_it_is_lost(spark: SparkSession) -> None:
    """Partition by partition: one that nobody asked for is not computed, and one that is gone is."""
    computed = spark.sparkContext.accumulator(0)

    def count(numbers: Iterable[int]) -> Iterable[tuple[int]]:
        computed.add(1)
        return ((number,) for number in numbers)

    rows = spark.sparkContext.range(40, numSlices=4).mapPartitions(count)
    kept = Kept(spark)
    relation = kept.keep(spark.createDataFrame(rows, "number bigint"))
    for _ in range(2):
        assert spark.sparkContext.runJob(relation.rdd, lambda rows: [len(list(rows))], [1]) == [10]
    assert computed.value == 1
    for _ in range(2):
        assert relation.count() == 40
    assert computed.value == 4
    kept.forget()
    for _ in range(2):
        assert relation.count() == 40
    assert computed.value == 8
    kept.give_up()
    for _ in range(2):
        assert relation.count() == 40
    assert computed.value == 16
