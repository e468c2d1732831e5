"""The recoveries that closed a ledger, or tried to.

A client that created the ledger may recover it too, beside a writer of its own. What it writes may then be the
writer's close, which ends where the writer's last add confirmed is; so its runs are judged only where its last close
had returned before, and a write that closed the ledger before that is not taken for the run's.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import LEDGER_KEY, is_creation, is_kind, is_true, join_small
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS
from spark_analysis.invariants.runs import RUN_COLUMNS, RUN_KINDS

__all__ = ["CLOSING_COLUMNS", "CLOSING_KINDS", "closing_runs", "creators"]

CLOSING_KINDS: Final = (*RUN_KINDS, *LEDGER_KINDS, Kind.CLOSE_START, Kind.CLOSE_RESULT)
CLOSING_COLUMNS: Final = (*RUN_COLUMNS, *LEDGER_COLUMNS)


def creators(facts: Facts) -> DataFrame:
    """Per ledger: ``creator``, the client that created it."""
    return facts.rare_events.filter(is_creation()).groupBy(*LEDGER_KEY).agg(sf.min("actor").alias("creator"))


def closing_runs(facts: Facts) -> DataFrame:
    """The runs that tried to close their ledger and can be held to it, with the sizes of the ledger."""
    calls = (
        facts.rare_events.filter(is_kind(Kind.CLOSE_START, Kind.CLOSE_RESULT))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.collect_list(sf.struct("seq", is_kind(Kind.CLOSE_RESULT).alias("is_over"))).alias("calls"))
    )
    sizes = facts.ledgers.select(*LEDGER_KEY, "write_quorum_size", "ack_quorum_size")
    is_other = sf.col("actor") != sf.col("creator")

    def has_closed_before(seq: Column) -> Column:
        before = sf.filter("calls", lambda call: call["seq"] < seq)
        return is_true(sf.try_element_at(sf.array_sort(before), sf.lit(-1))["is_over"])

    return (
        facts.runs.filter(sf.col("close_tried").isNotNull())
        .transform(join_small, sizes, on=LEDGER_KEY, how="inner")
        .transform(join_small, creators(facts), on=LEDGER_KEY, how="inner")
        .transform(join_small, calls, on=(*LEDGER_KEY, "actor"), how="left")
        .filter(is_other | has_closed_before(sf.col("close_tried.seq")))
        .withColumn("close", sf.when(is_other | has_closed_before(sf.col("close.seq")), sf.col("close")))
    )
