"""RecoveryReads: recovery begins right above what is confirmed, and asks the bookies that would have the entries.

The last fragment is the one stored when the recovery started (REC_START). Entries of earlier fragments are final and
none of its business; a bookie that the recovery itself brought in never had what it is asked for, and its denial
would truncate the ledger. Where a client recovers a ledger more than once, a read may belong to any of its recoveries
begun before. The first read of a recovery is not above the entry that follows the highest last add confirmed that a
fenced bookie told it, or the first of the fragment.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    is_in_write_set,
    is_kind,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS
from spark_analysis.invariants.runs import RUN_COLUMNS, RUN_KINDS

__all__ = ["RECOVERY_READS", "recoveries"]


def recoveries(facts: Facts) -> DataFrame:
    """Per ledger and client: ``runs``, its recoveries: ``seq``, and the last fragment's ``first_entry`` and ``ensemble``."""
    ensemble = sf.split("bookies", ",").alias("ensemble")
    return (
        facts.rare_events.filter(is_kind(Kind.REC_START))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.collect_list(sf.struct("seq", "first_entry", ensemble)).alias("runs"))
    )


def _observe(facts: Facts) -> DataFrame:
    seq, entry = sf.col("seq"), sf.col("entry")
    reads = (
        facts.rare_events.filter(is_kind(Kind.REC_READ_SEND))
        .select(*LEDGER_KEY, "actor", "seq", "entry", "bookie")
        .transform(join_small, recoveries(facts), on=(*LEDGER_KEY, "actor"), how="inner")
        .transform(join_small, facts.ledgers, on=LEDGER_KEY, how="inner")
        .withColumn("runs", sf.filter("runs", lambda run: run["seq"] < seq))
    )
    is_known = sf.size("runs") > 0
    too_low = tell(
        "E1",
        is_known & ~sf.exists("runs", lambda run: entry >= run["first_entry"]),
        seq,
        [seq],
        "recovery by %s read entry %d (event %d), which is not in the last fragment",
        sf.col("actor"),
        entry,
        seq,
    )
    is_asked_rightly = sf.exists(
        "runs", lambda run: is_in_write_set(sf.col("bookie"), run["ensemble"], entry, sf.col("write_quorum_size"))
    )
    misdirected = tell(
        "E2",
        is_known & ~is_asked_rightly,
        seq,
        [seq],
        "recovery by %s asked %s for entry %d (event %d), which is not in the entry's write set",
        sf.col("actor"),
        sf.col("bookie"),
        entry,
        seq,
    )
    first, start, lac = sf.col("first_read"), sf.col("first_entry"), sf.col("fence_lac")
    highest = sf.greatest(sf.coalesce(lac, sf.lit(-1)), start - 1) + 1
    too_high = tell(
        "E1",
        first["entry"] > highest,
        first["seq"],
        [sf.col("run"), first["seq"]],
        "recovery by %s began to read at entry %d (event %d), but nothing vouches for the entries from %d on",
        sf.col("actor"),
        first["entry"],
        first["seq"],
        highest,
    )
    began = observed(facts.runs.filter(first.isNotNull()), too_high)
    return observed(reads, too_low, misdirected).union(began)


RECOVERY_READS: Final = Invariant(
    name="RecoveryReads",
    clauses=("E1", "E2"),
    kinds=(*RUN_KINDS, *LEDGER_KINDS),
    columns=(*RUN_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)
