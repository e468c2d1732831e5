"""What invariants find in histories, planned once, by several threads.

The events are placed by history once, and kept apart by kind, as are the relations that several invariants
start from. Making and planning the questions takes longer than answering them until there are some hundred thousand events. It
is work for one processor, so the invariants are dealt out to threads, and the findings of each thread are one query of their own.

A task answers all questions about one partition. Many histories are judged a part of the partitions at a time, by the same plans,
and what was kept for a part is forgotten before the next; only findings stay. Few are judged at once; their events are read
meanwhile, and invariants that are about nothing that occurs there are not asked at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_analysis.invariants import Invariant, judge
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS
from spark_analysis.jobs.inputs import Histories
from spark_analysis.jobs.keeping import Kept, compute_in_parts
from spark_analysis.jobs.planning import planned_for_kept_partitions, without_call_sites
from spark_analysis.schema import FINDING_SCHEMA, HISTORY_COLUMNS
from spark_analysis.source import event_rows, file_rows

__all__ = ["PART_BYTES", "Judged", "judged_histories", "names_of", "numbered", "occurring_kinds", "parts_of"]

#: About how much of the files is judged at a time, or a partition for each core; some 2.5 million events.
PART_BYTES: Final = 96 * 1024 * 1024

_KEY_COLUMNS: Final = (*HISTORY_COLUMNS, "seq", "actor", "kind", "ledger", "problem", "events")

#: More threads than this find nothing to do: what they wait for is derived by one of them.
_PLANNERS_MAX: Final = 4


class Judged(NamedTuple):
    """Histories that were judged.

    ``findings`` have the columns of :data:`~spark_analysis.schema.FINDING_SCHEMA`. ``files`` has a row for every file:
    ``history``, ``scenario``, ``seed``, its ``problem`` if it is no usable history, its ``events``, and how many ``ledgers``
    the invariants may have looked at, null if none. ``table`` has the rows that they looked at. ``keep`` keeps what is derived
    from these, for as long as they are kept.
    """

    files: DataFrame
    findings: DataFrame
    table: DataFrame
    keep: Callable[[DataFrame], DataFrame]


@contextmanager
def judged_histories(
    spark: SparkSession,
    histories: Histories,
    invariants: Sequence[Invariant],
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Judged]:
    """What ``invariants`` find in ``histories``; it may be looked at inside the block, and is given up at its end.

    If there is more than one part, all are judged before the block begins; ``progress`` is told before each how many are done,
    and how many there are.
    """
    kinds = dict.fromkeys((*LEDGER_KINDS, *(kind for invariant in invariants for kind in invariant.kinds)))
    columns = dict.fromkeys((*_KEY_COLUMNS, *LEDGER_COLUMNS))
    columns |= dict.fromkeys(name for invariant in invariants for name in invariant.columns)
    parts = parts_of(spark, histories)
    meanwhile, results = Kept(spark), Kept(spark)
    with (
        planned_for_kept_partitions(spark, histories.size, histories.largest_partition),
        histories.table(spark, tuple(columns), [str(kind) for kind in kinds]) as rows,
    ):
        try:
            files = results.keep(_files(rows))
            found = _findings(spark, rows, invariants, meanwhile, results, read_ahead=parts == 1)
            findings = reduce(DataFrame.union, found)
            if parts > 1:
                compute_in_parts(_histories_of([files, *found]), meanwhile, parts, progress)
                meanwhile.give_up()
            yield Judged(files, findings, rows, results.keep)
        finally:
            for kept in (meanwhile, results):
                kept.give_up()


def parts_of(spark: SparkSession, histories: Histories) -> int:
    """In how many parts to judge ``histories``: of about :data:`PART_BYTES`, but no core has to be without a partition."""
    partitions = histories.partitions(spark)
    by_size = -(-histories.size // PART_BYTES)
    return max(1, min(by_size, partitions // spark.sparkContext.defaultParallelism))


def _files(table: DataFrame) -> DataFrame:
    """The row of each file in ``table``, as :class:`Judged` has them."""
    of_ledgers = table.filter(sf.col("ledger") >= 0).select(*LEDGER_KEY).distinct()
    ledgers = of_ledgers.groupBy("history").agg(sf.count(sf.lit(1)).alias("ledgers"))
    files = file_rows(table).select(*HISTORY_COLUMNS, "problem", "events")
    return join_small(files, ledgers, on=("history",), how="left")


def numbered(rows: DataFrame) -> DataFrame:
    """``rows``, their history no name but a number: it is part of every key, and a number is compared in one step."""
    return rows.withColumn("history", sf.xxhash64("history"))


def names_of(table: DataFrame, keep: Callable[..., DataFrame]) -> DataFrame:
    """By ``number``, the ``name`` of each history in ``table``. Two of one partition that have the same fail the job."""
    files = file_rows(table).select(sf.xxhash64("history").alias("number"), sf.col("history").alias("name"))
    only = sf.when(sf.count(sf.lit(1)) == 1, sf.min("name"))
    refused = sf.format_string("two histories have the number of %s; judge it in a folder of its own", sf.min("name"))
    by_number = keep(files, placed_by="number").groupBy("number")
    return by_number.agg(sf.coalesce(only, sf.raise_error(refused)).alias("name"))


def _named(findings: DataFrame, names: DataFrame) -> DataFrame:
    """``findings``, told of histories by name."""
    by_number = findings.withColumnRenamed("history", "number")
    return join_small(by_number, names, on=("number",), how="inner").select(
        *(sf.col("name").alias("history") if column == "history" else column for column in FINDING_SCHEMA.names)
    )


def _histories_of(results: Sequence[DataFrame]) -> DataFrame:
    """The histories of all rows of ``results``, which are partitioned alike."""
    return reduce(DataFrame.union, [result.select("history") for result in results])


def occurring_kinds(table: DataFrame) -> frozenset[str]:
    """The kinds of the events in ``table``."""
    return frozenset(row["kind"] for row in table.select("kind").distinct().collect() if row["kind"] is not None)


def _findings(
    spark: SparkSession,
    table: DataFrame,
    invariants: Sequence[Invariant],
    meanwhile: Kept,
    results: Kept,
    *,
    read_ahead: bool,
) -> list[DataFrame]:
    """What ``invariants`` find in ``table``, in some relations of which there is one at least.

    With ``read_ahead`` the table is read to see which kinds occur, and none is asked in which no kind of its premise does.
    """
    facts = Facts(numbered(event_rows(table)), meanwhile.keep, lambda rows: meanwhile.keep(rows, placed_by="history"))
    known = names_of(table, results.keep)

    def plan(part: Sequence[Invariant]) -> DataFrame:
        with without_call_sites(spark):
            return results.keep(_named(judge(facts, part), known), placed_by="history")

    def kinds() -> frozenset[str]:
        with without_call_sites(spark):
            return occurring_kinds(table)

    planners = max(1, min(_PLANNERS_MAX, os.cpu_count() or 1))
    always = [invariant for invariant in invariants if not (read_ahead and invariant.premise)]
    perhaps = [invariant for invariant in invariants if read_ahead and invariant.premise]
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
