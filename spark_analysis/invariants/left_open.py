"""What a history leaves open, so that an invariant was neither kept nor broken in a ledger, as far as anybody can tell.

An observation may say so in place of a finding (:func:`leave_open`); a finding of the same ledger has precedence. A ledger of
which an invariant has no observation at all has nothing that it could be judged by: :attr:`LeftOpen.NO_PREMISE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import is_kind, is_true, join_small

__all__ = ["OPEN_COLUMNS", "OPEN_KINDS", "LeftOpen", "leave_open", "open_ends", "run_ends"]

OPEN_KINDS: Final = (Kind.RUN_END,)
OPEN_COLUMNS: Final = ("completed",)

#: Behind every event, and so behind whatever is broken.
_LAST: Final = 2**63 - 1


class LeftOpen(StrEnum):
    """Why an invariant is not judged in a ledger."""

    #: What the invariant is about does not occur.
    NO_PREMISE = "no premise"
    #: An operation was never told its outcome, and might have been later.
    NO_OUTCOME = "no outcome"
    #: Nobody learned whether a write of metadata was applied, and all depends on it.
    LOST_WRITE = "lost write"
    #: The run did not come to its end before the ledger did, or the history does not say that it did.
    CUT_OFF = "cut off"
    #: Another ledger got the id of one that was deleted, and events do not say which of the two they are about.
    CREATED_ANEW = "created anew"


def leave_open(reason: LeftOpen, is_open: Column, evidence: Sequence[Column] = ()) -> Column:
    """That the invariant is not judged, as a struct like a finding, with no clause; null where ``is_open`` is not true."""
    told = sf.struct(
        sf.lit(_LAST).alias("seq"),
        sf.lit(None).cast("string").alias("clause"),
        sf.lit(str(reason)).alias("witness"),
        (sf.array(*evidence) if evidence else sf.array().cast("array<bigint>")).alias("evidence"),
    )
    return sf.when(is_open, told)


def run_ends(rare: DataFrame) -> DataFrame:
    """Per history that says how its run ended: ``end``, the event, and ``completed``."""
    return (
        rare.filter(is_kind(Kind.RUN_END))
        .groupBy("history")
        .agg(sf.max("seq").alias("end"), sf.max("completed").alias("completed"))
    )


def open_ends(rare: DataFrame, ledgers: DataFrame) -> DataFrame:
    """The ledgers of which the end is left open: ``has_ended``, whether they were seen closed, and ``findings``, with why.

    A write that may have closed the ledger, or changed its metadata after that, was lost; or the run was cut off before it was
    closed. A ledger that was deleted leaves nothing open.
    """
    has_ended = sf.col("end").isNotNull()
    lost = sf.when(has_ended, sf.col("lost_write")).otherwise(sf.col("lost_close"))
    finding = sf.coalesce(
        leave_open(LeftOpen.LOST_WRITE, lost.isNotNull(), [lost]),
        leave_open(LeftOpen.CUT_OFF, ~has_ended & ~is_true(sf.col("completed"))),
    )
    return (
        join_small(
            ledgers.filter(sf.col("final").isNull() & ~sf.col("is_deleted")).drop("placements"),
            run_ends(rare).select("history", "completed"),
            on=("history",),
            how="left",
        )
        .select(
            "history",
            "ledger",
            has_ended.alias("has_ended"),
            sf.when(finding.isNotNull(), sf.array(finding)).alias("findings"),
        )
        .filter(sf.col("findings").isNotNull())
    )
