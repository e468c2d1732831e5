"""AckHasQuorum: an entry is acknowledged when Qa different bookies of its write set said they have it.

For each acknowledged entry: the good answers to ordinary adds of it that had come in before the acknowledgement,
counted by bookie, and only those of bookies in the write set under the open metadata that was *stored* then. While a
ledger is open only its writer changes where new entries go, so this is the writer's own view, unless it acts on a
change before it is stored, which is the mistake to find; what a recovery stores later does not count against a writer
that acknowledges late.

An answer from before an ensemble change counts if its bookie is in the write set after it, even if it left in
between: that may miss something, never accuse.

Where a writer demands copies in several racks, the same answers come from more than one; a single copy has no more.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    ensemble_of,
    is_in_write_set,
    is_kind,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["ACK_HAS_QUORUM"]


def _demanded_racks(facts: Facts) -> DataFrame:
    """By ledger: ``located``, bookies, and ``racks``, where each is, if its writer demands copies in several."""
    demands = facts.rare_events.filter(is_kind(Kind.FAULT_DOMAINS))
    told = demands.groupBy(*LEDGER_KEY).agg(sf.collect_list(sf.struct("seq", "bookies", "racks")).alias("tellings"))
    last = sf.array_max("tellings")
    bookies, racks = sf.split(last["bookies"], ","), sf.split(last["racks"], ",")
    return told.select(*LEDGER_KEY, bookies.alias("located"), racks.alias("racks"))


def _observe(facts: Facts) -> DataFrame:
    entry, ack = sf.col("entry"), sf.col("ack_seq")
    acked = facts.entries.filter(ack.isNotNull())
    open_ledgers = facts.ledgers.filter(sf.size("placements") > 0).transform(
        join_small, _demanded_racks(facts), on=LEDGER_KEY, how="left"
    )
    known = sf.filter(sf.array_sort("placements"), lambda placement: placement["seq"] < ack)
    placed = (
        join_small(acked, open_ledgers, on=LEDGER_KEY, how="inner")
        .withColumn("placement", sf.try_element_at(known, sf.lit(-1)))
        .withColumn("ensemble", ensemble_of(sf.col("placement.fragments"), entry))
    )
    confirming = sf.filter(
        "copies",
        lambda copy: (
            (copy["answer_seq"] < ack)
            & is_in_write_set(copy["bookie"], sf.col("ensemble"), entry, sf.col("write_quorum_size"))
        ),
    )
    judged = placed.withColumn("confirming", confirming).withColumn("bookies", sf.col("confirming.bookie"))
    finding = tell(
        "A2",
        sf.size("bookies") < sf.col("ack_quorum_size"),
        ack,
        sf.concat(sf.array(ack, sf.col("placement.seq")), sf.col("confirming.answer_seq")),
        "entry %d was acknowledged (event %d) on the word of %d bookies of its write set instead of %d: [%s]",
        entry,
        ack,
        sf.size("bookies"),
        sf.col("ack_quorum_size"),
        sf.array_join("bookies", ", "),
    )

    def rack_of(bookie: Column) -> Column:
        return sf.get("racks", sf.array_position("located", bookie).cast("int") - 1)

    racks = sf.array_distinct(sf.transform("bookies", rack_of))
    in_one_rack = tell(
        "A13",
        sf.col("racks").isNotNull()
        & (sf.col("write_quorum_size") > 1)
        & (sf.size("bookies") >= sf.col("ack_quorum_size"))
        & (sf.size(racks) < 2),
        ack,
        sf.concat(sf.array(ack, sf.col("placement.seq")), sf.col("confirming.answer_seq")),
        "entry %d was acknowledged (event %d) on the word of [%s], all in one rack: %s",
        entry,
        ack,
        sf.array_join("bookies", ", "),
        sf.array_join(racks, ", "),
    )
    return observed(judged, finding, in_one_rack)


ACK_HAS_QUORUM: Final = Invariant(
    name="AckHasQuorum",
    clauses=("A2", "A13"),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS, Kind.FAULT_DOMAINS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS, "bookies", "racks"),
    observe=_observe,
)
