"""LogDelivers: acknowledged messages are delivered, once, where they were acknowledged.

A reader that is no cursor, and does not go by a compaction, has to get each acknowledged message that it passes: one between two
that it gets; for a reader from the earliest message, one before the first that it gets, unless the ledger had been trimmed by
then; and, where it comes to the end, one that was acknowledged before it began in a ledger whose end was noted before it began.
And what was published so many times is seen at no more places.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import (
    LOG_KEY,
    LOG_KINDS,
    LOG_LEDGER_COLUMNS,
    LOG_LEDGER_KINDS,
    NEVER,
    place,
    place_text,
)

__all__ = ["LOG_DELIVERS"]

_READER: Final = (*LOG_KEY, "actor", "handle")


def _observe(facts: Facts) -> DataFrame:
    events = facts.log_events
    acks = (
        events.filter(is_kind(Kind.LOG_ACK))
        .groupBy(*LOG_KEY, place().alias("place"))
        .agg(sf.min(sf.struct("seq", "content")).alias("ack"))
        .withColumn("ledger", sf.col("place.ledger"))
    )
    return _passed_over(facts, acks).union(_altered(events, acks)).union(_doubled(events))


def _passed_over(facts: Facts, acks: DataFrame) -> DataFrame:
    events = facts.log_events
    is_read = is_kind(Kind.LOG_READ)
    readings = (
        events.filter(is_kind(Kind.LOG_READ_START, Kind.LOG_READ, Kind.LOG_READ_END))
        .groupBy(*_READER)
        .agg(
            sf.min(sf.when(is_kind(Kind.LOG_READ_START), sf.struct("seq", "cause", "cursor"))).alias("start"),
            sf.min(sf.when(is_read, sf.struct("seq", place().alias("place")))).alias("first"),
            sf.max(sf.when(is_read, sf.struct(place().alias("place"), "seq"))).alias("last"),
            sf.min(sf.when(is_kind(Kind.LOG_READ_END), sf.col("seq"))).alias("end_seq"),
        )
        .filter((sf.col("start.cursor") == "") & (sf.col("start.cause") != "compacted"))
    )
    got = events.filter(is_read).groupBy(*_READER, place().alias("place")).agg(sf.min("seq").alias("read_seq"))
    ledgers = facts.log_ledgers.select("history", "log", "ledger", "noted_seq", "trimmed_seq")
    rows = join_small(acks, readings, on=LOG_KEY, how="inner")
    rows = join_small(rows, got, on=(*_READER, "place"), how="left")
    rows = join_small(rows, ledgers, on=(*LOG_KEY, "ledger"), how="left")
    where, trimmed = sf.col("place"), sf.coalesce("trimmed_seq", sf.lit(NEVER))
    is_from_earliest = sf.col("start.cause") == "earliest"
    is_after_first = where >= sf.col("first.place")
    is_passed = (where < sf.col("last.place")) & (is_after_first | (is_from_earliest & (trimmed > sf.col("first.seq"))))
    was_there = (sf.col("ack.seq") < sf.col("start.seq")) & (sf.col("noted_seq") < sf.col("start.seq"))
    is_before_end = was_there & (trimmed > sf.col("end_seq")) & (is_from_earliest | is_after_first)
    behind = sf.greatest("ack.seq", sf.coalesce("end_seq", "last.seq"))
    missing = tell(
        "H1",
        sf.col("read_seq").isNull() & (is_true(is_passed) | is_true(is_before_end)),
        behind,
        [sf.col("ack.seq"), behind],
        "%s was acknowledged (event %d), and %s passed over it (event %d)",
        place_text(where),
        sf.col("ack.seq"),
        sf.col("actor"),
        sf.coalesce("end_seq", "last.seq"),
    )
    return observed(rows, missing)


def _altered(events: DataFrame, acks: DataFrame) -> DataFrame:
    content = sf.struct("seq", "content")
    reads = (
        events.filter(is_kind(Kind.LOG_READ))
        .groupBy(*LOG_KEY, place().alias("place"), "content")
        .agg(sf.min(content).alias("read"))
        .drop("content")
    )
    rows = join_small(acks, reads, on=(*LOG_KEY, "place"), how="inner")
    altered = tell(
        "H1",
        sf.col("ack.content") != sf.col("read.content"),
        sf.greatest("ack.seq", "read.seq"),
        [sf.col("ack.seq"), sf.col("read.seq")],
        "%s was acknowledged with content %d (event %d), and delivered with %d (event %d)",
        place_text(sf.col("place")),
        *(sf.col(f"{which}.{name}") for which in ("ack", "read") for name in ("content", "seq")),
    )
    return observed(rows, altered)


def _doubled(events: DataFrame) -> DataFrame:
    published = events.filter(is_kind(Kind.LOG_PUB)).groupBy(*LOG_KEY, "content").agg(sf.count("*").alias("times"))
    places = (
        events.filter(is_kind(Kind.LOG_ACK, Kind.LOG_READ))
        .groupBy(*LOG_KEY, "content", place().alias("place"))
        .agg(sf.min("seq").alias("seq"))
        .groupBy(*LOG_KEY, "content")
        .agg(sf.count("*").alias("places"), sf.max(sf.struct("place", "seq")).alias("last"))
        .withColumn("ledger", sf.col("last.place.ledger"))
    )
    seen = join_small(places, published, on=(*LOG_KEY, "content"), how="left")
    times = sf.coalesce("times", sf.lit(0))
    doubled = tell(
        "H2",
        sf.col("places") > times,
        sf.col("last.seq"),
        [sf.col("last.seq")],
        "what was published %d times is at %d places, at last at %s (event %d)",
        times,
        sf.col("places"),
        place_text(sf.col("last.place")),
        sf.col("last.seq"),
    )
    return observed(seen, doubled)


LOG_DELIVERS: Final = Invariant(
    name="LogDelivers",
    clauses=("H1", "H2"),
    kinds=(
        *LOG_LEDGER_KINDS,
        *(Kind.LOG_PUB, Kind.LOG_ACK, Kind.LOG_READ_START, Kind.LOG_READ, Kind.LOG_READ_END),
    ),
    columns=(*LOG_LEDGER_COLUMNS, "actor", "handle", "cursor", "content", "entry", "batch"),
    observe=_observe,
    premise=LOG_KINDS,
)
