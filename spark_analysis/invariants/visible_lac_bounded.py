"""VisibleLacBounded: no last add confirmed above the end of the closed ledger was visible.

Seen is what bookies and readers ever knew. Sound on histories with gaps: a missing event can hide a violation, never
make one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.left_open import OPEN_COLUMNS, OPEN_KINDS
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["VISIBLE_LAC_BOUNDED"]


def _observe(facts: Facts) -> DataFrame:
    seen = (
        facts.of(Kind.BK_LAC, Kind.LAC_ADV)
        .groupBy(*LEDGER_KEY)
        .agg(sf.max(sf.struct("lac", "seq", "actor")).alias("seen"))
    )
    closed = facts.ledgers.filter(sf.col("end").isNotNull()).select(*LEDGER_KEY, "end")
    seen_seq, end = sf.col("seen.seq"), sf.col("end")
    finding = tell(
        "F5",
        sf.col("seen.lac") > end["last_entry"],
        sf.greatest(seen_seq, end["seq"]),
        [seen_seq, end["seq"]],
        "%s knew entry %d as last add confirmed (event %d), and the ledger is closed after entry %d (event %d)",
        sf.col("seen.actor"),
        sf.col("seen.lac"),
        seen_seq,
        end["last_entry"],
        end["seq"],
    )
    left_open = facts.open_ends.filter(~sf.col("has_ended")).select(*LEDGER_KEY, "findings")
    return observed(join_small(closed, seen, on=LEDGER_KEY, how="left"), finding).union(left_open)


VISIBLE_LAC_BOUNDED: Final = Invariant(
    name="VisibleLacBounded",
    clauses=("F5",),
    kinds=(Kind.BK_LAC, Kind.LAC_ADV, *LEDGER_KINDS, *OPEN_KINDS),
    columns=("actor", "lac", *LEDGER_COLUMNS, *OPEN_COLUMNS),
    observe=_observe,
)
