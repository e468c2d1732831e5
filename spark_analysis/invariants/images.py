"""What the store held of each ledger, version after version, for clauses that ask what it held at some moment."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, is_stored_metadata

__all__ = ["image_at", "images"]


def images(rare: DataFrame) -> DataFrame:
    """Per ledger of which metadata is known: its sizes, ``images`` and ``deletions``.

    ``images`` has every version that was seen stored, with ``seq``, the first event that shows it, ``version``, ``state``,
    ``fragments``, ``last_entry`` and ``length``; ``deletions`` are the events.
    """
    sizes = ("ensemble_size", "write_quorum_size", "ack_quorum_size")
    is_deletion = is_kind(Kind.META_CAS) & (sf.col("outcome") == "ok") & (sf.col("cause") == "delete")
    shown = sf.struct("version", "seq", "state", "fragments", "last_entry", "length")
    return (
        rare.filter(is_stored_metadata() | is_deletion)
        .groupBy(*LEDGER_KEY, "version", is_deletion.alias("is_deletion"))
        .agg(
            *(sf.max(size).alias(size) for size in sizes),
            sf.min(sf.struct("seq", "state", "fragments", "last_entry", "length")).alias("first"),
        )
        .select(*LEDGER_KEY, *sizes, "version", "is_deletion", "first.*")
        .groupBy(*LEDGER_KEY)
        .agg(
            *(sf.max(size).alias(size) for size in sizes),
            sf.collect_list(sf.when(~sf.col("is_deletion"), shown)).alias("images"),
            sf.collect_list(sf.when(sf.col("is_deletion"), sf.col("seq"))).alias("deletions"),
        )
    )


def image_at(seq: Column) -> Column:
    """Of a row of :func:`images`: the newest image stored before ``seq``, null where the ledger was deleted then."""
    before = sf.filter("images", lambda image: image["seq"] < seq)
    newest = sf.array_max(before)
    is_deleted = sf.exists("deletions", lambda deletion: (deletion < seq) & (deletion > newest["seq"]))
    return sf.when(~is_deleted, newest)
