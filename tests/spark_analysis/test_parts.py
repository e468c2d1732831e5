"""Histories are judged a part at a time, by one plan: the verdict is that of all at once, and what a part needed is given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_analysis.invariants import Invariant, judge, select
from spark_analysis.invariants.facts import Facts
from spark_analysis.jobs import inputs, judging
from spark_analysis.jobs.compare import compare
from spark_analysis.jobs.ingest import ingest
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.keeping import Kept, keep, kept_partitions, part_size
from spark_analysis.jobs.planning import planned_for_kept_partitions
from spark_analysis.jobs.verify import verify
from tests.spark_analysis.plan_text import plan_text
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
    assert told == [(0, 3), (1, 3), (2, 3)], "two partitions each, for a third would leave a core without work"
    assert not kept[0]
    for done, after in enumerate(kept[1:], 1):
        so_far = [partitions for partitions in after.values() if partitions == 2 * done]
        assert len(so_far) >= 3, "findings, files and names"
        assert len(after) <= 4, "and perhaps what a broadcast under way has computed again"
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
    is_seen = sf.col("history") != sf.xxhash64(sf.lit("e.bkh"))
    blind = replace(TRUNCATION[0], observe=lambda facts: TRUNCATION[0].observe(facts).filter(is_seen))
    whole = compare(spark, folder, invariants=[blind], max_shown=1)
    monkeypatch.setattr(judging, "PART_BYTES", 1)
    monkeypatch.setattr(inputs, "PARTITION_BYTES", -(-histories_of(folder).size // 4))
    parts = compare(spark, folder, invariants=[blind], max_shown=1)
    assert asked == [blind.name] * 2
    assert replace(parts, seconds=0) == replace(whole, seconds=0)
    assert (whole.histories, whole.rejected_files, whole.accusations, whole.agreed) == (6, 1, 5, 4)
    assert [(one.history, one.ledger) for one in whole.disagreements] == [("e.bkh", 1)]


@pytest.mark.parametrize(
    ("partitions", "parts", "cores", "size"),
    [(14, 5, 2, 2), (5, 2, 2, 2), (10, 10, 2, 1), (100, 3, 4, 32), (8, 2, 4, 4)],
)
def test_a_part_has_as_many_partitions_for_each_core(partitions: int, parts: int, cores: int, size: int) -> None:
    assert part_size(partitions, parts, cores) == size


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


def test_what_is_kept_is_placed_as_keep_is_told(spark: SparkSession) -> None:
    """Rows of one name are in one partition, so those of one number that is made of it are; Spark does not know that."""
    with planned_for_kept_partitions(spark, input_bytes=0, partition_bytes=0):
        names = spark.range(1000).select((sf.col("id") % 50).cast("string").alias("name")).repartition(3, "name")
        numbers = names.select(sf.xxhash64("name").alias("number"))
        counted = [kept.groupBy("number").count() for kept in (keep(numbers), keep(numbers, placed_by="number"))]
        assert ["Exchange" in plan_text(counts) for counts in counted] == [True, False]
        moved, left = (sorted(map(tuple, counts.collect())) for counts in counted)
    assert left == moved
    assert [count for _, count in left] == [20] * 50


def test_histories_of_one_number_are_not_taken_for_each_other(spark: SparkSession) -> None:
    """There is none in a hundred million million; here, one is there twice."""
    with planned_for_kept_partitions(spark, input_bytes=0, partition_bytes=0):
        table = spark.createDataFrame([("a", None), ("b", None), ("a", None)], "history string, kind string")
        placed = table.repartition(2, "history")
        names = judging.names_of(placed, keep)
        assert [row["name"] for row in names.filter(sf.col("number") == sf.xxhash64(sf.lit("b"))).collect()] == ["b"]
        with pytest.raises(SparkRuntimeException, match="two histories have the number of a"):
            names.collect()
