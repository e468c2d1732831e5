"""PositiveVerified: recovery takes an entry for found only if a bookie answered with it.

The answer has to have come to the same run, before its decision.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import OK, is_kind, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.runs import RUN_COLUMNS, RUN_KEY, RUN_KINDS

__all__ = ["POSITIVE_VERIFIED"]


def _observe(facts: Facts) -> DataFrame:
    seq = sf.col("seq")
    of_runs = facts.run_events.filter(sf.col("run").isNotNull())
    found = (
        of_runs.filter(is_kind(Kind.REC_READ_RESP) & (sf.col("code") == OK))
        .groupBy(*RUN_KEY, "entry")
        .agg(sf.min("seq").alias("found"))
    )
    decisions = of_runs.filter(is_kind(Kind.REC_DECIDE) & (sf.col("verdict") == "positive"))
    judged = join_small(decisions.select(*RUN_KEY, "entry", "seq"), found, on=(*RUN_KEY, "entry"), how="left")
    finding = tell(
        "E4",
        sf.coalesce(sf.col("found") > seq, sf.col("found").isNull()),
        seq,
        [seq],
        "recovery by %s took entry %d for found (event %d) without having read it",
        sf.col("actor"),
        sf.col("entry"),
        seq,
    )
    return observed(judged, finding)


POSITIVE_VERIFIED: Final = Invariant(
    name="PositiveVerified",
    clauses=("E4",),
    kinds=RUN_KINDS,
    columns=RUN_COLUMNS,
    observe=_observe,
)
