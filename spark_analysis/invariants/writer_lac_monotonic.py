"""WriterLacMonotonic: the last add confirmed of a writer never falls, and is below what it sends.

By the LAC in the headers of entries that are higher than all that the writer sent before: what is sent again carries the LAC that
it was given at first.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, observed, tell
from spark_analysis.invariants.facts import Facts

__all__ = ["WRITER_LAC_MONOTONIC"]

_WRITER: Final = (*LEDGER_KEY, "actor", "incarnation")


def _observe(facts: Facts) -> DataFrame:
    entry, lac, sent, below = sf.col("entry"), sf.col("lac"), sf.col("sent"), sf.col("below")
    in_order = Window.partitionBy(*_WRITER).orderBy("sent")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    sends = facts.first_sends.groupBy(*_WRITER, "entry", "lac").agg(sf.min("sent").alias("sent"))
    higher = (
        sends.withColumn("highest", sf.max("entry").over(before))
        .withColumn("is_higher", sf.coalesce(entry > sf.col("highest"), sf.lit(True)))  # noqa: FBT003
        .withColumn("shown", sf.when(sf.col("is_higher"), sf.struct("lac", "entry", "sent")))
        .withColumn("below", sf.last("shown", ignorenulls=True).over(before))
    )
    fallen = tell(
        "G2",
        sf.col("is_higher") & (lac < below["lac"]),
        sent,
        [below["sent"], sent],
        "the last add confirmed of %s fell from %d, sent with entry %d (event %d), to %d, sent with entry %d (event %d)",
        sf.col("actor"),
        below["lac"],
        below["entry"],
        below["sent"],
        lac,
        entry,
        sent,
    )
    too_high = tell(
        "G2",
        lac >= entry,
        sent,
        [sent],
        "%s sent entry %d with entry %d as its last add confirmed (event %d)",
        sf.col("actor"),
        entry,
        lac,
        sent,
    )
    return observed(higher, fallen, too_high)


WRITER_LAC_MONOTONIC: Final = Invariant(
    name="WriterLacMonotonic",
    clauses=("G2",),
    kinds=(Kind.ADD_SEND,),
    columns=("seq", "actor", "incarnation", "entry", "bookie", "recovery", "lac"),
    observe=_observe,
)
