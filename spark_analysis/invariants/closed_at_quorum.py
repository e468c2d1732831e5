"""ClosedAtQuorum: every entry of a closed ledger is on an ack quorum of its write set, acknowledged or not.

What makes a closed ledger survive Qa - 1 losses. A bookie that lost a durable copy is excused. Judged at the end of
the history, under the metadata stored then; deleted ledgers owe nothing, and where bookies recorded nothing of a
ledger, nothing can be said.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import CheckClass, Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.left_open import OPEN_COLUMNS, OPEN_KINDS
from spark_analysis.invariants.replication import REPLICATION_COLUMNS, REPLICATION_KINDS

__all__ = ["CLOSED_AT_QUORUM"]


def _observe(facts: Facts) -> DataFrame:
    owed = facts.owed_entries.filter("is_recorded")
    entry, end, closed = sf.col("entry"), sf.col("last_entry"), sf.col("closed.seq")
    holders, losses, quorum = sf.col("holders"), sf.col("losses"), sf.col("ack_quorum_size")
    too_few = tell(
        "B4",
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
    below, above = sf.coalesce("entry_below", sf.lit(-1)), sf.coalesce("entry_above", end + 1)
    missing = (
        sf.when(entry.isNull() & (end >= 0), sf.lit(0))
        .when((entry <= end) & (below < entry - 1), entry - 1)
        .when((entry < end) & (above > entry + 1), entry + 1)
    )
    unheard = tell(
        "B4",
        missing.isNotNull(),
        closed,
        [closed],
        "closed after entry %d (event %d), but entry %d was never sent nor stored",
        end,
        closed,
        missing,
    )
    left_open = facts.open_ends.select(*LEDGER_KEY, "finding")
    return observed(owed, too_few, unheard).union(left_open)


CLOSED_AT_QUORUM: Final = Invariant(
    name="ClosedAtQuorum",
    clauses=("B4",),
    check_class=CheckClass.JOINED,
    kinds=(*REPLICATION_KINDS, *OPEN_KINDS),
    columns=(*REPLICATION_COLUMNS, *OPEN_COLUMNS),
    observe=_observe,
)
