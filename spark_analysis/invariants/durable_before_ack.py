"""DurableBeforeAck: an entry is acknowledged as durable only when an ack quorum has it on disk.

Of the bookies that an acknowledgement rests on, those that make entries durable at all had made this one durable before. A bookie
without a BK_SYNC so far has no journal that syncs, and is taken at its word.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    ensemble_of,
    is_in_write_set,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["DURABLE_BEFORE_ACK"]


def _syncing(facts: Facts) -> DataFrame:
    """Per history: ``syncing``, when each bookie was first seen to make something durable."""
    return (
        facts.of(Kind.BK_SYNC)
        .groupBy("history", "actor")
        .agg(sf.min("seq").alias("seq"))
        .groupBy("history")
        .agg(sf.map_from_entries(sf.collect_list(sf.struct("actor", "seq"))).alias("syncing"))
    )


def _observe(facts: Facts) -> DataFrame:
    entry, ack = sf.col("entry"), sf.col("durable_seq")
    open_ledgers = facts.ledgers.filter(sf.size("placements") > 0)
    known = sf.filter(sf.array_sort("placements"), lambda placement: placement["seq"] < ack)
    placed = (
        join_small(facts.entries.filter(ack.isNotNull()), open_ledgers, on=LEDGER_KEY, how="inner")
        .transform(join_small, _syncing(facts), on=("history",), how="left")
        .withColumn("ensemble", ensemble_of(sf.try_element_at(known, sf.lit(-1))["fragments"], entry))
    )
    confirming = sf.filter(
        "copies",
        lambda copy: (
            (copy["answer_seq"] < ack)
            & is_in_write_set(copy["bookie"], sf.col("ensemble"), entry, sf.col("write_quorum_size"))
        ),
    )
    unsafe = sf.filter(
        "confirming",
        lambda copy: (
            (sf.try_element_at(sf.col("syncing"), copy["bookie"]) < ack)
            & sf.coalesce(copy["synced_seq"] > ack, copy["synced_seq"].isNull())
        ),
    )
    judged = placed.withColumn("confirming", confirming).withColumn("unsafe", unsafe)
    finding = tell(
        "D7",
        (sf.size("confirming") >= sf.col("ack_quorum_size"))
        & (sf.size("confirming") - sf.size("unsafe") < sf.col("ack_quorum_size")),
        ack,
        [ack, sf.get("unsafe", sf.lit(0))["answer_seq"]],
        "entry %d was acknowledged as durable (event %d), but [%s] had answered before it was on disk",
        entry,
        ack,
        sf.array_join(sf.transform("unsafe", lambda copy: copy["bookie"]), ", "),
    )
    return observed(judged, finding)


DURABLE_BEFORE_ACK: Final = Invariant(
    name="DurableBeforeAck",
    clauses=("D7",),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)
