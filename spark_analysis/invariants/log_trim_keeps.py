"""LogTrimKeeps: no ledger is trimmed that a cursor still needs.

When a ledger is trimmed, the position that was stored last of every cursor that is listed then lies in a later ledger. Cursors
that have stored a position and are not listed yet hold nothing back.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import LOG_KEY, LOG_KINDS

__all__ = ["LOG_TRIM_KEEPS"]


def _observe(facts: Facts) -> DataFrame:
    events = facts.log_events
    cursors = events.filter(is_kind(Kind.LOG_CURSOR)).select(
        *LOG_KEY,
        "cursor",
        "cause",
        sf.col("seq").alias("cursor_seq"),
        sf.col("ledger").alias("cursor_ledger"),
        sf.col("entry").alias("cursor_entry"),
    )
    trims = events.filter(is_kind(Kind.LOG_TRIM)).select(*LEDGER_KEY, "log", "seq")
    is_before = sf.col("cursor_seq") < sf.col("seq")
    is_position, is_noted = sf.col("cause").isin("opened", "stored"), sf.col("cause").isin("listed", "removed", "reset")
    position = sf.struct("cursor_seq", "cursor_ledger", "cursor_entry")
    met = (
        join_small(trims, cursors, on=LOG_KEY, how="left")
        .groupBy(*LEDGER_KEY, "seq", "cursor")
        .agg(
            sf.max(sf.when(is_before & is_noted, sf.struct("cursor_seq", "cause"))).alias("noted"),
            sf.max(sf.when(is_before & is_position, position)).alias("position"),
        )
    )
    needed = tell(
        "H11",
        is_true((sf.col("noted.cause") == "listed") & (sf.col("position.cursor_ledger") <= sf.col("ledger"))),
        sf.col("seq"),
        [sf.col("position.cursor_seq"), sf.col("seq")],
        "the ledger was trimmed (event %d), and cursor %s is at %d:%d (event %d)",
        sf.col("seq"),
        sf.col("cursor"),
        sf.col("position.cursor_ledger"),
        sf.col("position.cursor_entry"),
        sf.col("position.cursor_seq"),
    )
    return observed(met, needed)


LOG_TRIM_KEEPS: Final = Invariant(
    name="LogTrimKeeps",
    clauses=("H11",),
    kinds=(Kind.LOG_TRIM, Kind.LOG_CURSOR),
    columns=("seq", "log", "cursor", "cause", "entry"),
    observe=_observe,
    premise=LOG_KINDS,
)
