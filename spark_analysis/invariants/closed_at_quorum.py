"""ClosedAtQuorum: every entry of a closed ledger is on an ack quorum of its write set, acknowledged or not.

What makes a closed ledger survive Qa - 1 losses. A bookie that lost a durable copy is excused. Judged at the end of the history,
under the metadata stored then; deleted ledgers owe nothing, and where bookies recorded nothing of a ledger, nothing can be said.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import (
    LEDGER_KEY,
    CheckClass,
    Invariant,
    first_per_ledger,
    tell,
)
from spark_analysis.invariants.replication import REPLICATION_COLUMNS, REPLICATION_KINDS, owed_entries

__all__ = ["CLOSED_AT_QUORUM"]


def _findings(events: DataFrame) -> DataFrame:
    owed = owed_entries(events).filter("is_recorded")
    entry, end, closed = sf.col("entry"), sf.col("last_entry"), sf.col("closed.seq")
    holders, losses, quorum = sf.col("holders"), sf.col("losses"), sf.col("ack_quorum_size")
    too_few = tell(
        (entry <= end) & (holders + losses < quorum),
        closed,
        [closed],
        "entry %d is on %d bookies of its write set, not %d, and bookies lost %d copies; the ledger was closed by event %d",
        entry,
        holders,
        quorum,
        losses,
        closed,
    )
    ledgers = (
        owed.withColumn("finding", too_few)
        .groupBy(*LEDGER_KEY)
        .agg(
            sf.array_min(sf.collect_list("finding")).alias("finding"),
            sf.count_if((entry >= 0) & (entry <= end)).alias("known"),
            sf.max(end).alias("end"),
            sf.max(closed).alias("closed_seq"),
        )
    )
    unheard = tell(
        sf.col("known") < sf.col("end") + 1,
        sf.col("closed_seq"),
        [sf.col("closed_seq")],
        "closed after entry %d (event %d), but only %d entries up to it were ever sent or stored",
        sf.col("end"),
        sf.col("closed_seq"),
        sf.col("known"),
    )
    return first_per_ledger(ledgers, sf.col("finding"), unheard)


CLOSED_AT_QUORUM: Final = Invariant(
    name="ClosedAtQuorum",
    statement="Every entry of a closed ledger is held by an ack quorum of its write set, losses aside.",
    formula="B4",
    check_class=CheckClass.JOINED,
    kinds=REPLICATION_KINDS,
    columns=REPLICATION_COLUMNS,
    findings=_findings,
)
