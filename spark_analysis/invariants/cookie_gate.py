"""CookieGate: a bookie whose cookie does not fit serves nothing, or vouches for nothing that it may have lost.

What it does counts by its last restart before.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import DENIALS, LEDGER_KEY, is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.images import image_at
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["COOKIE_GATE"]

_DEEDS: Final = (Kind.BK_ANSWER, Kind.BK_STORE, Kind.FENCE_SET)


def _observe(facts: Facts) -> DataFrame:
    bookie, seq, started = sf.col("actor"), sf.col("seq"), sf.col("restart.seq")
    restarted = facts.rare_events.filter(is_kind(Kind.BK_RESTART)).select("history", "actor").distinct()
    by_bookie = Window.partitionBy("history", "actor").orderBy("seq").rowsBetween(Window.unboundedPreceding, 0)
    deeds = (
        join_small(facts.of(Kind.BK_RESTART, *_DEEDS), restarted, on=("history", "actor"), how="left_semi")
        .select(*LEDGER_KEY, "actor", "seq", "kind", "cookie", "entry", "code", "recovery")
        .withColumn(
            "restart",
            sf.last(sf.when(is_kind(Kind.BK_RESTART), sf.struct("seq", "cookie")), ignorenulls=True).over(by_bookie),
        )
        .filter(is_kind(*_DEEDS) & started.isNotNull())
    )
    limbo_ends = (
        facts.rare_events.filter(is_kind(Kind.BK_LIMBO) & (sf.col("verdict") != "on"))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.collect_list("seq").alias("ends"))
    )
    judged = (
        join_small(
            join_small(deeds, facts.images, on=LEDGER_KEY, how="left"),
            limbo_ends,
            on=(*LEDGER_KEY, "actor"),
            how="left",
        )
        .withColumn("then", image_at(started))
        .withColumn("now", image_at(seq))
    )
    gate = tell(
        "D15",
        sf.col("restart.cookie").isin("missing", "foreign"),
        seq,
        [started, seq],
        "%s served a request (event %d), and was started where its cookie is %s (event %d)",
        bookie,
        seq,
        sf.col("restart.cookie"),
        started,
    )

    def is_in_last_of_open(image: str) -> Column:
        last = sf.element_at(sf.col(f"{image}.fragments"), -1)["bookies"]
        return (sf.col(f"{image}.state") != "CLOSED") & sf.array_contains(last, bookie)

    is_member = sf.exists(sf.col("then.fragments"), lambda each: sf.array_contains(each["bookies"], bookie))
    is_doubted = (sf.col("restart.cookie") == "doubted") & is_member
    is_out = sf.exists(sf.coalesce("ends", sf.array()), lambda end: (end > started) & (end < seq))
    denied = is_kind(Kind.BK_ANSWER) & sf.col("code").isin(*DENIALS) & is_in_last_of_open("then") & ~is_out
    stored = is_kind(Kind.BK_STORE) & ~sf.col("recovery")
    vouched = tell(
        "D17",
        is_true(is_doubted & (stored | (denied & is_in_last_of_open("now")))),
        seq,
        [started, seq],
        "%s stored or denied entry %d (event %d) after a start at which it may have lost entries and fences (event %d)",
        bookie,
        sf.col("entry"),
        seq,
        started,
    )
    return observed(judged, gate, vouched)


COOKIE_GATE: Final = Invariant(
    name="CookieGate",
    clauses=("D15", "D17"),
    kinds=(*_DEEDS, Kind.BK_RESTART, Kind.BK_LIMBO, *LEDGER_KINDS),
    columns=("seq", "actor", "cookie", "entry", "code", "recovery", "verdict", *LEDGER_COLUMNS),
    observe=_observe,
    premise=(Kind.BK_RESTART,),
)
