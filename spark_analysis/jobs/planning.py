"""How Spark plans the questions of a verification."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

__all__ = [
    "INTERPRETED",
    "INTERPRETED_BYTES",
    "PLANNING",
    "SORTED",
    "SORTED_BYTES",
    "planned_for_kept_partitions",
    "without_call_sites",
]

#: Everything is partitioned by history from the start, and every question groups and joins by history and more. Adaptive
#: execution would find nothing to adapt, and hides from later queries how kept data is partitioned. Hash aggregates hold a row
#: per ledger or entry of a partition, which is no reason to sort. And a nonsensical number in one history (an overflow, to ANSI
#: arithmetic) must not end the judgement of all others.
PLANNING: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # A data set is read as it lies even where the first question could do without: what is kept of it is asked more.
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    # A filter ahead of a join saves what would be shuffled; here it costs a scan and a shuffle of its own.
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
}

#: Generated code is compiled for every stage of every question, which repays itself from about 8 MiB of histories on. Less than
#: this is interpreted and little optimized.
INTERPRETED_BYTES: Final = 4 * 1024 * 1024

#: Rules of the optimizer that look at every expression of every question for something to simplify or to move. They take four
#: fifths of its time, and what they save is less than that where there are a few thousand rows.
_RULES: Final = (
    *("BooleanSimplification", "CollapseProject", "ColumnPruning", "ConstantFolding", "ConstantPropagation"),
    *("EliminateOuterJoin", "FoldablePropagation", "GenerateOptimization", "InferFiltersFromConstraints"),
    *("NullDownPropagation", "NullPropagation", "OptimizeCsvJsonExprs", "OptimizeOneRowRelationSubquery"),
    *("OptimizeUpdateFields", "PruneFilters", "PushDownPredicates", "PushFoldableIntoBranches"),
    *("RemoveRedundantAliases", "SimplifyBinaryComparison", "SimplifyConditionals", "UnwrapCastInBinaryComparison"),
)
INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.optimizer.excludedRules": ",".join(f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in _RULES),
}

#: A hash table of one side of a join has to fit into memory. Where a partition holds more than this, with a large history or in a
#: data set of too few buckets, both sides are sorted, and aggregates sort the rows of more keys than they hold; what is sorted
#: goes to disk where there is no room. What the driver has in hand may still be sent to all tasks.
SORTED_BYTES: Final = 128 * 1024 * 1024
SORTED: Final = {
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.autoBroadcastJoinThreshold": "256KB",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
}

#: Where in a program each step of a query was asked for is found out from the stack unless it is set, and only a web page shows
#: it. Each question has dozens of steps.
_CALL_SITE: Final = ("callSite.short", "callSite.long")
_NOBODY_LOOKS: Final = "bk-verify"


@contextmanager
def planned_for_kept_partitions(spark: SparkSession, input_bytes: int, partition_bytes: int) -> Iterator[None]:
    """Inside, queries are planned with :data:`PLANNING`.

    They are with :data:`INTERPRETED`, too, if there is little to read, and with :data:`SORTED` if the largest partition is made
    of so many bytes of files that a hash table of it may be too large for memory.
    """
    planning = PLANNING
    if input_bytes <= INTERPRETED_BYTES:
        planning = planning | INTERPRETED
    if partition_bytes > SORTED_BYTES:
        planning = planning | SORTED
    before = {name: spark.conf.get(name, None) for name in planning}
    for name, value in planning.items():
        spark.conf.set(name, value)
    try:
        with without_call_sites(spark):
            yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


@contextmanager
def without_call_sites(spark: SparkSession) -> Iterator[None]:
    """Inside, and in this thread, nobody looks for where queries are asked for."""
    context = spark.sparkContext
    sites = {name: context.getLocalProperty(name) for name in _CALL_SITE}
    for name in sites:
        context.setLocalProperty(name, _NOBODY_LOOKS)
    try:
        yield
    finally:
        for name, site in sites.items():
            context.setLocalProperty(name, site)  # type: ignore[arg-type]
