"""What the events tell of each recovery.

A *run* is one recovery by one client, from the REC_START that begins its fencing to the end of the opening that it
belongs to. Where a client opens a ledger with recovery twice at the same time, its runs cannot be told apart, and no
relation has them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import DENIALS, LEDGER_KEY, OK, is_closed, is_kind

__all__ = ["RUN_COLUMNS", "RUN_KEY", "RUN_KINDS", "run_events", "run_of_add", "runs", "starts_of"]

RUN_KEY: Final = (*LEDGER_KEY, "actor", "run")
RUN_KINDS: Final = (
    *(Kind.OPEN_START, Kind.OPEN_RESULT, Kind.REC_START, Kind.FENCE_RESP, Kind.REC_READ_SEND, Kind.REC_READ_RESP),
    *(Kind.REC_DECIDE, Kind.META_CAS, Kind.META_READ),
)
RUN_COLUMNS: Final = (
    *("seq", "actor", "entry", "bookie", "bookies", "code", "fence", "lac", "verdict", "recovery", "first_entry"),
    *("content", "cause", "outcome", "state", "last_entry", "fragments"),
)


def run_events(rare: DataFrame) -> DataFrame:
    """The events of :data:`RUN_KINDS`, each with ``run``, the event that began the run it belongs to, null if none did."""
    until_here = Window.partitionBy(*LEDGER_KEY, "actor").orderBy("seq").rowsBetween(Window.unboundedPreceding, 0)
    of_recovery = sf.col("recovery")
    step = (
        sf.when(is_kind(Kind.OPEN_START) & of_recovery, sf.lit(1))
        .when(is_kind(Kind.OPEN_RESULT) & of_recovery, sf.lit(-1))
        .otherwise(sf.lit(0))
    )
    is_end = is_kind(Kind.OPEN_RESULT) & of_recovery
    started = sf.max(sf.when(is_kind(Kind.REC_START), sf.col("seq"))).over(until_here)
    ended = sf.max(sf.when(is_end, sf.col("seq"))).over(until_here)
    at_once = sf.sum(step).over(until_here)
    events = rare.filter(is_kind(*RUN_KINDS)).withColumn("at_once", at_once)
    return events.withColumn(
        "run",
        sf.when((sf.col("at_once") <= 1) & ((ended < started) | ended.isNull() | is_end), started),
    ).drop("at_once")


def runs(events: DataFrame) -> DataFrame:
    """One row per run, of those events.

    * ``first_entry`` and ``ensemble``: the last fragment it began with.
    * ``fence_lac``: the highest last add confirmed that a fenced bookie told; ``fences``: the ``bookie`` and ``seq`` of each
      answer that proves one fenced.
    * ``first_read``: its first recovery read, ``seq`` and ``entry``, of which ``first_read_entry`` is a copy.
    * ``negative``: the last entry it ruled out, ``seq`` and ``entry``; ``unknown``: the last it could not decide, likewise.
    * ``close``: the write by which its client closed the ledger, with ``seq``, ``last_entry`` and ``fragments``; ``close_tried``
      the last such attempt, of any outcome, with ``seq`` and ``last_entry``.
    * ``over``: when its client had closed the ledger, or read that another one did.
    """
    seq, code = sf.col("seq"), sf.col("code")
    is_fenced = is_kind(Kind.FENCE_RESP) & ((code == OK) | code.isin(*DENIALS))
    is_decision = is_kind(Kind.REC_DECIDE)
    is_close = is_kind(Kind.META_CAS) & (sf.col("cause") == "close") & is_closed()
    is_found_closed = is_kind(Kind.META_READ) & is_closed()
    position = sf.struct("seq", "entry")
    return (
        events.filter(sf.col("run").isNotNull())
        .groupBy(*RUN_KEY)
        .agg(
            sf.max(sf.when(is_kind(Kind.REC_START), sf.col("first_entry"))).alias("first_entry"),
            sf.split(sf.max(sf.when(is_kind(Kind.REC_START), sf.col("bookies"))), ",").alias("ensemble"),
            sf.max(sf.when(is_kind(Kind.FENCE_RESP) & (code == OK), sf.col("lac"))).alias("fence_lac"),
            sf.collect_list(sf.when(is_fenced, sf.struct("bookie", "seq"))).alias("fences"),
            sf.min(sf.when(is_kind(Kind.REC_READ_SEND), position)).alias("first_read"),
            sf.max(sf.when(is_decision & (sf.col("verdict") == "negative"), position)).alias("negative"),
            sf.max(sf.when(is_decision & (sf.col("verdict") == "unknown"), position)).alias("unknown"),
            sf.min(sf.when(is_close & (sf.col("outcome") == "ok"), sf.struct("seq", "last_entry", "fragments"))).alias(
                "close"
            ),
            sf.max(sf.when(is_close, sf.struct(seq.alias("seq"), "last_entry"))).alias("close_tried"),
            sf.min(sf.when((is_close & (sf.col("outcome") == "ok")) | is_found_closed, seq)).alias("over"),
        )
        .withColumn("first_read_entry", sf.col("first_read.entry"))
    )


def starts_of(all_runs: DataFrame) -> DataFrame:
    """By client, ``starts``: when each of its runs began and, if it was, was ``over``."""
    start = sf.struct("run", "over")
    return all_runs.groupBy(*LEDGER_KEY, "actor").agg(sf.collect_list(start).alias("starts"))


def run_of_add(seq: Column) -> Column:
    """The run, of ``starts``, that an add of recovery belongs to; none for a copy of a repair, which comes when all are over."""
    last = sf.array_max(sf.filter("starts", lambda start: start["run"] < seq))
    return sf.when(last["over"].isNull() | (last["over"] > seq), last["run"])
