"""GcOnlyDead: a bookie drops only ledgers that are deleted or have no fragment on it.

By the metadata that the store held when the bookie dropped the ledger; a history that has none of it does not tell.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.images import image_at
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["GC_ONLY_DEAD"]


def _observe(facts: Facts) -> DataFrame:
    bookie, seq, stored = sf.col("actor"), sf.col("seq"), sf.col("stored")
    drops = facts.rare_events.filter(is_kind(Kind.BK_GC)).select(*LEDGER_KEY, "actor", "seq")
    judged = join_small(drops, facts.images, on=LEDGER_KEY, how="left").withColumn("stored", image_at(seq))
    finding = tell(
        "D12",
        sf.exists(stored["fragments"], lambda fragment: sf.array_contains(fragment["bookies"], bookie)),
        seq,
        [stored["seq"], seq],
        "%s dropped the ledger (event %d), of which the stored metadata (event %d) names it a member",
        bookie,
        seq,
        stored["seq"],
    )
    return observed(judged, finding)


GC_ONLY_DEAD: Final = Invariant(
    name="GcOnlyDead",
    clauses=("D12",),
    kinds=(Kind.BK_GC, *LEDGER_KINDS),
    columns=("seq", "actor", *LEDGER_COLUMNS),
    observe=_observe,
    premise=(Kind.BK_GC,),
)
