"""NoFalseNegative: a bookie does not deny what it has.

It denied an entry that it held from before the read was sent until the answer arrived; a history does not show when in between
the bookie answered. What it lost or collected it does not hold.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.denials import DENIAL_COLUMNS, DENIAL_KINDS
from spark_analysis.invariants.expressions import ENTRY_KEY, LEDGER_KEY, is_kind, join_small, observed, tell
from spark_analysis.invariants.facts import Facts

__all__ = ["NO_FALSE_NEGATIVE"]

_COPY: Final = (*ENTRY_KEY, "bookie")


def _observe(facts: Facts) -> DataFrame:
    seq, sent = sf.col("seq"), sf.col("sent")
    denials = facts.denied_requests
    is_store, is_loss = is_kind(Kind.BK_STORE), is_kind(Kind.BK_LOSS)
    copies = (
        facts.of(Kind.BK_STORE, Kind.BK_LOSS)
        .select(*ENTRY_KEY, sf.col("actor").alias("bookie"), "kind", "seq")
        .transform(join_small, denials.select(*_COPY).distinct(), on=_COPY, how="left_semi")
        .groupBy(*_COPY)
        .agg(
            sf.collect_list(sf.when(is_store, seq)).alias("stores"),
            sf.collect_list(sf.when(is_loss, seq)).alias("losses"),
        )
    )
    collections = (
        facts.rare_events.filter(is_kind(Kind.BK_GC))
        .groupBy(*LEDGER_KEY, sf.col("actor").alias("bookie"))
        .agg(sf.collect_list("seq").alias("collections"))
    )
    removed = sf.greatest(
        *(sf.array_max(sf.filter(name, lambda at: at < seq)) for name in ("losses", "collections")), sf.lit(-1)
    )
    judged = (
        denials.transform(join_small, copies, on=_COPY, how="left")
        .transform(join_small, collections, on=(*LEDGER_KEY, "bookie"), how="left")
        .withColumn("removed", removed)
        .withColumn(
            "since", sf.array_min(sf.filter("stores", lambda store: (store > sf.col("removed")) & (store < seq)))
        )
    )
    finding = tell(
        "D10",
        sf.col("since") < sent,
        seq,
        [sf.col("since"), sent, seq],
        "%s held entry %d (event %d) before %s asked for it (event %d), and denied it (event %d)",
        sf.col("bookie"),
        sf.col("entry"),
        sf.col("since"),
        sf.col("actor"),
        sent,
        seq,
    )
    return observed(judged, finding)


NO_FALSE_NEGATIVE: Final = Invariant(
    name="NoFalseNegative",
    clauses=("D10",),
    kinds=(*DENIAL_KINDS, Kind.BK_STORE, Kind.BK_LOSS, Kind.BK_GC),
    columns=DENIAL_COLUMNS,
    observe=_observe,
)
