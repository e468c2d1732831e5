"""LogCompactionKeeps: who reads a log by what its compaction left gets the newest message of each key.

An acknowledged message that such a reader did not get is judged at the first message behind it that it got, or at the end that it
came to. By then a compaction has to cover it, and either it has no key, or it deletes one, or a later message of its key is there
that is not known to lie behind what is covered. And what it did get, of what was covered when it began, has to be the newest of
its key among the acknowledged messages that were covered.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import (
    LOG_KEY,
    LOG_LEDGER_COLUMNS,
    LOG_LEDGER_KINDS,
    NEVER,
    compactions,
    place,
    place_text,
)

__all__ = ["LOG_COMPACTION_KEEPS"]

_READER: Final = (*LOG_KEY, "actor", "handle")
_MESSAGE: Final = (*LOG_KEY, "epoch", "message")


def _observe(facts: Facts) -> DataFrame:
    events = facts.log_events
    starts = (
        events.filter(is_kind(Kind.LOG_READ_START) & (sf.col("cause") == "compacted"))
        .groupBy(*_READER)
        .agg(sf.min("seq").alias("start_seq"))
    )
    reads = events.filter(is_kind(Kind.LOG_READ)).select(
        *_READER, sf.col("seq").alias("read_seq"), place().alias("read")
    )
    reads = join_small(reads, starts, on=_READER, how="inner")
    messages = _messages(events)
    points = compactions(events)
    return _passed_over(facts, messages, starts, reads, points).union(_not_newest(messages, reads, points))


def _messages(events: DataFrame) -> DataFrame:
    """One row per message that was published: its key, whether it is empty, and where it was acknowledged, if it was."""
    published = (
        events.filter(is_kind(Kind.LOG_PUB))
        .groupBy(*_MESSAGE)
        .agg(sf.min(sf.struct("seq", "key", "size")).alias("pub"))
        .select(
            *_MESSAGE,
            sf.col("pub.seq").alias("pub_seq"),
            sf.col("pub.key").alias("key"),
            is_true(sf.col("pub.size") == 0).alias("is_deletion"),
            sf.struct("epoch", "message").alias("number"),
        )
    )
    acked = (
        events.filter(is_kind(Kind.LOG_ACK))
        .groupBy(*_MESSAGE)
        .agg(sf.min(sf.struct(sf.col("seq"), place().alias("place"))).alias("ack"))
        .select(*_MESSAGE, sf.col("ack.seq").alias("ack_seq"), sf.col("ack.place").alias("place"))
    )
    return join_small(published, acked, on=_MESSAGE, how="left").drop("epoch", "message")


def _position(where: Column) -> Column:
    """The entry of a place, as horizons are written."""
    return sf.struct(where["ledger"].alias("through"), where["entry"].alias("entry"))


def _with_horizon(rows: DataFrame, points: DataFrame, before: str) -> DataFrame:
    """Each of ``rows`` with the furthest entry up to which its log was compacted before the event ``before``."""
    done = (
        points.filter(sf.col("cause") == "done")
        .groupBy(*LOG_KEY)
        .agg(sf.collect_list(sf.struct("point_seq", "horizon")).alias("done"))
    )
    reached = sf.filter("done", lambda point: point["point_seq"] < sf.col(before))
    horizon = sf.array_max(sf.transform(reached, lambda point: point["horizon"]))
    nothing = sf.struct(sf.lit(-1).cast("long").alias("through"), sf.lit(-1).cast("long").alias("entry"))
    rows = join_small(rows, done, on=LOG_KEY, how="left")
    return rows.withColumn("horizon", sf.coalesce(horizon, nothing)).drop("done")


def _passed_over(
    facts: Facts, messages: DataFrame, starts: DataFrame, reads: DataFrame, points: DataFrame
) -> DataFrame:
    ends = facts.log_events.filter(is_kind(Kind.LOG_READ_END)).groupBy(*_READER).agg(sf.min("seq").alias("end_seq"))
    got = reads.groupBy(*_READER).agg(sf.collect_list(sf.struct("read", "read_seq")).alias("got"))
    readers = join_small(join_small(starts, ends, on=_READER, how="left"), got, on=_READER, how="left")
    ledgers = facts.log_ledgers.select("history", "log", "ledger", "noted_seq", "trimmed_seq")
    acked = messages.filter(sf.col("ack_seq").isNotNull()).withColumn("ledger", sf.col("place.ledger"))
    rows = join_small(acked, readers, on=LOG_KEY, how="inner")
    never = sf.lit(NEVER)
    behind = sf.filter("got", lambda each: each["read"] > sf.col("place"))
    passed = sf.array_min(sf.transform(behind, lambda each: each["read_seq"]))
    is_got = sf.exists("got", lambda each: each["read"] == sf.col("place"))
    rows = rows.withColumn("passed_seq", passed).filter(~is_true(is_got)).drop("got")
    rows = join_small(rows, ledgers, on=(*LOG_KEY, "ledger"), how="left")
    was_there = (sf.col("ack_seq") < sf.col("start_seq")) & (sf.col("noted_seq") < sf.col("start_seq"))
    at_end = sf.when(sf.col("passed_seq").isNull() & was_there, sf.col("end_seq"))
    rows = rows.withColumn("judged", sf.coalesce("passed_seq", at_end)).filter(
        sf.col("judged").isNotNull() & (sf.col("ack_seq") < sf.col("judged"))
    )
    pointed = points.groupBy(*LOG_KEY).agg(sf.collect_list(sf.struct("point_seq", "cause")).alias("points"))
    rows = join_small(_with_horizon(rows, points, "judged"), pointed, on=LOG_KEY, how="left")
    last = sf.array_max(sf.filter("points", lambda point: point["point_seq"] < sf.col("trimmed_seq")))
    is_gone = (sf.col("trimmed_seq") < sf.col("judged")) & ~is_true(last["cause"] == "done")
    rows = rows.filter(~is_true(is_gone)).drop("points")
    later = (
        messages.filter(sf.col("key").isNotNull())
        .groupBy(*LOG_KEY, "key")
        .agg(sf.collect_list(sf.struct("number", "pub_seq", "ack_seq", "place")).alias("of_key"))
    )
    rows = join_small(rows, later, on=(*LOG_KEY, "key"), how="left")
    is_replaced = sf.exists(
        "of_key",
        lambda other: (
            (other["number"] > sf.col("number"))
            & (other["pub_seq"] < sf.col("judged"))
            & (
                (sf.coalesce(other["ack_seq"], never) > sf.col("judged"))
                | (_position(other["place"]) <= sf.col("horizon"))
            )
        ),
    )
    is_covered = _position(sf.col("place")) <= sf.col("horizon")
    is_excused = is_covered & (sf.col("key").isNull() | sf.col("is_deletion") | is_true(is_replaced))
    missing = tell(
        "H15",
        ~is_true(is_excused),
        sf.col("judged"),
        [sf.col("ack_seq"), sf.col("judged")],
        "%s was acknowledged (event %d) and %s, and %s passed over it (event %d)",
        place_text(sf.col("place")),
        sf.col("ack_seq"),
        sf.when(is_covered, sf.lit("is the newest of its key")).otherwise(sf.lit("is not covered")),
        sf.col("actor"),
        sf.col("judged"),
    )
    return observed(rows, missing)


def _not_newest(messages: DataFrame, reads: DataFrame, points: DataFrame) -> DataFrame:
    acked = messages.filter(sf.col("ack_seq").isNotNull())
    rows = join_small(reads.withColumnRenamed("read", "place"), acked, on=(*LOG_KEY, "place"), how="inner")
    rows = _with_horizon(rows, points, "start_seq").filter(
        (_position(sf.col("place")) <= sf.col("horizon")) & (sf.col("ack_seq") < sf.col("read_seq"))
    )
    of_key = (
        acked.filter(sf.col("key").isNotNull())
        .groupBy(*LOG_KEY, "key")
        .agg(sf.collect_list(sf.struct("place", "ack_seq")).alias("of_key"))
    )
    rows = join_small(rows, of_key, on=(*LOG_KEY, "key"), how="left").withColumn("ledger", sf.col("place.ledger"))
    newer = sf.array_min(
        sf.filter(
            "of_key",
            lambda other: (
                (other["place"] > sf.col("place"))
                & (_position(other["place"]) <= sf.col("horizon"))
                & (other["ack_seq"] < sf.col("read_seq"))
            ),
        )
    )
    rows = rows.withColumn("newer", newer)
    why = (
        sf.when(sf.col("key").isNull(), sf.lit("has no key"))
        .when(sf.col("is_deletion"), sf.lit("deletes its key"))
        .when(
            sf.col("newer").isNotNull(),
            sf.format_string("is older than %s of the same key", place_text(sf.col("newer.place"))),
        )
    )
    superfluous = tell(
        "H16",
        why.isNotNull(),
        sf.col("read_seq"),
        [sf.col("ack_seq"), sf.col("read_seq")],
        "%s got %s (event %d), which was covered when it began and %s",
        sf.col("actor"),
        place_text(sf.col("place")),
        sf.col("read_seq"),
        why,
    )
    return observed(rows, superfluous)


LOG_COMPACTION_KEEPS: Final = Invariant(
    name="LogCompactionKeeps",
    clauses=("H15", "H16"),
    kinds=(
        *LOG_LEDGER_KINDS,
        *(Kind.LOG_PUB, Kind.LOG_ACK, Kind.LOG_COMPACT, Kind.LOG_READ_START, Kind.LOG_READ, Kind.LOG_READ_END),
    ),
    columns=(
        *LOG_LEDGER_COLUMNS,
        *("actor", "handle", "entry", "batch", "message", "key", "size", "through"),
    ),
    observe=_observe,
)
