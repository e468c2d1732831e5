"""RecoveriesAgree: a ledger has one end, decided once, and everybody is told the same.

Everything that shows an end has to show the same last entry and the same length: the metadata write that closed the
ledger, every later read of the metadata, and what writers and recovering clients told their applications. Besides,
only one write may close the ledger, and no later write may open it again; re-replication of a closed ledger (cause
``rereplicate``) may change its ensembles, not its end. A recovery forced on a closed ledger would be reported: this
history format has no mark for it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
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
from spark_analysis.invariants.relations import LEDGER_KINDS

__all__ = ["RECOVERIES_AGREE"]


def _observe(facts: Facts) -> DataFrame:
    is_seen_closed = is_stored_metadata() & is_closed()
    is_told_closed = is_kind(Kind.OPEN_RESULT) & is_closed() & (sf.col("code") == OK)
    is_told_end = is_told_closed | (is_kind(Kind.CLOSE_RESULT) & (sf.col("code") == OK))
    is_close = is_applied_write() & is_closed() & (sf.col("cause") == "close")
    is_reopened = is_stored_metadata() & ~is_closed()
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
            sf.min(sf.when(is_seen_closed, sf.struct("version", "seq"))).alias("closed"),
            sf.max(sf.when(is_reopened, sf.struct("version", "seq"))).alias("open"),
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
    reopening = tell(
        "B2",
        sf.col("open.version") > sf.col("closed.version"),
        sf.col("open.seq"),
        [sf.col("closed.seq"), sf.col("open.seq")],
        "version %d is closed (event %d), version %d is not (event %d)",
        *(sf.col(f"{which}.{name}") for which in ("closed", "open") for name in ("version", "seq")),
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
    return observed(ledgers, disagreement, reopening, second_close)


RECOVERIES_AGREE: Final = Invariant(
    name="RecoveriesAgree",
    clauses=("B1", "B2", "B3"),
    kinds=(*LEDGER_KINDS, Kind.OPEN_RESULT, Kind.CLOSE_RESULT),
    columns=("seq", "code", "cause", "outcome", "version", "state", "last_entry", "length"),
    observe=_observe,
)
