"""LogOneOpen: one ledger of a log at most can be written to.

When a ledger is appended, each one that was appended before has to be free: closed, with its end noted, or out of the list. And
the end that is noted is that with which the ledger had been closed.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import is_true, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import LOG_KEY, LOG_KINDS, LOG_LEDGER_COLUMNS, LOG_LEDGER_KINDS, NEVER

__all__ = ["LOG_ONE_OPEN"]


def _observe(facts: Facts) -> DataFrame:
    is_closed_and_noted = sf.col("noted_seq").isNotNull() & sf.col("closed_seq").isNotNull()
    since = sf.when(is_closed_and_noted, sf.greatest("noted_seq", "closed_seq"))
    freed = sf.coalesce(sf.least(since, "left_seq"), sf.lit(NEVER))
    before = Window.partitionBy(*LOG_KEY).orderBy("listed_seq").rowsBetween(Window.unboundedPreceding, -1)
    listed = facts.log_ledgers.filter(sf.col("listed_seq").isNotNull()).withColumn(
        "open", sf.max(sf.struct(freed.alias("freed"), "ledger", "listed_seq")).over(before)
    )
    opened = tell(
        "H9",
        is_true(sf.col("open.freed") > sf.col("listed_seq")),
        sf.col("listed_seq"),
        [sf.col("open.listed_seq"), sf.col("listed_seq")],
        "ledger %d was appended (event %d) while ledger %d was in the list (event %d), and open or without its end",
        sf.col("ledger"),
        sf.col("listed_seq"),
        sf.col("open.ledger"),
        sf.col("open.listed_seq"),
    )
    is_open = sf.col("closed_seq").isNull() | (sf.col("closed_seq") > sf.col("noted_seq"))
    early = tell(
        "H10",
        is_true(sf.col("noted_seq").isNotNull() & is_open),
        sf.col("noted_seq"),
        [sf.col("noted_seq")],
        "entry %d was noted as the end (event %d) of a ledger that is open",
        sf.col("noted_entry"),
        sf.col("noted_seq"),
    )
    another = tell(
        "H10",
        is_true((sf.col("closed_seq") < sf.col("noted_seq")) & (sf.col("closed_entry") != sf.col("noted_entry"))),
        sf.col("noted_seq"),
        [sf.col("closed_seq"), sf.col("noted_seq")],
        "entry %d was noted as the end (event %d), and the ledger was closed at entry %d (event %d)",
        sf.col("noted_entry"),
        sf.col("noted_seq"),
        sf.col("closed_entry"),
        sf.col("closed_seq"),
    )
    return observed(listed, opened, early, another)


LOG_ONE_OPEN: Final = Invariant(
    name="LogOneOpen",
    clauses=("H9", "H10"),
    kinds=LOG_LEDGER_KINDS,
    columns=LOG_LEDGER_COLUMNS,
    observe=_observe,
    premise=LOG_KINDS,
)
