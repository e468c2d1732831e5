"""RecoveryAddAccepted: a fence keeps no bookie from storing what a recovery writes back.

By what the bookie answers, and by what the client hears: not every bookie tells of its answers. A bookie that has collected the
ledger refuses every add of it for a while, and calls that fenced.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import FENCED, LEDGER_KEY, is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts

__all__ = ["RECOVERY_ADD_ACCEPTED"]


def _observe(facts: Facts) -> DataFrame:
    seq, is_said = sf.col("seq"), is_kind(Kind.BK_ANSWER)
    said = is_said & (sf.col("operation") == "write-back")
    heard = is_kind(Kind.ADD_RESP) & sf.col("recovery")
    answers = (
        facts.of(Kind.BK_ANSWER, Kind.ADD_RESP)
        .filter(said | heard)
        .select(
            *LEDGER_KEY,
            "seq",
            "entry",
            "code",
            sf.when(is_said, sf.col("actor")).otherwise(sf.col("bookie")).alias("bookie"),
            sf.when(is_said, sf.col("source")).otherwise(sf.col("actor")).alias("client"),
        )
    )
    collected = (
        facts.rare_events.filter(is_kind(Kind.BK_GC))
        .groupBy(*LEDGER_KEY, sf.col("actor").alias("bookie"))
        .agg(sf.min("seq").alias("collected"))
    )
    finding = tell(
        "D13",
        (sf.col("code") == FENCED) & ~is_true(sf.col("collected") < seq),
        seq,
        [seq],
        "%s refused entry %d, which %s wrote back, as fenced (event %d)",
        sf.col("bookie"),
        sf.col("entry"),
        sf.col("client"),
        seq,
    )
    return observed(join_small(answers, collected, on=(*LEDGER_KEY, "bookie"), how="left"), finding)


RECOVERY_ADD_ACCEPTED: Final = Invariant(
    name="RecoveryAddAccepted",
    clauses=("D13",),
    kinds=(Kind.BK_ANSWER, Kind.ADD_RESP, Kind.BK_GC),
    columns=("seq", "actor", "source", "operation", "entry", "bookie", "code", "recovery"),
    observe=_observe,
)
