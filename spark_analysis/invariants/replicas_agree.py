"""ReplicasAgree: an entry has one content, wherever it is sent and stored.

Judged by the fingerprints of the payloads and the lengths in the headers, over everything that is ever sent and
stored under one id: the writer's adds, a recovery's rewrites, every bookie's copy. The last add confirmed in the
header may differ: a recovery rewrites an entry with its own. A bookie that stores an entry again stores the same.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["REPLICAS_AGREE"]


def _observe(facts: Facts) -> DataFrame:
    written = sf.filter("copies", lambda copy: copy["content_min"].isNotNull())
    contents = facts.entries.select(
        "history",
        "ledger",
        "entry",
        written.alias("written"),
        sf.array_min(sf.transform(written, lambda copy: copy["content_min"])).alias("least"),
        sf.array_max(sf.transform(written, lambda copy: copy["content_max"])).alias("greatest"),
    )
    with_other = sf.filter("written", lambda copy: copy["content_max"] == sf.col("greatest"))
    with_least = sf.filter("written", lambda copy: copy["content_min"] == sf.col("least"))
    least_seq = sf.array_min(sf.transform(with_least, lambda copy: copy["stored_seq"]))
    other_seq = sf.array_min(sf.transform(with_other, lambda copy: copy["stored_seq"]))
    finding = tell(
        "D9",
        sf.col("least") != sf.col("greatest"),
        sf.greatest(least_seq, other_seq),
        [least_seq, other_seq],
        "entry %d was sent or stored with content %d (see event %d) and with content %d (see event %d)",
        sf.col("entry"),
        sf.col("least"),
        least_seq,
        sf.col("greatest"),
        other_seq,
    )
    lengths = contents.withColumn(
        "shortest", sf.array_min(sf.transform("written", lambda copy: copy["length_min"]))
    ).withColumn("longest", sf.array_max(sf.transform("written", lambda copy: copy["length_max"])))
    with_longest = sf.filter("written", lambda copy: copy["length_max"] == sf.col("longest"))
    longest_seq = sf.array_min(sf.transform(with_longest, lambda copy: copy["stored_seq"]))
    other_length = tell(
        "D9",
        sf.col("shortest") != sf.col("longest"),
        longest_seq,
        [longest_seq],
        "entry %d was sent or stored with length %d and with length %d (see event %d)",
        sf.col("entry"),
        sf.col("shortest"),
        sf.col("longest"),
        longest_seq,
    )
    is_again = sf.filter(
        "written",
        lambda copy: (
            copy["bookie"].isNotNull()
            & ((copy["content_min"] != copy["content_max"]) | (copy["length_min"] != copy["length_max"]))
        ),
    )
    again = sf.get(is_again, sf.lit(0))
    stored_otherwise = tell(
        "D14",
        again.isNotNull(),
        again["seen_seq"],
        [again["stored_seq"], again["seen_seq"]],
        "%s stored entry %d (event %d), and again with another content or length (by event %d)",
        again["bookie"],
        sf.col("entry"),
        again["stored_seq"],
        again["seen_seq"],
    )
    return observed(lengths, finding, other_length, stored_otherwise)


REPLICAS_AGREE: Final = Invariant(
    name="ReplicasAgree",
    clauses=("D9", "D14"),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)
