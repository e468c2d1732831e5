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

__all__ = ["Kept", "compute_in_parts", "keep", "kept_partitions", "moved_once"]

#: Rows and not columns: everything here is read a few times, which does not repay building columns. What does not fit into memory
#: goes to disk.
_LEVEL: Final = StorageLevel.MEMORY_AND_DISK_DESER


def keep(relation: DataFrame) -> DataFrame:
    """``relation``, each partition of it computed at its first use and kept for as long as somebody refers to it.

    What is planned from it begins here, as from Spark's local checkpoint, which it is but for one thing: after the first job
    the checkpoint would have all partitions computed, and forget how. So what marks it as one is taken away; it is kept.
    """
    kept = relation.localCheckpoint(eager=False, storageLevel=_LEVEL)
    jvm: Any = relation.sparkSession._jvm  # noqa: SLF001  there is no public way
    getattr(_rows_of(kept), "checkpointData_$eq")(jvm.scala.Option.empty())
    return kept


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

    def keep(self, relation: DataFrame) -> DataFrame:
        """``relation``, kept until it is given up."""
        kept = keep(relation)
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
    return kept._jdf.queryExecution().analyzed().rdd()  # noqa: SLF001  there is no public way


def compute_in_parts(
    results: DataFrame, kept: Kept, parts: int, progress: Callable[[int, int], None] | None = None
) -> None:
    """Have ``results``, which are kept themselves, computed some partitions at a time; forget what is ``kept`` after each part.

    ``results`` have a column ``history``. ``progress`` is told before each part how many are done, and how many there are.
    """
    context = results.sparkSession.sparkContext
    none = results.filter(sf.col("history") == "").rdd  # asks for every row, and brings none here
    partitions = none.getNumPartitions()
    size = -(-partitions // parts)
    firsts = range(0, partitions, size)
    for done, first in enumerate(firsts):
        if progress is not None:
            progress(done, len(firsts))
        context.runJob(none, iter, list(range(first, min(first + size, partitions))))
        kept.forget()
