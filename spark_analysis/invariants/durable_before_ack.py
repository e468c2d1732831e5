"""DurableBeforeAck: an entry is acknowledged as durable only when an ack quorum has it on disk.

Of the bookies that an acknowledgement rests on, those that make entries durable at all had made this one durable before. A bookie
without a BK_SYNC so far has no journal that syncs, and is taken at its word.

A force that succeeds says that of all that was acknowledged when it began, so a ledger is not closed below that. An entry that a
bookie lost is passed over: it may have been lost before it was forced, which no bookie can tell. Of several forces under way at
once by one client the first answer is taken for that to the first, which covers least.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.denials import sent_before
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    OK,
    ensemble_of,
    is_in_write_set,
    is_kind,
    is_true,
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
    return observed(judged, finding).union(_cut_off(facts))


def _cut_off(facts: Facts) -> DataFrame:
    """What is broken of D16: entries above the end of a ledger that a force had covered."""
    call = (*LEDGER_KEY, "actor")
    calls = facts.rare_events.filter(is_kind(Kind.FORCE_START, Kind.FORCE_RESULT)).select(
        *call, "seq", "code", is_kind(Kind.FORCE_RESULT).alias("is_answer")
    )
    forced = sent_before(calls, call, sf.col("is_answer")).filter((sf.col("code") == OK) & sf.col("sent").isNotNull())
    closed = facts.ledgers.filter(sf.col("end").isNotNull()).select(*LEDGER_KEY, "end")
    entry, ack, end = sf.col("entry"), sf.col("ack_seq"), sf.col("end")
    began, ended = sf.col("sent"), sf.col("seq")
    at = sf.greatest(ended, end["seq"])
    is_lost = sf.exists("copies", lambda copy: is_true(copy["lost_first"] < at))
    judged = (
        facts.entries.filter(ack.isNotNull())
        .select(*LEDGER_KEY, "entry", "ack_seq", "copies")
        .transform(join_small, join_small(forced, closed, on=LEDGER_KEY, how="inner"), on=LEDGER_KEY, how="inner")
        .filter((entry > end["last_entry"]) & (ack < began) & ~is_lost)
    )
    finding = tell(
        "D16",
        ack.isNotNull(),
        at,
        [ack, began, ended, end["seq"]],
        "%s was told (event %d) that its force succeeded, which covers entry %d (event %d), and the ledger is closed at entry %d "
        "(event %d)",
        sf.col("actor"),
        ended,
        entry,
        ack,
        end["last_entry"],
        end["seq"],
    )
    return observed(judged, finding)


DURABLE_BEFORE_ACK: Final = Invariant(
    name="DurableBeforeAck",
    clauses=("D7", "D16"),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS, Kind.FORCE_START, Kind.FORCE_RESULT),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)
