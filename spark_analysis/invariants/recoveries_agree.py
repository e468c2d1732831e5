"""RecoveriesAgree: a ledger has one end, decided once, and everybody is told the same.

Everything that shows an end has to show the same last entry and the same length: the metadata write that closed the
ledger, every later read of the metadata, and what writers and recovering clients told their applications. Besides,
only one write may close the ledger, and no later write may open it again; re-replication of a closed ledger (cause
``rereplicate``) may change its ensembles, not its end. A recovery forced on a closed ledger would be reported: this
history format has no mark for it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    OK,
    is_applied_write,
    is_closed,
    is_kind,
    is_stored_metadata,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["RECOVERIES_AGREE"]


def _ends(facts: Facts) -> DataFrame:
    """What the store, and the results of calls, tell of the ends of ledgers, as observations."""
    is_seen_closed = is_stored_metadata() & is_closed()
    is_told_closed = is_kind(Kind.OPEN_RESULT) & is_closed() & (sf.col("code") == OK)
    is_told_end = is_told_closed | (is_kind(Kind.CLOSE_RESULT) & (sf.col("code") == OK))
    is_close = is_applied_write() & is_closed() & (sf.col("cause") == "close")
    end = sf.when(is_seen_closed | is_told_end, sf.struct("last_entry", "length", "seq"))
    ledgers = (
        facts.rare_events.filter(is_kind(*LEDGER_KINDS, Kind.OPEN_RESULT, Kind.CLOSE_RESULT))
        .groupBy(*LEDGER_KEY)
        .agg(
            sf.min(end).alias("least"),
            sf.max(end).alias("greatest"),
            sf.count_if(is_close).alias("closes"),
            sf.min(sf.when(is_close, sf.col("seq"))).alias("first_close"),
            sf.max(sf.when(is_close, sf.col("seq"))).alias("last_close"),
        )
        .filter(sf.col("least").isNotNull())
    )
    least, greatest = sf.col("least.seq"), sf.col("greatest.seq")
    is_same_end = (sf.col("least.last_entry") == sf.col("greatest.last_entry")) & (
        sf.col("least.length") == sf.col("greatest.length")
    )
    disagreement = tell(
        "B3",
        ~is_same_end,
        sf.greatest(least, greatest),
        [least, greatest],
        "the end is entry %d, length %d (event %d), but also entry %d, length %d (event %d)",
        *(sf.col(f"{which}.{name}") for which in ("least", "greatest") for name in ("last_entry", "length", "seq")),
    )
    second_close = tell(
        "B1",
        sf.col("closes") > 1,
        sf.col("last_close"),
        [sf.col("first_close"), sf.col("last_close")],
        "%d metadata writes closed the ledger (events %d to %d)",
        sf.col("closes"),
        sf.col("first_close"),
        sf.col("last_close"),
    )
    return observed(ledgers, disagreement, second_close)


def _after_closing(facts: Facts) -> DataFrame:
    """The first version of each ledger that is closed, and those after it, as observations."""
    closed, now = sf.col("closed"), sf.col("now")

    def kept(image: Column) -> Column:
        firsts = sf.transform(image["fragments"], lambda fragment: fragment["first_entry"])
        return sf.struct(image["state"], image["last_entry"], image["length"], firsts)

    first = sf.array_min(sf.filter("images", lambda image: image["state"] == "CLOSED"))
    judged = (
        facts.images.withColumn("closed", first)
        .filter(closed.isNotNull())
        .select(*LEDGER_KEY, "closed", sf.explode("images").alias("now"))
        .filter(now["version"] >= closed["version"])
    )
    changed = tell(
        "B2",
        kept(now) != kept(closed),
        now["seq"],
        [closed["seq"], now["seq"]],
        "version %d is closed (event %d) after entry %d, length %d; version %d is %s (event %d) after entry %d, length %d, or "
        "has other fragments",
        *(closed[name] for name in ("version", "seq", "last_entry", "length")),
        *(now[name] for name in ("version", "state", "seq", "last_entry", "length")),
    )
    return observed(judged, changed)


def _observe(facts: Facts) -> DataFrame:
    return _ends(facts).union(_after_closing(facts))


RECOVERIES_AGREE: Final = Invariant(
    name="RecoveriesAgree",
    clauses=("B1", "B2", "B3"),
    kinds=(*LEDGER_KINDS, Kind.OPEN_RESULT, Kind.CLOSE_RESULT),
    columns=("code", *LEDGER_COLUMNS),
    observe=_observe,
)
