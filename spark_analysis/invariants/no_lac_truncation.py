"""NoLacTruncation: what was acknowledged stays in the ledger when it is closed.

The headline guarantee. It is judged by the two events that matter alone, so a history with gaps can hide a violation
but never invent one, and it makes no difference whether the acknowledgement or the close came first: a close below an
acknowledged entry truncated it, and an acknowledgement above the end was a lie.

Where a ledger was seen closed more than once with different ends (RecoveriesAgree), the lowest end counts.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.left_open import OPEN_COLUMNS, OPEN_KINDS
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["NO_LAC_TRUNCATION"]


def _observe(facts: Facts) -> DataFrame:
    closed = facts.ledgers.filter(sf.col("end").isNotNull())
    ack, close = sf.col("durable_seq"), sf.col("end.seq")
    finding = tell(
        "A1",
        ack.isNotNull() & (sf.col("entry") > sf.col("end.last_entry")),
        sf.greatest(ack, close),
        [ack, close],
        "entry %d was acknowledged (event %d), but the ledger is closed after entry %d (event %d)",
        sf.col("entry"),
        ack,
        sf.col("end.last_entry"),
        close,
    )
    left_open = facts.open_ends.filter(~sf.col("has_ended")).select(*LEDGER_KEY, "findings")
    return observed(join_small(closed, facts.entries, on=LEDGER_KEY, how="left"), finding).union(left_open)


NO_LAC_TRUNCATION: Final = Invariant(
    name="NoLacTruncation",
    clauses=("A1",),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS, *OPEN_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS, *OPEN_COLUMNS),
    observe=_observe,
)
