"""LogCompactionWhole: what a log was compacted to is whole, stays, and covers no less than before.

A compacted ledger has been closed when the list first points to it, and is deleted only when the list does not point to it. Of
the entries up to which a log was compacted none is before an earlier one; and a ledger that is trimmed while the list points to a
compaction ends no later than the furthest of them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    is_closed,
    is_kind,
    is_stored_metadata,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import LOG_KEY, LOG_KINDS, LOG_LEDGER_COLUMNS, LOG_LEDGER_KINDS, NEVER, compactions

__all__ = ["LOG_COMPACTION_WHOLE"]


def _observe(facts: Facts) -> DataFrame:
    points = compactions(facts.log_events)
    return _whole(facts, points).union(_backwards(points)).union(_trimmed(facts, points))


def _whole(facts: Facts, points: DataFrame) -> DataFrame:
    is_done = sf.col("cause") == "done"
    pointed = points.groupBy(*LEDGER_KEY).agg(
        sf.min(sf.when(is_done, sf.col("point_seq"))).alias("done_seq"),
        sf.min(sf.when(~is_done, sf.col("point_seq"))).alias("dropped_seq"),
    )
    is_delete = is_kind(Kind.META_CAS) & (sf.col("cause") == "delete") & (sf.col("outcome") == "ok")
    metadata = (
        facts.rare_events.filter(is_kind(Kind.META_CAS, Kind.META_READ) & (is_stored_metadata() | is_delete))
        .groupBy(*LEDGER_KEY)
        .agg(
            sf.min(sf.when(is_stored_metadata() & is_closed(), sf.col("seq"))).alias("closed_seq"),
            sf.min(sf.when(is_delete, sf.col("seq"))).alias("deleted_seq"),
        )
    )
    rows = join_small(pointed, metadata, on=LEDGER_KEY, how="left").filter(sf.col("done_seq").isNotNull())
    never = sf.lit(NEVER)
    is_open = tell(
        "H17",
        sf.coalesce("closed_seq", never) > sf.col("done_seq"),
        sf.col("done_seq"),
        [sf.col("done_seq")],
        "the log points (event %d) to a compacted ledger that is open",
        sf.col("done_seq"),
    )
    deleted = tell(
        "H17",
        is_true(
            (sf.col("done_seq") < sf.col("deleted_seq")) & (sf.coalesce("dropped_seq", never) > sf.col("deleted_seq"))
        ),
        sf.col("deleted_seq"),
        [sf.col("done_seq"), sf.col("deleted_seq")],
        "the ledger was deleted (event %d) while the log points to it as compacted, since event %d",
        sf.col("deleted_seq"),
        sf.col("done_seq"),
    )
    return observed(rows, is_open, deleted)


def _backwards(points: DataFrame) -> DataFrame:
    done = points.filter(sf.col("cause") == "done").select(*LEDGER_KEY, "log", "point_seq", "horizon")
    before = done.select(*LOG_KEY, sf.col("point_seq").alias("before_seq"), sf.col("horizon").alias("before"))
    rows = (
        join_small(done, before, on=LOG_KEY, how="inner")
        .filter(sf.col("before_seq") < sf.col("point_seq"))
        .groupBy(*LEDGER_KEY, "point_seq", "horizon")
        .agg(sf.max(sf.struct("before", "before_seq")).alias("furthest"))
    )
    less = tell(
        "H18",
        sf.col("horizon") < sf.col("furthest.before"),
        sf.col("point_seq"),
        [sf.col("furthest.before_seq"), sf.col("point_seq")],
        "the log was compacted through %d:%d (event %d), and through %d:%d before (event %d)",
        *(sf.col(f"horizon.{name}") for name in ("through", "entry")),
        sf.col("point_seq"),
        *(sf.col(f"furthest.before.{name}") for name in ("through", "entry")),
        sf.col("furthest.before_seq"),
    )
    return observed(rows, less)


def _trimmed(facts: Facts, points: DataFrame) -> DataFrame:
    trims = facts.log_ledgers.filter(sf.col("trimmed_seq").isNotNull() & sf.col("noted_entry").isNotNull())
    rows = join_small(
        trims.select(*LEDGER_KEY, "log", "trimmed_seq", "noted_entry"), points.drop("ledger"), on=LOG_KEY, how="inner"
    )
    rows = (
        rows.filter(sf.col("point_seq") < sf.col("trimmed_seq"))
        .groupBy(*LEDGER_KEY, "trimmed_seq", "noted_entry")
        .agg(
            sf.max(sf.struct("point_seq", "cause")).alias("last"),
            sf.max(sf.when(sf.col("cause") == "done", sf.struct("horizon", "point_seq"))).alias("furthest"),
        )
        .filter(sf.col("last.cause") == "done")
    )
    horizon = sf.col("furthest.horizon")
    beyond = tell(
        "H18",
        sf.struct(sf.col("ledger").alias("through"), sf.col("noted_entry").alias("entry")) > horizon,
        sf.col("trimmed_seq"),
        [sf.col("furthest.point_seq"), sf.col("trimmed_seq")],
        "the ledger was trimmed (event %d), which ends at entry %d, and the log is compacted through %d:%d (event %d)",
        sf.col("trimmed_seq"),
        sf.col("noted_entry"),
        horizon["through"],
        horizon["entry"],
        sf.col("furthest.point_seq"),
    )
    return observed(rows, beyond)


LOG_COMPACTION_WHOLE: Final = Invariant(
    name="LogCompactionWhole",
    clauses=("H17", "H18"),
    kinds=(*LOG_LEDGER_KINDS, Kind.LOG_COMPACT),
    columns=(*LOG_LEDGER_COLUMNS, "through", "entry"),
    observe=_observe,
    premise=LOG_KINDS,
)
