"""LogOneConsumer: of an exclusive or failover group one consumer at a time is active.

A member is there from its joining until it left. Judged is every opening of a cursor by somebody who is a member of such a group
then, or was one, and did not leave since the opening before: no member with a lower number may be there, and no other member at
all if it is none any more. And every message that came by a cursor that had been opened: its reader has to have opened it, too.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import LOG_KEY, LOG_KINDS, NEVER, place, place_text

__all__ = ["LOG_ONE_CONSUMER"]

_CURSOR: Final = (*LOG_KEY, "cursor")


def _observe(facts: Facts) -> DataFrame:
    events = facts.log_events
    openings = events.filter(is_kind(Kind.LOG_CURSOR) & (sf.col("cause") == "opened")).select(
        *_CURSOR, "actor", "ledger", sf.col("seq").alias("opened_seq")
    )
    return _out_of_turn(events, openings).union(_not_opened(events, openings))


def _out_of_turn(events: DataFrame, openings: DataFrame) -> DataFrame:
    is_joined = sf.col("cause") == "joined"
    members = (
        events.filter(is_kind(Kind.LOG_MEMBER))
        .groupBy(*_CURSOR, "member", sf.col("actor").alias("who"))
        .agg(
            sf.min(sf.when(is_joined & (sf.col("mode") != "shared"), sf.col("seq"))).alias("joined_seq"),
            sf.min(sf.when(~is_joined, sf.col("seq"))).alias("left_seq"),
        )
    )
    before = Window.partitionBy(*_CURSOR).orderBy("opened_seq")
    openings = openings.withColumn("before_seq", sf.coalesce(sf.lag("opened_seq").over(before), sf.lit(-1)))
    is_there = (sf.col("joined_seq") < sf.col("opened_seq")) & (
        sf.coalesce("left_seq", sf.lit(NEVER)) > sf.col("opened_seq")
    )
    is_own = sf.col("who") == sf.col("actor")
    was_own = is_own & sf.col("joined_seq").isNotNull() & (sf.col("left_seq") < sf.col("opened_seq"))
    is_back = is_own & sf.col("left_seq").between(sf.col("before_seq") + 1, sf.col("opened_seq"))
    rows = (
        join_small(openings, members, on=_CURSOR, how="inner")
        .groupBy(*_CURSOR, "actor", "ledger", "opened_seq")
        .agg(
            sf.min(sf.when(is_there & is_own, sf.col("member"))).alias("own"),
            sf.min(sf.when(is_there & ~is_own, sf.struct("member", "who", "joined_seq"))).alias("other"),
            sf.max(is_true(is_back)).alias("is_back"),
            sf.max(is_true(was_own)).alias("was_member"),
        )
        .filter((sf.col("own").isNotNull() | sf.col("was_member")) & ~sf.col("is_back"))
    )
    turn = sf.when(sf.col("own").isNull(), "and is no member any more").otherwise(
        sf.format_string("as member %d", "own")
    )
    out_of_turn = tell(
        "H19",
        is_true(sf.col("own").isNull() & sf.col("other").isNotNull()) | is_true(sf.col("other.member") < sf.col("own")),
        sf.col("opened_seq"),
        [sf.col("other.joined_seq"), sf.col("opened_seq")],
        "%s opened %s (event %d) %s, and %s is member %d (event %d)",
        *(sf.col(name) for name in ("actor", "cursor", "opened_seq")),
        turn,
        *(sf.col(name) for name in ("other.who", "other.member")),
        sf.col("other.joined_seq"),
    )
    return observed(rows, out_of_turn)


def _not_opened(events: DataFrame, openings: DataFrame) -> DataFrame:
    reader = (*LOG_KEY, "actor", "handle")
    starts = events.filter(is_kind(Kind.LOG_READ_START) & (sf.col("cursor") != "")).select(*reader, "cursor")
    reads = events.filter(is_kind(Kind.LOG_READ)).select(*reader, "seq", "ledger", place().alias("place"))
    first = openings.groupBy(*_CURSOR).agg(sf.min("opened_seq").alias("first_seq"))
    own = openings.groupBy(*_CURSOR, "actor").agg(sf.min("opened_seq").alias("own_seq"))
    rows = join_small(join_small(reads, starts, on=reader, how="inner"), first, on=_CURSOR, how="inner")
    rows = join_small(rows, own, on=(*_CURSOR, "actor"), how="left").filter(sf.col("first_seq") < sf.col("seq"))
    not_opened = tell(
        "H20",
        sf.coalesce("own_seq", sf.lit(NEVER)) > sf.col("seq"),
        sf.col("seq"),
        [sf.col("first_seq"), sf.col("seq")],
        "%s got %s by %s (event %d), which it never opened",
        sf.col("actor"),
        place_text(sf.col("place")),
        sf.col("cursor"),
        sf.col("seq"),
    )
    return observed(rows, not_opened)


LOG_ONE_CONSUMER: Final = Invariant(
    name="LogOneConsumer",
    clauses=("H19", "H20"),
    kinds=(Kind.LOG_MEMBER, Kind.LOG_CURSOR, Kind.LOG_READ_START, Kind.LOG_READ),
    columns=("seq", "log", "actor", "handle", "cursor", "cause", "member", "mode", "entry", "batch"),
    observe=_observe,
    premise=LOG_KINDS,
)
