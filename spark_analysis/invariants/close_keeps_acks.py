"""CloseKeepsAcks: a close that succeeds leaves the ledger closed, with all that was acknowledged to its writer.

An application that is told that its close succeeded has been told an end that is not below any entry acknowledged to
it before as durable, and the ledger is stored as closed by then. Where a closing write of unknown outcome may have done that,
that is left open.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    OK,
    is_closed,
    is_kind,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.left_open import LeftOpen, leave_open
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["CLOSE_KEEPS_ACKS"]


def _observe(facts: Facts) -> DataFrame:
    seq = sf.col("seq")
    is_stored = is_kind(*LEDGER_KINDS) & (sf.col("outcome") == "ok") & is_closed()
    is_lost = is_kind(Kind.META_CAS) & sf.col("outcome").isin("unknown", "error") & is_closed()
    stored = (
        facts.rare_events.filter(is_kind(*LEDGER_KINDS))
        .groupBy(*LEDGER_KEY)
        .agg(sf.min(sf.when(is_stored, seq)).alias("stored"), sf.min(sf.when(is_lost, seq)).alias("lost"))
    )
    acks = (
        facts.of(Kind.APP_ACK)
        .filter(is_true(sf.col("durable")))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.collect_list(sf.struct("entry", "seq")).alias("acks"))
    )
    told = facts.rare_events.filter(is_kind(Kind.CLOSE_RESULT) & (sf.col("code") == OK)).select(
        *LEDGER_KEY, "actor", "seq", "last_entry"
    )
    judged = (
        join_small(told, stored, on=LEDGER_KEY, how="inner")
        .transform(join_small, acks, on=(*LEDGER_KEY, "actor"), how="left")
        .withColumn("ack", sf.array_max(sf.filter("acks", lambda ack: ack["seq"] < seq)))
    )
    ack, end = sf.col("ack"), sf.col("last_entry")
    cut_off = tell(
        "A11",
        ack["entry"] > end,
        seq,
        [ack["seq"], seq],
        "the application of %s was told that its ledger is closed after entry %d (event %d), and of entry %d before (event %d)",
        sf.col("actor"),
        end,
        seq,
        ack["entry"],
        ack["seq"],
    )
    never = tell(
        "A11",
        ~is_true(sf.col("stored") < seq) & ~is_true(sf.col("lost") < seq),
        seq,
        [seq],
        "the application of %s was told that its ledger is closed (event %d), which is OPEN or in recovery",
        sf.col("actor"),
        seq,
    )
    lost = leave_open(
        LeftOpen.LOST_WRITE, ~is_true(sf.col("stored") < seq) & is_true(sf.col("lost") < seq), [sf.col("lost"), seq]
    )
    return observed(judged, cut_off, never, lost)


CLOSE_KEEPS_ACKS: Final = Invariant(
    name="CloseKeepsAcks",
    clauses=("A11",),
    kinds=(Kind.APP_ACK, Kind.CLOSE_RESULT, *LEDGER_KINDS),
    columns=("actor", "entry", "code", *LEDGER_COLUMNS),
    observe=_observe,
)
