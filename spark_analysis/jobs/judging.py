"""What invariants find in histories, planned by several threads.

The events are read once and kept, partitioned by history, as are the relations that several invariants start from. Making and
planning the questions takes longer than answering them until there are some hundred thousand events. It is work for one
processor, so the invariants are dealt out to threads, and the findings of each thread are one query of their own. Meanwhile the
events are read; invariants that are about nothing that occurs there are not asked at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_analysis.invariants import Invariant, judge
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS
from spark_analysis.jobs.inputs import Histories
from spark_analysis.jobs.planning import planned_for_kept_partitions, without_call_sites
from spark_analysis.schema import FINDING_SCHEMA, HISTORY_COLUMNS
from spark_analysis.source import event_rows

__all__ = ["judged_histories", "keep", "occurring_kinds"]

_KEY_COLUMNS: Final = (*HISTORY_COLUMNS, "seq", "actor", "kind", "ledger", "problem", "events")

#: More threads than this find nothing to do: what they wait for is derived by one of them.
_PLANNERS_MAX: Final = 4


@contextmanager
def judged_histories(
    spark: SparkSession, histories: Histories, invariants: Sequence[Invariant]
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The rows of ``histories`` that ``invariants`` look at, and what they find.

    Findings have the columns of :data:`~spark_analysis.schema.FINDING_SCHEMA`, and are computed at first use inside the block.
    What was kept for them is given up at its end.
    """
    kinds = dict.fromkeys((*LEDGER_KINDS, *(kind for invariant in invariants for kind in invariant.kinds)))
    columns = dict.fromkeys((*_KEY_COLUMNS, *LEDGER_COLUMNS))
    columns |= dict.fromkeys(name for invariant in invariants for name in invariant.columns)
    with (
        planned_for_kept_partitions(spark, histories.size),
        histories.table(spark, tuple(columns), [str(kind) for kind in kinds]) as rows,
    ):
        kept: list[DataFrame] = []

        def keep_meanwhile(relation: DataFrame) -> DataFrame:
            kept.append(keep(relation))
            return kept[-1]

        try:
            table = keep_meanwhile(rows)
            yield table, reduce(DataFrame.union, _findings(spark, table, invariants, keep_meanwhile))
        finally:
            for relation in kept:
                _give_up(relation)


def keep(relation: DataFrame) -> DataFrame:
    """``relation``, computed at its first use and kept as rows for as long as it is referenced.

    Rows and not columns: everything here is read once or twice, which does not repay building columns.
    """
    return relation.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)


def _give_up(kept: DataFrame) -> None:
    """Free what is kept of a relation. Spark would do so when the JVM's garbage collector notices that nobody asks for it."""
    kept._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: FBT003, SLF001  there is no public way


def occurring_kinds(table: DataFrame) -> frozenset[str]:
    """The kinds of the events in ``table``."""
    return frozenset(row["kind"] for row in table.select("kind").distinct().collect() if row["kind"] is not None)


def _findings(
    spark: SparkSession,
    table: DataFrame,
    invariants: Sequence[Invariant],
    keep: Callable[[DataFrame], DataFrame],
) -> list[DataFrame]:
    """What ``invariants`` find in ``table``, in parts. There is one at least, and none in which no kind of its premise occurs."""
    facts = Facts(event_rows(table), keep)

    def plan(part: Sequence[Invariant]) -> DataFrame:
        with without_call_sites(spark):
            return keep(judge(facts, part))

    def kinds() -> frozenset[str]:
        with without_call_sites(spark):
            return occurring_kinds(table)

    planners = max(1, min(_PLANNERS_MAX, os.cpu_count() or 1))
    always = [invariant for invariant in invariants if not invariant.premise]
    perhaps = [invariant for invariant in invariants if invariant.premise]
    with ThreadPoolExecutor(planners + 1, thread_name_prefix="bk-verify-planner") as pool:
        occurring: Future[frozenset[str]] | None = pool.submit(kinds) if perhaps else None
        planned = [pool.submit(plan, part) for part in _dealt(always, planners)]
        found = [part.result() for part in planned]
        if occurring is not None:
            names = occurring.result()
            asked = [one for one in perhaps if not names.isdisjoint(one.premise)]
            found += pool.map(plan, _dealt(asked, planners))
    return found or [spark.createDataFrame([], FINDING_SCHEMA)]


def _dealt(invariants: Sequence[Invariant], hands: int) -> list[Sequence[Invariant]]:
    """``invariants`` in up to ``hands`` parts, of which none is empty."""
    return [invariants[first::hands] for first in range(min(hands, len(invariants)))]
