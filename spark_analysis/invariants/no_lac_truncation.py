"""NoLacTruncation: what was acknowledged stays in the ledger when it is closed.

The headline guarantee. It is judged by the two events that matter alone, so a history with gaps can hide a violation but never
invent one, and it makes no difference whether the acknowledgement or the close came first: a close below an acknowledged
entry truncated it, and an acknowledgement above the end was a lie.

Where a ledger was seen closed more than once with different ends (RecoveriesAgree), the lowest end counts.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import LEDGER_KEY, CheckClass, Invariant, first_per_ledger, join_small, tell
from spark_analysis.invariants.relations import (
    ENTRY_COLUMNS,
    ENTRY_KEY,
    ENTRY_KINDS,
    LEDGER_COLUMNS,
    LEDGER_KINDS,
    entries,
    ledgers,
)

__all__ = ["NO_LAC_TRUNCATION"]


def _findings(events: DataFrame) -> DataFrame:
    acked = entries(events).filter(sf.col("durable_seq").isNotNull()).select(*ENTRY_KEY, "durable_seq")
    closed = ledgers(events).filter(sf.col("end").isNotNull()).select(*LEDGER_KEY, "end")
    ack, close = sf.col("durable_seq"), sf.col("end.seq")
    finding = tell(
        sf.col("entry") > sf.col("end.last_entry"),
        sf.greatest(ack, close),
        [ack, close],
        "entry %d was acknowledged (event %d), but the ledger is closed after entry %d (event %d)",
        sf.col("entry"),
        ack,
        sf.col("end.last_entry"),
        close,
    )
    return first_per_ledger(join_small(closed, acked, on=LEDGER_KEY, how="left"), finding)


NO_LAC_TRUNCATION: Final = Invariant(
    name="NoLacTruncation",
    statement="No ledger is closed below an entry that was acknowledged to its writer.",
    formula="A1",
    check_class=CheckClass.JOINED,
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    findings=_findings,
)
