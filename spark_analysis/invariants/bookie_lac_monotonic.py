"""BookieLacMonotonic: the last add confirmed of a running bookie never falls.

It is in memory, so a crash lets it start anew.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import bookie_crashes

__all__ = ["BOOKIE_LAC_MONOTONIC"]


def _observe(facts: Facts) -> DataFrame:
    in_order = Window.partitionBy(*LEDGER_KEY, "bookie").orderBy("seq")
    lac, seq, known = sf.col("lac"), sf.col("seq"), sf.col("known")
    lacs = (
        facts.of(Kind.BK_LAC)
        .filter(lac.isNotNull())
        .select(*LEDGER_KEY, sf.col("actor").alias("bookie"), "seq", "lac")
        .withColumn("known", sf.lag(sf.struct("lac", "seq")).over(in_order))
        .transform(join_small, bookie_crashes(facts.rare_events), on=("history", "bookie"), how="left")
    )
    has_crashed = is_true(sf.exists("crashes", lambda crash: (crash > known["seq"]) & (crash < seq)))
    finding = tell(
        "D5",
        (lac < known["lac"]) & ~has_crashed,
        seq,
        [known["seq"], seq],
        "the last add confirmed of %s fell from %d (event %d) to %d (event %d)",
        sf.col("bookie"),
        known["lac"],
        known["seq"],
        lac,
        seq,
    )
    return observed(lacs, finding)


BOOKIE_LAC_MONOTONIC: Final = Invariant(
    name="BookieLacMonotonic",
    clauses=("D5",),
    kinds=(Kind.BK_LAC, Kind.BK_CRASH),
    columns=("seq", "actor", "lac"),
    observe=_observe,
)
