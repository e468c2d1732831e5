"""UnknownAborts: a recovery that could not decide about an entry closes nothing.

Not even an attempt to close is right after that, whatever comes of it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.closing_runs import CLOSING_COLUMNS, CLOSING_KINDS, closing_runs
from spark_analysis.invariants.expressions import observed, tell
from spark_analysis.invariants.facts import Facts

__all__ = ["UNKNOWN_ABORTS"]


def _observe(facts: Facts) -> DataFrame:
    unknown, tried = sf.col("unknown"), sf.col("close_tried.seq")
    finding = tell(
        "E11",
        unknown["seq"] < tried,
        tried,
        [unknown["seq"], tried],
        "recovery by %s could not decide about entry %d (event %d), and moved to close the ledger (event %d)",
        sf.col("actor"),
        unknown["entry"],
        unknown["seq"],
        tried,
    )
    return observed(closing_runs(facts), finding)


UNKNOWN_ABORTS: Final = Invariant(
    name="UnknownAborts",
    clauses=("E11",),
    kinds=CLOSING_KINDS,
    columns=CLOSING_COLUMNS,
    observe=_observe,
)
