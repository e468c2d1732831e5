"""CloseAtDecision: recovery closes a ledger right below the entry that it ruled out.

The last entry that a run ruled out is the first that the ledger does not have. A run that ruled nothing out knows no
end.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.closing_runs import CLOSING_COLUMNS, CLOSING_KINDS, closing_runs
from spark_analysis.invariants.expressions import observed, tell
from spark_analysis.invariants.facts import Facts

__all__ = ["CLOSE_AT_DECISION"]


def _observe(facts: Facts) -> DataFrame:
    closed = closing_runs(facts).filter(sf.col("close").isNotNull())
    end, seq, negative = sf.col("close.last_entry"), sf.col("close.seq"), sf.col("negative")
    unproven = tell(
        "E7",
        negative.isNull(),
        seq,
        [seq],
        "recovery by %s closed the ledger after entry %d (event %d) without having ruled out that more follows",
        sf.col("actor"),
        end,
        seq,
    )
    elsewhere = tell(
        "E7",
        end != negative["entry"] - 1,
        seq,
        [negative["seq"], seq],
        "recovery by %s ruled out entry %d (event %d), and closed the ledger after entry %d (event %d)",
        sf.col("actor"),
        negative["entry"],
        negative["seq"],
        end,
        seq,
    )
    return observed(closed, unproven, elsewhere)


CLOSE_AT_DECISION: Final = Invariant(
    name="CloseAtDecision",
    clauses=("E7",),
    kinds=CLOSING_KINDS,
    columns=CLOSING_COLUMNS,
    observe=_observe,
)
