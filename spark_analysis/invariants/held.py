"""Where the copies of entries are at every moment that counts, which AckedReadable, AckedReplication and ClosedAtQuorum judge.

Whether enough bookies of an entry's write set hold it may change with the entry's acknowledgement as durable (one that says less
promises nothing), with the metadata, and when a bookie drops the ledger. A loss lowers what is there and what is wanted, and a
copy more only helps; so these are the moments to look at. Where no bookie recorded what it stores, nothing is known of copies.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import (
    ENTRY_KEY,
    LEDGER_KEY,
    ensemble_of,
    is_in_write_set,
    is_kind,
    is_stored_copy,
    is_true,
    join_small,
)
from spark_analysis.invariants.images import image_at
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["COPY_COLUMNS", "COPY_KINDS", "STORE_KINDS", "held_entries", "recorded"]

#: Of the events by which an entry comes to a bookie and goes.
STORE_KINDS: Final = (Kind.BK_STORE, Kind.BK_LOSS)
COPY_KINDS: Final = (*ENTRY_KINDS, Kind.BK_GC, *LEDGER_KINDS)
COPY_COLUMNS: Final = (*ENTRY_COLUMNS, *LEDGER_COLUMNS)


def recorded(entries: DataFrame) -> DataFrame:
    """The histories in which bookies recorded what they store."""
    return entries.filter(sf.exists("copies", is_stored_copy)).select("history").distinct()


def _drops(rare: DataFrame) -> DataFrame:
    """Per ledger: ``dropped``, when each bookie removed all of it."""
    return (
        rare.filter(is_kind(Kind.BK_GC))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.collect_list("seq").alias("seqs"))
        .groupBy(*LEDGER_KEY)
        .agg(sf.map_from_entries(sf.collect_list(sf.struct("actor", "seqs"))).alias("dropped"))
    )


def _turns(stores: DataFrame, rare: DataFrame) -> DataFrame:
    """Per entry that bookies removed: ``stores`` and ``losses``, when each of these bookies stored and lost it.

    Only what was removed may be there and not be there by turns, and that is little.
    """
    removed = (*LEDGER_KEY, "actor")
    losses, drops = stores.filter(is_kind(Kind.BK_LOSS)), rare.filter(is_kind(Kind.BK_GC))
    removals = losses.select(*removed).union(drops.select(*removed)).distinct()
    is_store = is_kind(Kind.BK_STORE)
    return (
        stores.select(*ENTRY_KEY, "actor", "kind", "seq")
        .transform(join_small, removals, on=(*LEDGER_KEY, "actor"), how="left_semi")
        .groupBy(*ENTRY_KEY, "actor")
        .agg(
            sf.collect_list(sf.when(is_store, sf.col("seq"))).alias("stores"),
            sf.collect_list(sf.when(~is_store, sf.col("seq"))).alias("losses"),
        )
        .groupBy(*ENTRY_KEY)
        .agg(
            sf.map_from_entries(sf.collect_list(sf.struct("actor", "stores"))).alias("stores"),
            sf.map_from_entries(sf.collect_list(sf.struct("actor", "losses"))).alias("losses"),
        )
    )


def held_entries(stores: DataFrame, rare: DataFrame, images: DataFrame, entries: DataFrame) -> DataFrame:
    """A row for each entry that is acknowledged as durable or in a closed ledger, and each moment that counts for it.

    ``stores`` are the events of :data:`STORE_KINDS`.

    * ``at``: the event of the moment; ``image``: the metadata that is stored then; ``ack_quorum_size``;
    * ``durable_seq``: when the entry was first acknowledged as durable; null where it was not, or later;
    * ``is_inside``: whether the ledger is closed then, and not below the entry;
    * ``held``: how many bookies of its write set hold it, ``holders``: the events by which they stored it;
    * ``lost``: how many bookies, wherever, ever lost it.
    """
    entry, ack, at = sf.col("entry"), sf.col("durable_seq"), sf.col("at")
    ledgers = join_small(images, _drops(rare), on=LEDGER_KEY, how="left")
    is_end = sf.exists("images", lambda image: (image["state"] == "CLOSED") & (entry <= image["last_entry"]))
    placed = (
        join_small(entries.filter(entry >= 0), recorded(entries), on=("history",), how="left_semi")
        .select(*ENTRY_KEY, "durable_seq", "copies")
        .transform(join_small, ledgers, on=LEDGER_KEY, how="inner")
        .filter(ack.isNotNull() | is_end)
    )
    ends = sf.filter("images", lambda image: (image["state"] == "CLOSED") & (entry <= image["last_entry"]))
    since = sf.least(ack, sf.array_min(sf.transform(ends, lambda image: image["seq"])))
    changes = sf.transform("images", lambda image: image["seq"])
    dropped = sf.flatten(sf.coalesce(sf.map_values("dropped"), sf.array().cast("array<array<bigint>>")))
    later = sf.filter(sf.concat(changes, dropped), lambda seq: seq >= since)
    moments = sf.array_distinct(sf.array_compact(sf.concat(sf.array(ack), later)))

    def last_before(seqs: Column) -> Column:
        return sf.array_max(sf.filter(seqs, lambda seq: seq <= at))

    def stored_last(copy: Column) -> Column:
        """When the copy was stored, as far as it is there at the moment; null if it is not."""
        bookie = copy["bookie"]
        turns = sf.try_element_at(sf.col("stores"), bookie)
        stored = sf.coalesce(last_before(turns), sf.when(copy["stored_seq"] <= at, copy["stored_seq"]))
        removed = sf.greatest(
            last_before(sf.try_element_at(sf.col("losses"), bookie)),
            last_before(sf.try_element_at(sf.col("dropped"), bookie)),
        )
        return sf.when(bookie.isNotNull() & ~is_true(removed > stored), stored)

    def is_placed(copy: Column) -> Column:
        return is_in_write_set(copy["bookie"], sf.col("ensemble"), entry, sf.col("write_quorum_size"))

    return (
        join_small(placed, _turns(stores, rare), on=ENTRY_KEY, how="left")
        .withColumn("at", sf.explode(moments))
        .withColumn("image", image_at(at + 1))
        .filter(sf.col("image").isNotNull())
        .withColumn("ensemble", ensemble_of(sf.col("image.fragments"), entry))
        .withColumn("holders", sf.array_compact(sf.transform(sf.filter("copies", is_placed), stored_last)))
        .select(
            *ENTRY_KEY,
            "at",
            "image",
            "ack_quorum_size",
            sf.when(ack <= at, ack).alias("durable_seq"),
            is_true((sf.col("image.state") == "CLOSED") & (entry <= sf.col("image.last_entry"))).alias("is_inside"),
            "holders",
            sf.size("holders").alias("held"),
            sf.size(sf.filter("copies", lambda copy: copy["bookie"].isNotNull() & (copy["lost_first"] <= at))).alias(
                "lost"
            ),
        )
    )
