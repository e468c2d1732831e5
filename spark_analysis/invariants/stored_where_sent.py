"""StoredWhereSent: a bookie stores an entry for a client only after that sent it to this bookie.

Judged for clients of which an add of the ledger is known before; others do not record what they send. Where a writer may send an
entry is for MetadataBeforeUse to judge.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    ENTRY_KEY,
    LEDGER_KEY,
    is_kind,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts

__all__ = ["STORED_WHERE_SENT"]


def _observe(facts: Facts) -> DataFrame:
    seq, is_send = sf.col("seq"), is_kind(Kind.ADD_SEND)
    copies = (
        facts.of(Kind.ADD_SEND, Kind.BK_STORE)
        .select(
            *ENTRY_KEY,
            sf.when(is_send, sf.col("bookie")).otherwise(sf.col("actor")).alias("bookie"),
            sf.when(is_send, sf.col("actor")).otherwise(sf.col("source")).alias("client"),
            sf.when(is_send, seq).alias("sent"),
            sf.when(~is_send, seq).alias("stored"),
        )
        .groupBy(*ENTRY_KEY, "bookie", "client")
        .agg(sf.min("sent").alias("sent"), sf.min("stored").alias("stored"))
    )
    known = copies.groupBy(*LEDGER_KEY, "client").agg(sf.min("sent").alias("known"))
    sent, stored = sf.col("sent"), sf.col("stored")
    judged = join_small(copies.filter(stored.isNotNull()), known, on=(*LEDGER_KEY, "client"), how="inner")
    finding = tell(
        "D8",
        (sf.col("known") < stored) & ~is_true(sent < stored),
        stored,
        [stored],
        "%s stored entry %d of %s (event %d), which had not sent it there",
        sf.col("bookie"),
        sf.col("entry"),
        sf.col("client"),
        stored,
    )
    return observed(judged, finding)


STORED_WHERE_SENT: Final = Invariant(
    name="StoredWhereSent",
    clauses=("D8",),
    kinds=(Kind.ADD_SEND, Kind.BK_STORE),
    columns=("seq", "actor", "source", "entry", "bookie"),
    observe=_observe,
)
