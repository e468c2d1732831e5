"""FencedStaysFenced: once a ledger was taken from its writer, nothing that the old writer sends counts any more.

Three things are looked for. A writer whose application was told that the ledger is fenced, or that its own close succeeded,
acknowledges nothing after that. A bookie that made a fence durable stores no ordinary add of that ledger after that, across
restarts, unless the history says that it forgot the fence. After the ledger was closed nothing above its end is acknowledged;
an acknowledgement up to the end may still arrive, because a slow writer learns late of what was long decided.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import CheckClass, Invariant
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    OK,
    is_applied_write,
    is_closed,
    is_kind,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["FENCED_STAYS_FENCED"]

_LEDGER_FENCED: Final = -101


def _turning_points(facts: Facts) -> DataFrame:
    """Per ledger: when its writer was ``told``, where and when it was closed (``close``), when each bookie was fenced."""
    is_told = (is_kind(Kind.APP_FAIL) & (sf.col("code") == _LEDGER_FENCED)) | (
        is_kind(Kind.CLOSE_RESULT) & (sf.col("code") == OK)
    )
    is_fence = is_kind(Kind.FENCE_SET) & sf.col("durable")
    is_forgotten = is_kind(Kind.FENCE_LOST)
    is_close = is_applied_write() & is_closed()
    return (
        facts.rare_events.filter(is_told | is_fence | is_forgotten | is_close)
        .groupBy(*LEDGER_KEY)
        .agg(
            sf.min(sf.when(is_told, sf.col("seq"))).alias("told"),
            sf.min(sf.when(is_close, sf.struct("seq", "last_entry"))).alias("close"),
            sf.collect_list(sf.when(is_fence, sf.struct(sf.col("actor").alias("bookie"), "seq"))).alias("fences"),
            sf.collect_list(sf.when(is_forgotten, sf.struct(sf.col("actor").alias("bookie"), "seq"))).alias(
                "forgotten"
            ),
        )
    )


def _is_behind_a_fence(copy: Column) -> Column:
    """Whether the bookie of ``copy`` stored it after a fence that it had not forgotten by then."""

    def holds(fence: Column) -> Column:
        is_forgotten = sf.exists(
            "forgotten",
            lambda lost: (
                (lost["bookie"] == copy["bookie"]) & (lost["seq"] > fence["seq"]) & (lost["seq"] < copy["ordinary_seq"])
            ),
        )
        return (fence["bookie"] == copy["bookie"]) & (fence["seq"] < copy["ordinary_seq"]) & ~is_forgotten

    return sf.exists("fences", holds)


def _observe(facts: Facts) -> DataFrame:
    judged = join_small(_turning_points(facts), facts.entries, on=LEDGER_KEY, how="left")
    entry, ack, durable, told = sf.col("entry"), sf.col("ack_seq"), sf.col("durable_seq"), sf.col("told")
    ack_after_end = tell(
        ack > told,
        ack,
        [told, ack],
        "the writer was told that it is out (event %d), and entry %d was acknowledged after that (event %d)",
        told,
        entry,
        ack,
    )
    close = sf.col("close")
    above_the_end = tell(
        (durable > close["seq"]) & (entry > close["last_entry"]),
        durable,
        [close["seq"], durable],
        "the ledger was closed after entry %d (event %d), and entry %d was acknowledged after that (event %d)",
        close["last_entry"],
        close["seq"],
        entry,
        durable,
    )
    intruding = sf.filter("copies", _is_behind_a_fence)
    with_stores = judged.withColumn("intruder", sf.get(intruding, sf.lit(0)))
    intruder = sf.col("intruder")
    fences = sf.filter("fences", lambda fence: fence["bookie"] == intruder["bookie"])
    fence_seq = sf.array_min(sf.transform(fences, lambda fence: fence["seq"]))
    store_after_fence = tell(
        intruder.isNotNull(),
        intruder["ordinary_seq"],
        [fence_seq, intruder["ordinary_seq"]],
        "bookie %s was fenced (event %d), and stored an ordinary add of entry %d after that (event %d)",
        intruder["bookie"],
        fence_seq,
        entry,
        intruder["ordinary_seq"],
    )
    return observed(with_stores, ack_after_end, above_the_end, store_after_fence)


FENCED_STAYS_FENCED: Final = Invariant(
    name="FencedStaysFenced",
    statement="After a fence or a close, the old writer neither stores nor acknowledges anything more.",
    formula="A7, D1",
    check_class=CheckClass.JOINED,
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS, Kind.APP_FAIL, Kind.CLOSE_RESULT, Kind.FENCE_SET, Kind.FENCE_LOST),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)
