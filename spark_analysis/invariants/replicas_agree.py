"""ReplicasAgree: an entry has one content, wherever it is sent and stored.

Judged by the fingerprints of the payloads and the lengths in the headers, over everything that is ever sent and
stored under one id: the writer's adds, a recovery's rewrites, every bookie's copy. The last add confirmed in the
header may differ: a recovery rewrites an entry with its own. A bookie that stores an entry again stores the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS, ENTRY_KINDS, LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["REPLICAS_AGREE"]


def _observe(facts: Facts) -> DataFrame:
    least, greatest = sf.col("content_least"), sf.col("content_most")
    shortest, longest = sf.col("length_least"), sf.col("length_most")

    def first(is_meant: Callable[[Column], Column]) -> Column:
        """When the first of those copies was sent or stored. Only looked at where something is wrong."""
        meant = sf.filter("copies", lambda copy: copy["content_min"].isNotNull() & is_meant(copy))
        return sf.array_min(sf.transform(meant, lambda copy: copy["stored_seq"]))

    least_seq = first(lambda copy: copy["content_min"] == least)
    other_seq = first(lambda copy: copy["content_max"] == greatest)
    finding = tell(
        "D9",
        least != greatest,
        sf.greatest(least_seq, other_seq),
        [least_seq, other_seq],
        "entry %d was sent or stored with content %d (see event %d) and with content %d (see event %d)",
        sf.col("entry"),
        least,
        least_seq,
        greatest,
        other_seq,
    )
    longest_seq = first(lambda copy: copy["length_max"] == longest)
    other_length = tell(
        "D9",
        shortest != longest,
        longest_seq,
        [longest_seq],
        "entry %d was sent or stored with length %d and with length %d (see event %d)",
        sf.col("entry"),
        shortest,
        longest,
        longest_seq,
    )
    twofold = sf.filter(
        "copies",
        lambda copy: (
            (copy["bookie"].isNotNull() & copy["content_min"].isNotNull())
            & ((copy["content_min"] != copy["content_max"]) | (copy["length_min"] != copy["length_max"]))
        ),
    )
    again = sf.get(twofold, sf.lit(0))
    stored_otherwise = tell(
        "D14",
        sf.col("is_twofold"),
        again["seen_seq"],
        [again["stored_seq"], again["seen_seq"]],
        "%s stored entry %d (event %d), and again with another content or length (by event %d)",
        again["bookie"],
        sf.col("entry"),
        again["stored_seq"],
        again["seen_seq"],
    )
    return observed(facts.entries, finding, other_length, stored_otherwise)


REPLICAS_AGREE: Final = Invariant(
    name="ReplicasAgree",
    clauses=("D9", "D14"),
    kinds=(*ENTRY_KINDS, *LEDGER_KINDS),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)
