"""Reads of an application that were told that there is no such entry, and whether that proves anything.

It does if the reader asked the ensemble that the store names for the entry, and fewer than Qa bookies ever lost it. A read began
with the first request since the last answer to one of the same client for that entry.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.denials import sent_before
from spark_analysis.invariants.expressions import (
    DENIALS,
    ENTRY_KEY,
    LEDGER_KEY,
    ensemble_of,
    is_kind,
    is_true,
    join_small,
)
from spark_analysis.invariants.images import image_at

__all__ = ["READ_KINDS", "denied_reads"]

READ_KINDS: Final = (Kind.READ_SEND, Kind.READ_RESULT)

_READ: Final = (*ENTRY_KEY, "actor")


def _losses(losses: DataFrame) -> DataFrame:
    """Per entry: ``lost``, the first loss at each bookie that lost it."""
    return (
        losses.groupBy(*ENTRY_KEY, "actor")
        .agg(sf.min("seq").alias("seq"))
        .groupBy(*ENTRY_KEY)
        .agg(sf.collect_list("seq").alias("lost"))
    )


def denied_reads(reads: DataFrame, losses: DataFrame, images: DataFrame) -> DataFrame:
    """One row per denial of which the beginning is known: the entry, ``actor``, ``sent`` and ``seq``, and ``is_conclusive``.

    ``reads`` are the events of :data:`READ_KINDS`, ``losses`` those by which bookies lost entries.
    """
    entry, seq = sf.col("entry"), sf.col("seq")
    is_result = is_kind(Kind.READ_RESULT)
    asked = reads.select(*_READ, "seq", "code", "version", is_result.alias("is_answer"))
    denied = reads.filter(is_result & sf.col("code").isin(*DENIALS)).select(*_READ).distinct()
    used = sf.get(
        sf.filter("images", lambda image: (image["version"] == sf.col("version")) & (image["seq"] < seq)), sf.lit(0)
    )
    lost = sf.coalesce(sf.size(sf.filter("lost", lambda loss: loss < seq)), sf.lit(0))
    is_same = ensemble_of(sf.col("stored.fragments"), entry) == ensemble_of(sf.col("used.fragments"), entry)
    return (
        sent_before(join_small(asked, denied, on=_READ, how="left_semi"), _READ, sf.col("is_answer"))
        .filter(sf.col("code").isin(*DENIALS) & sf.col("sent").isNotNull())
        .transform(join_small, images, on=LEDGER_KEY, how="inner")
        .transform(join_small, _losses(losses), on=ENTRY_KEY, how="left")
        .withColumn("stored", image_at(seq))
        .withColumn("used", used)
        .select(
            *_READ,
            "sent",
            "seq",
            is_true(is_same & (sf.greatest(lost, sf.lit(0)) < sf.col("ack_quorum_size"))).alias("is_conclusive"),
        )
    )
