"""LimboNeverDenies: a bookie that may have lost entries denies nothing.

It was in limbo from before the read was sent until the answer arrived.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.denials import DENIAL_COLUMNS, DENIAL_KINDS
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, join_small, observed, tell
from spark_analysis.invariants.facts import Facts

__all__ = ["LIMBO_NEVER_DENIES"]


def _observe(facts: Facts) -> DataFrame:
    seq, sent = sf.col("seq"), sf.col("sent")
    is_on = sf.col("verdict") == "on"
    limbos = (
        facts.rare_events.filter(is_kind(Kind.BK_LIMBO) & sf.col("verdict").isNotNull())
        .groupBy(*LEDGER_KEY, sf.col("actor").alias("bookie"))
        .agg(
            sf.collect_list(sf.when(is_on, seq)).alias("begins"),
            sf.collect_list(sf.when(~is_on, seq)).alias("ends"),
        )
    )
    ended = sf.coalesce(sf.array_max(sf.filter("ends", lambda end: end < seq)), sf.lit(-1))
    judged = (
        join_small(facts.denied_requests, limbos, on=(*LEDGER_KEY, "bookie"), how="left")
        .withColumn("ended", ended)
        .withColumn("limbo", sf.array_min(sf.filter("begins", lambda begin: (begin > sf.col("ended")) & (begin < seq))))
    )
    finding = tell(
        "D11",
        sf.col("limbo") < sent,
        seq,
        [sf.col("limbo"), sent, seq],
        "%s denied entry %d (event %d) to %s although it may have lost entries of the ledger (event %d)",
        sf.col("bookie"),
        sf.col("entry"),
        seq,
        sf.col("actor"),
        sf.col("limbo"),
    )
    return observed(judged, finding)


LIMBO_NEVER_DENIES: Final = Invariant(
    name="LimboNeverDenies",
    clauses=("D11",),
    kinds=(*DENIAL_KINDS, Kind.BK_LIMBO),
    columns=(*DENIAL_COLUMNS, "verdict"),
    observe=_observe,
)
