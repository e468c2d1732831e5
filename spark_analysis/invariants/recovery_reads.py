"""RecoveryReads: recovery asks for the entries of the last fragment only, and asks those who would have them.

The last fragment is the one stored when the recovery started (REC_START). Entries of earlier fragments are final and none of its
business; a bookie that the recovery itself brought in never had what it is asked for, and its denial would truncate the
ledger. Where a client recovers a ledger more than once, a read may belong to any of its recoveries begun before.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import CheckClass, Invariant
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
        is_known & ~is_asked_rightly,
        seq,
        [seq],
        "recovery by %s asked %s for entry %d (event %d), which is not in the entry's write set",
        sf.col("actor"),
        sf.col("bookie"),
        entry,
        seq,
    )
    return observed(reads, too_low, misdirected)


RECOVERY_READS: Final = Invariant(
    name="RecoveryReads",
    statement="Recovery reads entries of the last stored fragment only, from the bookies of their write sets.",
    formula="E1, E2",
    check_class=CheckClass.JOINED,
    kinds=(Kind.REC_START, Kind.REC_READ_SEND, *LEDGER_KINDS),
    columns=("actor", "entry", "bookie", "first_entry", "bookies", *LEDGER_COLUMNS),
    observe=_observe,
)
