"""SingleWriterOrder: one writer sends a ledger's entries, in order where it numbers them itself.

An entry is sent for the first time after all below it. That is judged where the application did not choose the id, which its
APP_ADD tells. And only one incarnation of one client ever sends adds that are not part of a recovery.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts

__all__ = ["SINGLE_WRITER_ORDER"]

_WRITER: Final = (*LEDGER_KEY, "actor", "incarnation")


def _writers(facts: Facts) -> DataFrame:
    """Ledgers with the first add of each of their writers, as observations."""
    first = (
        facts.first_sends.groupBy(*_WRITER)
        .agg(sf.min("sent").alias("sent"))
        .groupBy(*LEDGER_KEY)
        .agg(sf.array_sort(sf.collect_list(sf.struct("sent", "actor", "incarnation"))).alias("writers"))
    )
    one, other = sf.get("writers", sf.lit(0)), sf.get("writers", sf.lit(1))
    finding = tell(
        "G1",
        sf.size("writers") > 1,
        other["sent"],
        [one["sent"], other["sent"]],
        "%s (incarnation %d) adds (event %d) to a ledger that %s (incarnation %d) wrote (event %d)",
        other["actor"],
        other["incarnation"],
        other["sent"],
        one["actor"],
        one["incarnation"],
        one["sent"],
    )
    return observed(first, finding)


def _order(facts: Facts) -> DataFrame:
    """Entries that their writer numbered, with the highest that it had sent before, as observations."""
    before = Window.partitionBy(*_WRITER).orderBy("sent").rowsBetween(Window.unboundedPreceding, -1)
    entry, below = sf.col("entry"), sf.coalesce(sf.col("below"), sf.lit(-1))
    numbered = (
        facts.of(Kind.APP_ADD)
        .filter(~sf.col("given"))
        .select(*_WRITER, "entry", sf.lit(True).alias("is_numbered"))  # noqa: FBT003
        .distinct()
    )
    sends = (
        facts.first_sends.groupBy(*_WRITER, "entry")
        .agg(sf.min("sent").alias("sent"))
        .withColumn("below", sf.max("entry").over(before))
        .transform(join_small, numbered, on=(*_WRITER, "entry"), how="left")
    )
    finding = tell(
        "G1",
        sf.col("is_numbered") & (entry > below + 1),
        sf.col("sent"),
        [sf.col("sent")],
        "%s sent entry %d (event %d) before it ever sent entry %d",
        sf.col("actor"),
        entry,
        sf.col("sent"),
        below + 1,
    )
    return observed(sends, finding)


def _observe(facts: Facts) -> DataFrame:
    return _writers(facts).union(_order(facts))


SINGLE_WRITER_ORDER: Final = Invariant(
    name="SingleWriterOrder",
    clauses=("G1",),
    kinds=(Kind.ADD_SEND, Kind.APP_ADD),
    columns=("seq", "actor", "incarnation", "entry", "bookie", "recovery", "lac", "given"),
    observe=_observe,
)
