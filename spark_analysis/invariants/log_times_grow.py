"""LogTimesGrow: publish times never go back in a log, whichever of its owners published.

In the order of their places, what readers got must have publish times that grow, and one place one time.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import is_kind, is_true, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import LOG_KEY, LOG_KINDS, place, place_text

__all__ = ["LOG_TIMES_GROW"]


def _observe(facts: Facts) -> DataFrame:
    told = sf.struct("publish_ms", "seq")
    by_place = Window.partitionBy(*LOG_KEY).orderBy("place")
    rows = (
        facts.log_events.filter(is_kind(Kind.LOG_READ) & sf.col("publish_ms").isNotNull())
        .groupBy(*LOG_KEY, place().alias("place"))
        .agg(sf.min("seq").alias("seq"), sf.min(told).alias("least"), sf.max(told).alias("greatest"))
        .withColumn("before", sf.lag(sf.struct("greatest", "place")).over(by_place))
        .withColumn("ledger", sf.col("place.ledger"))
    )
    back = _went_back("before.place", "before.greatest", "place", "least")
    twice = _went_back("place", "least", "place", "greatest", is_same_place=True)
    return observed(rows, back, twice)


def _went_back(first: str, earlier: str, second: str, later: str, *, is_same_place: bool = False) -> Column:
    time, seq, other_time, other_seq = (
        sf.col(f"{which}.{name}") for which in (earlier, later) for name in ("publish_ms", "seq")
    )
    return tell(
        "H21",
        is_true(time != other_time if is_same_place else time > other_time),
        sf.greatest(seq, other_seq),
        [seq, other_seq],
        "%s was published at %d ms (event %d), and %s at %d ms (event %d)",
        place_text(sf.col(first)),
        time,
        seq,
        place_text(sf.col(second)),
        other_time,
        other_seq,
    )


LOG_TIMES_GROW: Final = Invariant(
    name="LogTimesGrow",
    clauses=("H21",),
    kinds=(Kind.LOG_READ,),
    columns=("seq", "log", "entry", "batch", "publish_ms"),
    observe=_observe,
    premise=LOG_KINDS,
)
