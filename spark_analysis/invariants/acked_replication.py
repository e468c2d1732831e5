"""AckedReplication: an acknowledged entry stays on an ack quorum of its write set, losses aside.

At every moment from the acknowledgement on, of the entry's write set under the metadata stored then, at least Qa bookies hold it,
less those that ever lost it. That may change with the acknowledgement, with a change of the metadata, and when a bookie drops
the ledger; a loss lowers both sides, and a copy more raises one. So these are the moments to look at. Where no bookie holds the
entry, that is clause A4's (AckedReadable).

Of each copy the relation knows the first time it was stored, and the last times it was stored and removed. A bookie that lost a
copy and has it again counts as holding it in between, which may miss something and never accuse.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import CheckClass, Invariant
from spark_analysis.invariants.expressions import (
    ENTRY_KEY,
    LEDGER_KEY,
    ensemble_of,
    is_in_write_set,
    is_stored_copy,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.images import image_at
from spark_analysis.invariants.replication import REPLICATION_COLUMNS, REPLICATION_KINDS, collections

__all__ = ["ACKED_REPLICATION"]


def _moments(facts: Facts) -> DataFrame:
    """For each acknowledged entry of which bookies recorded copies, the moments to look at: ``at``, and the ``image`` then."""
    ack = sf.col("ack_seq")
    recorded = sf.exists("copies", is_stored_copy)
    acked = facts.entries.filter(ack.isNotNull() & recorded).select(*ENTRY_KEY, "ack_seq", "copies")
    ledgers = join_small(facts.images, collections(facts.rare_events), on=LEDGER_KEY, how="left")
    placed = join_small(acked, ledgers, on=LEDGER_KEY, how="inner")
    changes = sf.transform("images", lambda image: image["seq"])
    dropped = sf.coalesce(sf.map_values("collected"), sf.array().cast("array<bigint>"))
    later = sf.filter(sf.concat(changes, dropped), lambda seq: seq > ack)
    at = sf.explode(sf.array_distinct(sf.concat(sf.array(ack), later)))
    return placed.withColumn("at", at).withColumn("image", image_at(sf.col("at") + 1))


def _observe(facts: Facts) -> DataFrame:
    entry, ack, at, quorum = sf.col("entry"), sf.col("ack_seq"), sf.col("at"), sf.col("ack_quorum_size")

    def is_lost(copy: Column) -> Column:
        return is_true(copy["lost_first"] <= at)

    def is_held(copy: Column) -> Column:
        collected = sf.try_element_at(sf.col("collected"), copy["bookie"])
        removed = sf.greatest(sf.when(copy["lost_seq"] <= at, copy["lost_seq"]), sf.when(collected <= at, collected))
        is_removed = is_true(copy["seen_seq"] < removed)
        return copy["bookie"].isNotNull() & is_true(copy["stored_seq"] <= at) & ~is_removed

    def is_placed(copy: Column) -> Column:
        return is_in_write_set(copy["bookie"], sf.col("ensemble"), entry, sf.col("write_quorum_size"))

    judged = (
        _moments(facts)
        .filter(sf.col("image").isNotNull())
        .withColumn("ensemble", ensemble_of(sf.col("image.fragments"), entry))
        .withColumn("held", sf.size(sf.filter("copies", lambda copy: is_held(copy) & is_placed(copy))))
        .withColumn("wanted", quorum - sf.size(sf.filter("copies", is_lost)))
    )
    short = tell(
        "A5",
        (sf.col("held") > 0) & (sf.col("held") < sf.col("wanted")),
        at,
        [ack, sf.col("image.seq"), at],
        "entry %d was acknowledged (event %d), and is on %d bookies of its write set instead of %d (event %d)",
        entry,
        ack,
        sf.col("held"),
        sf.col("wanted"),
        at,
    )
    return observed(judged, short)


ACKED_REPLICATION: Final = Invariant(
    name="AckedReplication",
    clauses=("A5",),
    check_class=CheckClass.JOINED,
    kinds=REPLICATION_KINDS,
    columns=REPLICATION_COLUMNS,
    observe=_observe,
)
