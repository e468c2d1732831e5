"""AcksInOrder: a writer's acknowledgements are 0, 1, 2, ... without a gap or a repeat.

The prefix property that makes "the first entry that nobody has" the end of the ledger.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import LEDGER_KEY, CheckClass, Invariant, first_per_ledger, tell
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KEY, ENTRY_KINDS, entries

__all__ = ["ACKS_IN_ORDER"]


def _findings(events: DataFrame) -> DataFrame:
    upwards = Window.partitionBy(*LEDGER_KEY).orderBy("entry")
    entry, ack = sf.col("entry"), sf.col("ack_seq")
    acked = (
        entries(events)
        .filter(ack.isNotNull())
        .select(
            *ENTRY_KEY,
            "acks",
            "ack_seq",
            sf.coalesce(sf.lag("entry").over(upwards), sf.lit(-1)).alias("entry_below"),
            sf.lag("ack_seq").over(upwards).alias("ack_below"),
        )
    )
    gap = tell(
        sf.col("entry_below") != entry - 1,
        ack,
        [ack],
        "entry %d was acknowledged (event %d), entry %d never was",
        entry,
        ack,
        entry - 1,
    )
    swap = tell(
        sf.col("ack_below") > ack,
        sf.col("ack_below"),
        [ack, sf.col("ack_below")],
        "entry %d was acknowledged (event %d) before entry %d (event %d)",
        entry,
        ack,
        sf.col("entry_below"),
        sf.col("ack_below"),
    )
    repeat = tell(
        sf.col("acks") > 1,
        ack,
        [ack],
        "entry %d was acknowledged %d times, first by event %d",
        entry,
        sf.col("acks"),
        ack,
    )
    return first_per_ledger(acked, gap, swap, repeat)


ACKS_IN_ORDER: Final = Invariant(
    name="AcksInOrder",
    statement="Entries are acknowledged in the order of their ids, each once, from 0 on.",
    formula="A3",
    check_class=CheckClass.JOINED,
    kinds=ENTRY_KINDS,
    columns=ENTRY_COLUMNS,
    findings=_findings,
)
