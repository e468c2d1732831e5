"""RecoveryLacFrozen: what one recovery writes back carries one last add confirmed.

That is the one it started from. An advancing one could let a reader see, on the word of this recovery, an entry that
a concurrent one closes the ledger without.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.runs import RUN_COLUMNS, RUN_KEY, RUN_KINDS, run_of_add, starts_of

__all__ = ["RECOVERY_LAC_FROZEN"]


def _observe(facts: Facts) -> DataFrame:
    starts = starts_of(facts.runs)
    seq = sf.col("seq")
    sent = (
        facts.of(Kind.ADD_SEND)
        .filter(sf.col("recovery"))
        .select(*LEDGER_KEY, "actor", "seq", "lac")
        .transform(join_small, starts, on=(*LEDGER_KEY, "actor"), how="inner")
        .withColumn("run", run_of_add(seq))
        .filter(sf.col("run").isNotNull())
        .groupBy(*RUN_KEY)
        .agg(sf.min(sf.struct("lac", "seq")).alias("least"), sf.max(sf.struct("lac", "seq")).alias("greatest"))
    )
    least, greatest = sf.col("least"), sf.col("greatest")
    at = sf.greatest(least["seq"], greatest["seq"])
    finding = tell(
        "E9",
        least["lac"] != greatest["lac"],
        at,
        [least["seq"], greatest["seq"]],
        "recovery by %s wrote back with last add confirmed %d (event %d) and %d (event %d)",
        sf.col("actor"),
        least["lac"],
        least["seq"],
        greatest["lac"],
        greatest["seq"],
    )
    return observed(sent, finding)


RECOVERY_LAC_FROZEN: Final = Invariant(
    name="RecoveryLacFrozen",
    clauses=("E9",),
    kinds=(*RUN_KINDS, Kind.ADD_SEND),
    columns=RUN_COLUMNS,
    observe=_observe,
)
