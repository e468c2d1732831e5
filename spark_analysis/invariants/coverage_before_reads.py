"""CoverageBeforeReads: recovery reads only when no ack quorum of the last ensemble is left unfenced.

When a run sends its first read, each window of Qw neighbouring positions of the ensemble that it fences has fewer
than Qa bookies that had not answered the fencing read with OK or a denial.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS
from spark_analysis.invariants.runs import RUN_COLUMNS, RUN_KINDS

__all__ = ["COVERAGE_BEFORE_READS"]


def _observe(facts: Facts) -> DataFrame:
    sizes = facts.ledgers.select(*LEDGER_KEY, "ensemble_size", "write_quorum_size", "ack_quorum_size")
    read = sf.col("first_read")
    known = sf.transform(sf.filter("fences", lambda fence: fence["seq"] < read["seq"]), lambda fence: fence["bookie"])
    judged = (
        join_small(facts.runs.filter(read.isNotNull()), sizes, on=LEDGER_KEY, how="inner")
        .filter(sf.size("ensemble") == sf.col("ensemble_size"))
        .withColumn("known", known)
        .withColumn("unfenced", sf.transform("ensemble", lambda bookie: ~sf.array_contains("known", bookie)))
    )
    positions = sf.transform("ensemble", lambda _, position: position)

    def unfenced_from(first: Column) -> Column:
        in_window = sf.filter(
            "unfenced",
            lambda is_unfenced, position: (
                is_unfenced & (sf.pmod(position - first, sf.size("ensemble")) < sf.col("write_quorum_size"))
            ),
        )
        return sf.size(in_window)

    is_open = sf.exists(positions, lambda first: unfenced_from(first) >= sf.col("ack_quorum_size"))
    finding = tell(
        "D4",
        is_open,
        read["seq"],
        [sf.col("run"), read["seq"]],
        "recovery by %s began to read at entry %d (event %d) when only [%s] of %s were known to be fenced",
        sf.col("actor"),
        read["entry"],
        read["seq"],
        sf.array_join("known", ", "),
        sf.array_join("ensemble", ", "),
    )
    return observed(judged, finding)


COVERAGE_BEFORE_READS: Final = Invariant(
    name="CoverageBeforeReads",
    clauses=("D4",),
    kinds=(*RUN_KINDS, *LEDGER_KINDS),
    columns=(*RUN_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)
