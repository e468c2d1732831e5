"""How many copies the entries of closed ledgers have, which AckedReadable and ClosedAtQuorum judge.

A copy is there if it was stored or made durable after the last event that removed it. A copy that was never made
durable counts until the recorder says that it is gone, but then its loss is no excuse: no bookie may have vouched
for it. Bookies whose journal never syncs have no durable copies; all their losses count.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    ensemble_of,
    is_in_write_set,
    is_kind,
    is_stored_copy,
    is_true,
    join_small,
)
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["REPLICATION_COLUMNS", "REPLICATION_KINDS", "collections", "owed_entries"]

REPLICATION_KINDS: Final = (*ENTRY_KINDS, Kind.BK_GC, *LEDGER_KINDS)
REPLICATION_COLUMNS: Final = (*ENTRY_COLUMNS, *LEDGER_COLUMNS)


def collections(rare: DataFrame) -> DataFrame:
    """Per ledger: ``collected``, when each bookie last removed all of it."""
    return (
        rare.filter(is_kind(Kind.BK_GC))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.max("seq").alias("seq"))
        .groupBy(*LEDGER_KEY)
        .agg(sf.map_from_entries(sf.collect_list(sf.struct("actor", "seq"))).alias("collected"))
    )


def _bookies(entries: DataFrame) -> DataFrame:
    """Per history in which bookies recorded what they store: ``syncing``, those that were seen to make entries durable."""
    return (
        entries.select("history", sf.explode("copies").alias("copy"))
        .filter(is_stored_copy(sf.col("copy")))
        .groupBy("history", "copy.bookie")
        .agg(sf.max(sf.col("copy.synced_seq").isNotNull()).alias("does_sync"))
        .groupBy("history")
        .agg(sf.collect_list(sf.when(sf.col("does_sync"), sf.col("bookie"))).alias("syncing"))
    )


def owed_entries(rare: DataFrame, ledgers: DataFrame, entries: DataFrame) -> DataFrame:
    """Each entry that is known of a ledger which ends the history closed.

    Columns: those of the relation ``entries`` without the copies; ``last_entry``,
    ``ack_quorum_size`` and ``closed`` of its ledger; and

    * ``holders``: how many bookies of the entry's write set, under the final metadata, hold it in the end;
    * ``losses``: how many bookies, wherever, lost a durable copy and do not have it again;
    * ``losses_ever``: how many bookies lost a durable copy at some time;
    * ``is_recorded``: whether bookies recorded anything that they store in this history.

    A closed ledger without entries has one row, with nulls.
    """
    closed = ledgers.filter(sf.col("final").isNotNull())
    with_collections = join_small(closed, collections(rare), on=LEDGER_KEY, how="left")
    with_bookies = join_small(with_collections, _bookies(entries), on=("history",), how="left")
    entry = sf.col("entry")

    def is_held(copy: Column) -> Column:
        removed = sf.greatest(copy["lost_seq"], sf.try_element_at(sf.col("collected"), copy["bookie"]))
        return copy["bookie"].isNotNull() & sf.coalesce(copy["seen_seq"] > removed, copy["seen_seq"].isNotNull())

    def was_lost(copy: Column) -> Column:
        does_sync = is_true(sf.array_contains("syncing", copy["bookie"]))
        is_excused = sf.coalesce(copy["synced_seq"] < copy["lost_seq"], ~does_sync)
        return copy["lost_seq"].isNotNull() & is_excused

    def is_placed(copy: Column) -> Column:
        return is_in_write_set(copy["bookie"], sf.col("ensemble"), entry, sf.col("write_quorum_size"))

    return (
        join_small(with_bookies, entries, on=LEDGER_KEY, how="left")
        .withColumn("ensemble", ensemble_of(sf.col("final.fragments"), entry))
        .select(
            *(name for name in entries.columns if name != "copies"),
            *("final.last_entry", "ack_quorum_size", "closed"),
            sf.col("syncing").isNotNull().alias("is_recorded"),
            sf.size(sf.filter("copies", lambda copy: is_held(copy) & is_placed(copy))).alias("holders"),
            sf.size(sf.filter("copies", lambda copy: was_lost(copy) & ~is_held(copy))).alias("losses"),
            sf.size(sf.filter("copies", was_lost)).alias("losses_ever"),
        )
    )
