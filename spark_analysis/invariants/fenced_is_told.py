"""FencedIsTold: a writer that a bookie called fenced confirms nothing more, and says that it is fenced.

What ends a writer is the first refusal of an ordinary add by a bookie of the entry's write set under the stored metadata, if the
entry had no Qa good answers then. What had its quorum before, with all below it, may be acknowledged later. And the first append
that fails after it fails with that, unless the writer had ended otherwise before: by a close, a metadata write that did not
succeed, or an earlier failure.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    ENTRY_KEY,
    LEDGER_KEY,
    ensemble_of,
    is_in_write_set,
    is_kind,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.images import image_at
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["FENCED_IS_TOLD"]

FENCED: Final = -101

_WRITER: Final = (*LEDGER_KEY, "actor", "incarnation")


def _had_quorum(seq: Column) -> Column:
    """Whether Qa bookies had given good answers to ordinary adds of the entry before ``seq``."""
    good = sf.filter("copies", lambda copy: copy["bookie"].isNotNull() & (copy["answer_seq"] < seq))
    return is_true(sf.size(good) >= sf.col("ack_quorum_size"))


def _ends(facts: Facts) -> DataFrame:
    """Per ledger and client: ``ends``, what lets its appends fail with another error than that it is fenced."""
    is_end = is_kind(Kind.CLOSE_START) | (is_kind(Kind.META_CAS) & (sf.col("outcome") != "ok"))
    return facts.rare_events.filter(is_end).groupBy(*LEDGER_KEY, "actor").agg(sf.collect_list("seq").alias("ends"))


def _refusals(facts: Facts) -> DataFrame:
    """Per writer that was refused as fenced, and had not ended before: ``refused``, the event."""
    seq, entry = sf.col("seq"), sf.col("entry")
    fails = (
        facts.rare_events.filter(is_kind(Kind.APP_FAIL))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.min("seq").alias("failed"))
    )
    refused = facts.of(Kind.ADD_RESP).filter(
        (sf.col("code") == FENCED) & ~sf.col("recovery") & sf.col("incarnation").isNotNull()
    )
    copies = facts.entries.select(*ENTRY_KEY, "copies")
    is_over = is_true(sf.exists("ends", lambda end: end < seq)) | is_true(sf.col("failed") < seq)
    return (
        refused.select(*_WRITER, "entry", "bookie", "seq")
        .transform(join_small, facts.images, on=LEDGER_KEY, how="inner")
        .transform(join_small, copies, on=ENTRY_KEY, how="left")
        .transform(join_small, _ends(facts), on=(*LEDGER_KEY, "actor"), how="left")
        .transform(join_small, fails, on=(*LEDGER_KEY, "actor"), how="left")
        .withColumn("ensemble", ensemble_of(image_at(seq)["fragments"], entry))
        .filter(
            is_in_write_set(sf.col("bookie"), sf.col("ensemble"), entry, sf.col("write_quorum_size"))
            & ~_had_quorum(seq)
            & ~is_over
        )
        .groupBy(*_WRITER)
        .agg(sf.min("seq").alias("refused"), sf.max("ack_quorum_size").alias("ack_quorum_size"))
    )


def _acknowledged(facts: Facts, refusals: DataFrame) -> DataFrame:
    """Entries that were acknowledged after the refusal, as observations."""
    refused = sf.col("refused")
    first_open = (
        join_small(refusals, facts.entries.select(*ENTRY_KEY, "copies"), on=LEDGER_KEY, how="inner")
        .filter(~_had_quorum(refused))
        .groupBy(*_WRITER, "refused")
        .agg(sf.min("entry").alias("first_open"))
    )
    acks = facts.of(Kind.APP_ACK).select(*_WRITER, "entry", "seq")
    judged = join_small(acks, first_open, on=_WRITER, how="inner").filter(sf.col("seq") > refused)
    finding = tell(
        "A12",
        sf.col("entry") >= sf.col("first_open"),
        sf.col("seq"),
        [refused, sf.col("seq")],
        "entry %d was acknowledged to the application of %s (event %d), to which a bookie had said that the ledger is fenced "
        "(event %d)",
        sf.col("entry"),
        sf.col("actor"),
        sf.col("seq"),
        refused,
    )
    return observed(judged, finding)


def _failed(facts: Facts, refusals: DataFrame) -> DataFrame:
    """The first failure after the refusal, as observations."""
    refused, first = sf.col("refused"), sf.col("first")
    judged = (
        facts.rare_events.filter(is_kind(Kind.APP_FAIL))
        .select(*_WRITER, "entry", "seq", "code")
        .transform(join_small, refusals, on=_WRITER, how="inner")
        .filter(sf.col("seq") > refused)
        .groupBy(*_WRITER, "refused")
        .agg(sf.min(sf.struct("seq", "entry", "code")).alias("first"))
        .transform(join_small, _ends(facts), on=(*LEDGER_KEY, "actor"), how="left")
        .filter(~is_true(sf.exists("ends", lambda end: end < sf.col("first.seq"))))
    )
    finding = tell(
        "A12",
        first["code"] != FENCED,
        first["seq"],
        [refused, first["seq"]],
        "the application of %s was told that entry %d failed with code %d (event %d); a bookie had said that the ledger is "
        "fenced (event %d)",
        sf.col("actor"),
        first["entry"],
        first["code"],
        first["seq"],
        refused,
    )
    return observed(judged, finding)


def _observe(facts: Facts) -> DataFrame:
    refusals = _refusals(facts)
    return _acknowledged(facts, refusals).union(_failed(facts, refusals))


FENCED_IS_TOLD: Final = Invariant(
    name="FencedIsTold",
    clauses=("A12",),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS, Kind.APP_FAIL, Kind.CLOSE_START),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS, "incarnation"),
    observe=_observe,
)
