"""Relations that are computed once and kept, for all questions that start from them or for those about a part of the histories.

Spark's own checkpoints cut the lineage of what they keep. So all partitions have to be computed at once, which takes memory for
all histories, and what is lost with an executor is lost for good. What is kept here is computed partition by partition, can be
given up and computed again, and Spark does so by itself for what an executor had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

__all__ = ["Kept", "compute_in_parts", "keep", "kept_partitions", "moved_once", "part_size"]

#: Rows and not columns: everything here is read a few times, which does not repay building columns. What does not fit into memory
#: goes to disk.
_LEVEL: Final = StorageLevel.MEMORY_AND_DISK_DESER


def keep(relation: DataFrame, placed_by: str | None = None) -> DataFrame:
    """``relation``, each partition of it computed at its first use and kept for as long as somebody refers to it.

    What is planned from it begins here, as from Spark's local checkpoint, which it is but for one thing: after the first job
    the checkpoint would have all partitions computed, and forget how. So what marks it as one is taken away; it is kept.

    ``placed_by`` is a column with the property that rows which are equal in it are in one partition, and in the same one for all
    relations that are kept so. Spark knows it of columns that it placed rows by, and not of what is derived from them.
    """
    kept = relation.localCheckpoint(eager=False, storageLevel=_LEVEL)
    jvm: Any = relation.sparkSession._jvm  # noqa: SLF001  there is no public way
    getattr(_rows_of(kept), "checkpointData_$eq")(jvm.scala.Option.empty())
    return kept if placed_by is None else _placed(kept, placed_by)


def _placed(kept: DataFrame, column: str) -> DataFrame:
    """``kept``, planned as if Spark had placed its rows by ``column``."""
    spark = kept.sparkSession
    jvm: Any = spark._jvm  # noqa: SLF001  there is no public way
    plan = _plan_of(kept)
    attribute = plan.output().apply(kept.columns.index(column))
    placed = jvm.org.apache.spark.sql.catalyst.plans.physical.HashPartitioning(
        jvm.PythonUtils.toSeq([attribute]), plan.rdd().getNumPartitions()
    )
    size = plan.productArity()
    values = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, size)  # type: ignore[union-attr]  # noqa: SLF001
    for place in range(size):
        is_placement = plan.productElementName(place) == "outputPartitioning"
        values[place] = placed if is_placement else plan.productElement(place)
    copied = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan.makeCopy(values))  # noqa: SLF001
    return DataFrame(copied, spark)


def moved_once(relation: DataFrame) -> DataFrame:
    """``relation``, computed whenever it is asked for, but for what comes before its last shuffle, which is done once.

    What is planned from it begins here, and takes the rows from the files of the shuffle, which stay for as long as somebody
    refers to it.
    """
    planned = keep(relation)
    _free(planned)
    return planned


class Kept:
    """Relations that are kept together, and given up together. Several threads may have some kept."""

    def __init__(self, spark: SparkSession) -> None:
        self._level = spark.sparkContext._getJavaStorageLevel(_LEVEL)  # noqa: SLF001
        self._relations: list[DataFrame] = []

    def keep(self, relation: DataFrame, placed_by: str | None = None) -> DataFrame:
        """``relation``, kept until it is given up, as :func:`keep` does."""
        kept = keep(relation, placed_by)
        self._relations.append(kept)
        return kept

    def forget(self) -> None:
        """Free what is kept by now; what is computed from now on is kept again."""
        for relation in self._relations:
            _free(relation).persist(self._level)

    def give_up(self) -> None:
        """Free what is kept; from now on it is computed whenever it is asked for."""
        for relation in self._relations:
            _free(relation)
        self._relations.clear()


def _free(kept: DataFrame) -> Any:
    """Free what is kept of a relation, at once: later it could be what is computed next. Gives the RDD that kept it."""
    return _rows_of(kept).unpersist(True)  # noqa: FBT003


def kept_partitions(spark: SparkSession) -> dict[int, int]:
    """How many partitions executors keep, by the number of the relation."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001  there is no public way
    return {told.id(): told.numCachedPartitions() for told in context.getRDDStorageInfo()}


def _rows_of(kept: DataFrame) -> Any:
    """The RDD that keeps a relation."""
    return _plan_of(kept).rdd()


def _plan_of(kept: DataFrame) -> Any:
    """The node of a plan that a kept relation is."""
    return kept._jdf.queryExecution().analyzed()  # noqa: SLF001  there is no public way


def compute_in_parts(
    results: DataFrame, kept: Kept, parts: int, progress: Callable[[int, int], None] | None = None
) -> None:
    """Have ``results``, which are kept themselves, computed some partitions at a time; forget what is ``kept`` after each part.

    ``results`` have a column ``history``. There are about so many ``parts``, more if a core would be left without work at the end
    of each. ``progress`` is told before each part how many are done, and how many there are.
    """
    context = results.sparkSession.sparkContext
    none = results.filter(sf.col("history") == "").rdd  # asks for every row, and brings none here
    partitions = none.getNumPartitions()
    size = part_size(partitions, parts, context.defaultParallelism)
    firsts = range(0, partitions, size)
    for done, first in enumerate(firsts):
        if progress is not None:
            progress(done, len(firsts))
        context.runJob(none, iter, list(range(first, min(first + size, partitions))))
        kept.forget()


def part_size(partitions: int, parts: int, cores: int) -> int:
    """How many partitions are a part, so that there are ``parts`` or more: as many for each core, if there are enough."""
    size = -(-partitions // parts)
    return size if size <= cores else size // cores * cores
