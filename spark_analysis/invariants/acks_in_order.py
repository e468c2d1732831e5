"""AcksInOrder: a writer's acknowledgements ascend, without a repeat, and pass over no entry that is not confirmed.

The prefix property that makes "the first entry that no quorum has" the end of the ledger. An entry that has its ack
quorum and no acknowledgement is one whose append was cancelled: no one is told. Each writer acknowledges an entry once; that a
ledger has one writer is clause G1's.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import is_true, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["ACKS_IN_ORDER"]


def _observe(facts: Facts) -> DataFrame:
    entry, ack, ack_below = sf.col("entry"), sf.col("ack_seq"), sf.col("ack_below")
    has_below = is_true(sf.col("entry_below") == entry - 1)
    is_next = (entry == 0) | (has_below & (ack_below.isNotNull() | is_true(sf.col("quorum_below") < ack)))
    gap = tell(
        "A3",
        ~is_next,
        ack,
        [ack],
        "entry %d was acknowledged (event %d), entry %d never was",
        entry,
        ack,
        entry - 1,
    )
    swap = tell(
        "A3",
        is_next & (ack_below > ack),
        ack_below,
        [ack, ack_below],
        "entry %d was acknowledged (event %d) before entry %d (event %d)",
        entry,
        ack,
        entry - 1,
        ack_below,
    )
    repeat = tell(
        "A3",
        (sf.col("acks") > 1) & (sf.col("acker_min") == sf.col("acker_max")),
        ack,
        [ack],
        "entry %d was acknowledged %d times, first by event %d",
        entry,
        sf.col("acks"),
        ack,
    )
    return observed(facts.entries.filter(ack.isNotNull()), gap, swap, repeat)


ACKS_IN_ORDER: Final = Invariant(
    name="AcksInOrder",
    clauses=("A3",),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)
