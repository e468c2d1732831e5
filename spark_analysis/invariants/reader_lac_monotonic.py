"""ReaderLacMonotonic: the last add confirmed of a reader never falls.

Judged by what each handle of each client learned. What a reader had when a read began raises what it has to keep to,
but is not judged itself, since its event stands where the read ended. Histories that do not tell handles apart are
passed over, and so are clients that started more than once: their handles are counted from 1 again.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, join_small, observed, tell
from spark_analysis.invariants.facts import Facts

__all__ = ["READER_LAC_MONOTONIC"]


def _observe(facts: Facts) -> DataFrame:
    before = (
        Window.partitionBy(*LEDGER_KEY, "actor", "handle").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    )
    lac, seq = sf.col("lac"), sf.col("seq")
    lives = (
        facts.rare_events.filter(is_kind(Kind.CLIENT_START))
        .groupBy("history", "actor")
        .agg(sf.count(sf.lit(1)).alias("lives"))
    )
    learned = (
        facts.of(Kind.LAC_ADV, Kind.READ_RESULT)
        .filter(sf.col("handle").isNotNull())
        .select(*LEDGER_KEY, "actor", "handle", "kind", "seq", "lac")
        .transform(join_small, lives, on=("history", "actor"), how="left")
        .filter(sf.coalesce("lives", sf.lit(1)) == 1)
        .withColumn("known", sf.max(sf.struct("lac", "seq")).over(before))
        .filter(is_kind(Kind.LAC_ADV))
    )
    known = sf.col("known")
    finding = tell(
        "F2",
        lac < known["lac"],
        seq,
        [known["seq"], seq],
        "the last add confirmed of a reader of %s fell from %d to %d (events %d and %d)",
        sf.col("actor"),
        known["lac"],
        lac,
        known["seq"],
        seq,
    )
    return observed(learned, finding)


READER_LAC_MONOTONIC: Final = Invariant(
    name="ReaderLacMonotonic",
    clauses=("F2",),
    kinds=(Kind.LAC_ADV, Kind.READ_RESULT, Kind.CLIENT_START),
    columns=("seq", "actor", "handle", "lac"),
    observe=_observe,
)
