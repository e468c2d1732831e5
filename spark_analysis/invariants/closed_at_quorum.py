"""ClosedAtQuorum: every entry of a closed ledger is on an ack quorum of its write set, acknowledged or not.

What makes a closed ledger survive Qa - 1 losses. Judged at every moment from the closing write on, under the metadata stored
then, less the bookies that ever lost the entry. Deleted ledgers owe nothing, and where bookies recorded nothing of what they
store, nothing can be said. Below the end there may be an entry of which nothing is known at all.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.held import COPY_COLUMNS, COPY_KINDS, recorded
from spark_analysis.invariants.left_open import OPEN_COLUMNS, OPEN_KINDS

__all__ = ["CLOSED_AT_QUORUM"]


def _known(facts: Facts) -> DataFrame:
    """The entries of closed ledgers of which anything is known, as observations."""
    at, held = sf.col("at"), sf.col("held")
    wanted = sf.col("ack_quorum_size") - sf.col("lost")
    too_few = tell(
        "B4",
        held < wanted,
        at,
        sf.concat(sf.array(sf.col("image.seq"), at), sf.col("holders")),
        "entry %d is on %d bookies of its write set, not %d, and bookies lost %d copies (event %d); the ledger is closed after "
        "entry %d (event %d)",
        sf.col("entry"),
        held,
        sf.col("ack_quorum_size"),
        sf.col("lost"),
        at,
        sf.col("image.last_entry"),
        sf.col("image.seq"),
    )
    return observed(facts.held_entries.filter("is_inside"), too_few)


def _unknown(facts: Facts) -> DataFrame:
    """Closed ledgers with the first entry of which nothing is known, as observations."""
    entry, missing, closed = sf.col("entry"), sf.coalesce("missing", sf.lit(0)), sf.col("closed")
    below = sf.coalesce("entry_below", sf.lit(-1))
    first = (
        facts.entries.filter(entry >= 0)
        .groupBy(*LEDGER_KEY)
        .agg(
            sf.least(sf.min(sf.when(below < entry - 1, sf.greatest(below, sf.lit(-1)) + 1)), sf.max(entry) + 1).alias(
                "missing"
            )
        )
    )
    ends = sf.filter("images", lambda image: image["state"] == "CLOSED")
    judged = (
        facts.images.withColumn("closed", sf.explode(ends))
        .transform(join_small, recorded(facts.entries), on=("history",), how="left_semi")
        .transform(join_small, first, on=LEDGER_KEY, how="left")
    )
    unheard = tell(
        "B4",
        missing <= closed["last_entry"],
        closed["seq"],
        [closed["seq"]],
        "closed after entry %d (event %d), but entry %d was never sent nor stored",
        closed["last_entry"],
        closed["seq"],
        missing,
    )
    return observed(judged, unheard)


def _observe(facts: Facts) -> DataFrame:
    left_open = facts.open_ends.select(*LEDGER_KEY, "findings")
    return _known(facts).union(_unknown(facts)).union(left_open)


CLOSED_AT_QUORUM: Final = Invariant(
    name="ClosedAtQuorum",
    clauses=("B4",),
    kinds=(*COPY_KINDS, *OPEN_KINDS),
    columns=(*COPY_COLUMNS, *OPEN_COLUMNS),
    observe=_observe,
)
