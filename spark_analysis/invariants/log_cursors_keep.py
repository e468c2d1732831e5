"""LogCursorsKeep: a cursor passes over nothing, delivers nothing again, and one at a time moves it.

The positions of a cursor are those that were stored, by openings and since, until it was removed or reset. Judged are what a
reader gets by it while it is the one that opened it last; who stores a position; and, of each acknowledged message from the first
position on, whether it was delivered by the cursor when the first position behind it was stored, or when it was acknowledged
later, unless the application had skipped something by then.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import LOG_KEY, LOG_LEDGER_COLUMNS, LOG_LEDGER_KINDS, NEVER, place, place_text

__all__ = ["LOG_CURSORS_KEEP"]

_CURSOR: Final = (*LOG_KEY, "cursor")


def _observe(facts: Facts) -> DataFrame:
    events = facts.log_events
    removals = (
        events.filter(is_kind(Kind.LOG_CURSOR) & sf.col("cause").isin("removed", "reset"))
        .groupBy(*_CURSOR)
        .agg(sf.min("seq").alias("removed_seq"))
    )
    positions = _kept(
        events.filter(is_kind(Kind.LOG_CURSOR) & sf.col("cause").isin("opened", "stored")).select(
            *_CURSOR,
            "seq",
            "actor",
            "cause",
            sf.col("ledger").alias("position_ledger"),
            sf.struct("ledger", "entry").alias("position"),
        ),
        removals,
    )
    reader = (*LOG_KEY, "actor", "handle")
    starts = events.filter(is_kind(Kind.LOG_READ_START) & (sf.col("cursor") != "")).select(*reader, "cursor")
    reads = events.filter(is_kind(Kind.LOG_READ)).select(*reader, "seq", "ledger", "entry", place().alias("place"))
    reads = _kept(join_small(reads, starts, on=reader, how="inner"), removals)
    skips = (
        events.filter(is_kind(Kind.LOG_CURSOR) & (sf.col("cause") == "skipped"))
        .groupBy(*_CURSOR)
        .agg(sf.min("seq").alias("skipped_seq"))
    )
    return _again(reads, positions).union(_moved(positions)).union(_passed_over(facts, reads, positions, skips))


def _kept(rows: DataFrame, removals: DataFrame) -> DataFrame:
    rows = join_small(rows, removals, on=_CURSOR, how="left")
    return rows.filter(sf.col("seq") < sf.coalesce("removed_seq", sf.lit(NEVER))).drop("removed_seq")


def _again(reads: DataFrame, positions: DataFrame) -> DataFrame:
    stored = positions.select(
        *_CURSOR,
        sf.col("seq").alias("position_seq"),
        sf.col("actor").alias("mover"),
        sf.col("cause").alias("how"),
        "position",
    )
    is_before = sf.col("position_seq") < sf.col("seq")
    opening = sf.when(is_before & (sf.col("how") == "opened"), sf.struct("position_seq", "mover"))
    met = (
        join_small(reads, stored, on=_CURSOR, how="inner")
        .groupBy(*_CURSOR, "actor", "seq", "ledger", "entry", "place")
        .agg(
            sf.max(opening).alias("opening"),
            sf.max(sf.when(is_before, sf.struct("position", (-sf.col("position_seq")).alias("back")))).alias("last"),
        )
        .filter(is_true(sf.col("opening.mover") == sf.col("actor")))
    )
    again = tell(
        "H12",
        is_true(sf.struct("ledger", "entry") < sf.col("last.position")),
        sf.col("seq"),
        [-sf.col("last.back"), sf.col("seq")],
        "%s got %s by %s (event %d), which had come to %d:%d (event %d)",
        sf.col("actor"),
        place_text(sf.col("place")),
        sf.col("cursor"),
        sf.col("seq"),
        sf.col("last.position.ledger"),
        sf.col("last.position.entry"),
        -sf.col("last.back"),
    )
    return observed(met, again)


def _moved(positions: DataFrame) -> DataFrame:
    before = Window.partitionBy(*_CURSOR).orderBy("seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    opening = sf.last(sf.when(sf.col("cause") == "opened", sf.struct("seq", "actor")), ignorenulls=True).over(before)
    rows = (
        positions.withColumn("opening", opening)
        .filter((sf.col("cause") == "stored") & sf.col("opening").isNotNull())
        .withColumn("ledger", sf.col("position_ledger"))
    )
    moved = tell(
        "H13",
        sf.col("opening.actor") != sf.col("actor"),
        sf.col("seq"),
        [sf.col("opening.seq"), sf.col("seq")],
        "%s moved %s (event %d), which %s had opened after it (event %d)",
        sf.col("actor"),
        sf.col("cursor"),
        sf.col("seq"),
        sf.col("opening.actor"),
        sf.col("opening.seq"),
    )
    return observed(rows, moved)


def _passed_over(facts: Facts, reads: DataFrame, positions: DataFrame, skips: DataFrame) -> DataFrame:
    acks = (
        facts.log_events.filter(is_kind(Kind.LOG_ACK))
        .groupBy(*LOG_KEY, place().alias("place"), sf.struct("ledger", "entry").alias("at"), "ledger")
        .agg(sf.min("seq").alias("ack_seq"))
    )
    is_opened = sf.col("cause") == "opened"
    floors = positions.groupBy(*_CURSOR).agg(sf.min(sf.when(is_opened, sf.struct("seq", "position"))).alias("floor"))
    got = reads.groupBy(*_CURSOR, "place").agg(sf.min("seq").alias("read_seq"))
    ledgers = facts.log_ledgers.select("history", "log", "ledger", "trimmed_seq")
    later = positions.select(*_CURSOR, "seq", "position")
    rows = join_small(acks, later, on=LOG_KEY, how="inner")
    rows = join_small(rows, floors, on=_CURSOR, how="inner").filter(
        is_true((sf.col("at") >= sf.col("floor.position")) & (sf.col("at") < sf.col("position")))
        & (sf.col("seq") >= sf.col("floor.seq"))
    )
    rows = rows.groupBy(*_CURSOR, "place", "ledger", "ack_seq").agg(sf.min("seq").alias("passed_seq"))
    rows = join_small(rows, got, on=(*_CURSOR, "place"), how="left")
    rows = join_small(rows, ledgers, on=(*LOG_KEY, "ledger"), how="left")
    judged = sf.greatest("passed_seq", "ack_seq")
    rows = join_small(rows, skips, on=_CURSOR, how="left")
    rows = rows.filter(
        sf.least(sf.coalesce("trimmed_seq", sf.lit(NEVER)), sf.coalesce("skipped_seq", sf.lit(NEVER))) > judged
    )
    missing = tell(
        "H14",
        sf.coalesce("read_seq", sf.lit(NEVER)) > judged,
        judged,
        [sf.col("ack_seq"), sf.col("passed_seq")],
        "%s was acknowledged (event %d), and %s is behind it (event %d) and delivered it to nobody",
        place_text(sf.col("place")),
        sf.col("ack_seq"),
        sf.col("cursor"),
        sf.col("passed_seq"),
    )
    return observed(rows, missing)


LOG_CURSORS_KEEP: Final = Invariant(
    name="LogCursorsKeep",
    clauses=("H12", "H13", "H14"),
    kinds=(*LOG_LEDGER_KINDS, Kind.LOG_ACK, Kind.LOG_CURSOR, Kind.LOG_READ_START, Kind.LOG_READ),
    columns=(*LOG_LEDGER_COLUMNS, "actor", "handle", "cursor", "entry", "batch"),
    observe=_observe,
)
