"""LogInOrder: message ids grow, in the order of publishing and for each reader.

Whose a message is tells its acknowledgement; of one that was only delivered, its content does, if it was published once. In the
order of their places, messages have to be in the order of epochs, and in each epoch in that of their numbers.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import LOG_KEY, LOG_KINDS, place, place_text

__all__ = ["LOG_IN_ORDER"]


def _observe(facts: Facts) -> DataFrame:
    return _of_messages(facts.log_events).union(_of_readers(facts.log_events))


def _of_messages(events: DataFrame) -> DataFrame:
    message = sf.struct("epoch", "message")
    published = (
        events.filter(is_kind(Kind.LOG_PUB))
        .groupBy(*LOG_KEY, "content")
        .agg(sf.count("*").alias("times"), sf.max(message).alias("published"))
        .filter(sf.col("times") == 1)
        .select(*LOG_KEY, "content", "published")
    )
    is_ack = is_kind(Kind.LOG_ACK)
    told = (
        join_small(events.filter(is_kind(Kind.LOG_ACK, Kind.LOG_READ)), published, on=(*LOG_KEY, "content"), how="left")
        .groupBy(*LOG_KEY, place().alias("place"))
        .agg(
            sf.min("seq").alias("seq"),
            sf.min(sf.when(is_ack, message)).alias("least"),
            sf.max(sf.when(is_ack, message)).alias("greatest"),
            sf.max("published").alias("published"),
        )
        .withColumn("first", sf.coalesce("least", "published"))
        .withColumn("last", sf.coalesce("greatest", "published"))
        .filter(sf.col("first").isNotNull())
    )
    by_place = Window.partitionBy(*LOG_KEY).orderBy("place")
    rows = told.withColumn("before", sf.lag(sf.struct("last", "seq", "place")).over(by_place)).withColumn(
        "ledger", sf.col("place.ledger")
    )
    out_of_order = tell(
        "H3",
        is_true(sf.col("before.last") > sf.col("first")),
        sf.greatest("seq", sf.col("before.seq")),
        [sf.col("before.seq"), sf.col("seq")],
        "message %d of epoch %d is at %s (event %d), and message %d of epoch %d at %s (event %d)",
        *(sf.col(f"before.last.{name}") for name in ("message", "epoch")),
        place_text(sf.col("before.place")),
        sf.col("before.seq"),
        *(sf.col(f"first.{name}") for name in ("message", "epoch")),
        place_text(sf.col("place")),
        sf.col("seq"),
    )
    two_at_once = tell(
        "H3",
        is_true(sf.col("first") < sf.col("last")),
        sf.col("seq"),
        [sf.col("seq")],
        "message %d of epoch %d and message %d of epoch %d are at %s (event %d)",
        *(sf.col(f"{which}.{name}") for which in ("first", "last") for name in ("message", "epoch")),
        place_text(sf.col("place")),
        sf.col("seq"),
    )
    return observed(rows, out_of_order, two_at_once)


def _of_readers(events: DataFrame) -> DataFrame:
    by_seq = Window.partitionBy(*LOG_KEY, "actor", "handle").orderBy("seq")
    rows = (
        events.filter(is_kind(Kind.LOG_READ))
        .select(*LEDGER_KEY, "log", "actor", "handle", "seq", place().alias("place"))
        .withColumn("before", sf.lag(sf.struct("place", "seq")).over(by_seq))
    )
    back = tell(
        "H4",
        is_true(sf.col("place") <= sf.col("before.place")),
        sf.col("seq"),
        [sf.col("before.seq"), sf.col("seq")],
        "%s got %s (event %d) after %s (event %d)",
        sf.col("actor"),
        place_text(sf.col("place")),
        sf.col("seq"),
        place_text(sf.col("before.place")),
        sf.col("before.seq"),
    )
    return observed(rows, back)


LOG_IN_ORDER: Final = Invariant(
    name="LogInOrder",
    clauses=("H3", "H4"),
    kinds=(Kind.LOG_PUB, Kind.LOG_ACK, Kind.LOG_READ),
    columns=("seq", "actor", "log", "handle", "epoch", "message", "content", "entry", "batch"),
    observe=_observe,
    premise=LOG_KINDS,
)
