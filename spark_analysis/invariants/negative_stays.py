"""NegativeStays: what recovery ruled out stays absent from the bookies whose word it took.

Given that fences hold, this fails only where a bookie denied an entry without being fenced, or lost its fence before
it was durable. One that collected the ledger and crashed is not held to its word any more.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import ENTRY_KEY, LEDGER_KEY, is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS, fences

__all__ = ["NEGATIVE_STAYS"]


def _observe(facts: Facts) -> DataFrame:
    forgotten = (
        fences(facts.rare_events)
        .groupBy(*LEDGER_KEY)
        .agg(sf.collect_list(sf.struct("bookie", "forgotten", "fences")).alias("fenced"))
    )
    decided = (
        facts.rare_events.filter(is_kind(Kind.REC_DECIDE, Kind.FENCE_LOST) & (sf.col("verdict") == "negative"))
        .select(*ENTRY_KEY, "seq", "actor", sf.split("bookies", ",").alias("deniers"))
        .transform(join_small, facts.entries, on=ENTRY_KEY, how="left")
        .transform(join_small, forgotten, on=LEDGER_KEY, how="left")
    )

    def has_forgotten(copy: Column) -> Column:
        """Whether the bookie broke its word before it stored: it is not held to it any more.

        Its denial may have been under way when it lost its fence; then it has no other one when the entry is ruled out.
        """
        decided_at, stored_at = sf.col("seq"), copy["ordinary_seq"]

        def is_lost(bookie: Column, lost: Column) -> Column:
            is_fenced_again = sf.exists(bookie["fences"], lambda fence: fence["seq"].between(lost, decided_at))
            return (lost < stored_at) & ~is_fenced_again

        return is_true(
            sf.exists(
                "fenced",
                lambda bookie: (
                    (bookie["bookie"] == copy["bookie"])
                    & sf.exists(bookie["forgotten"], lambda lost: is_lost(bookie, lost))
                ),
            )
        )

    storing = sf.filter(
        "copies",
        lambda copy: (
            sf.array_contains("deniers", copy["bookie"]) & (copy["ordinary_seq"] > sf.col("seq")) & ~has_forgotten(copy)
        ),
    )
    judged = decided.withColumn("copy", sf.get(storing, sf.lit(0)))
    copy = sf.col("copy")
    finding = tell(
        "E5",
        copy.isNotNull(),
        copy["ordinary_seq"],
        [sf.col("seq"), copy["ordinary_seq"]],
        "recovery by %s ruled entry %d out on the word of %s among others (event %d), which stored it after that (event %d)",
        sf.col("actor"),
        sf.col("entry"),
        copy["bookie"],
        sf.col("seq"),
        copy["ordinary_seq"],
    )
    return observed(judged, finding)


NEGATIVE_STAYS: Final = Invariant(
    name="NegativeStays",
    clauses=("E5",),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS, Kind.REC_DECIDE, Kind.FENCE_SET, Kind.FENCE_LOST, Kind.BK_GC, Kind.BK_CRASH),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS, "verdict", "bookies"),
    observe=_observe,
)
