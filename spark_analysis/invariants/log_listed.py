"""LogListed: what a log's ledgers hold is in its list.

The first ordinary add to a ledger that was made for a log comes after it was appended to the list, and its metadata are deleted
only when it is not in the list: never appended, ended empty, or trimmed.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import LOG_KINDS, LOG_LEDGER_COLUMNS, LOG_LEDGER_KINDS, NEVER

__all__ = ["LOG_LISTED"]


def _observe(facts: Facts) -> DataFrame:
    sent = facts.first_sends.groupBy(*LEDGER_KEY).agg(sf.min("sent").alias("sent_seq"))
    ledgers = join_small(facts.log_ledgers, sent, on=LEDGER_KEY, how="left")
    never = sf.lit(NEVER)
    unlisted = tell(
        "H5",
        is_true(sf.col("sent_seq") < sf.coalesce("listed_seq", never)),
        sf.col("sent_seq"),
        [sf.col("sent_seq")],
        "an entry was sent (event %d) to a ledger that is not in the list",
        sf.col("sent_seq"),
    )
    deleted = tell(
        "H6",
        is_true(
            (sf.col("listed_seq") < sf.col("deleted_seq")) & (sf.coalesce("left_seq", never) > sf.col("deleted_seq"))
        ),
        sf.col("deleted_seq"),
        [sf.col("listed_seq"), sf.col("deleted_seq")],
        "the ledger was deleted (event %d) while it was in the list, since event %d",
        sf.col("deleted_seq"),
        sf.col("listed_seq"),
    )
    return observed(ledgers, unlisted, deleted)


LOG_LISTED: Final = Invariant(
    name="LogListed",
    clauses=("H5", "H6"),
    kinds=(*LOG_LEDGER_KINDS, Kind.ADD_SEND),
    columns=(*LOG_LEDGER_COLUMNS, "actor", "incarnation", "entry", "bookie", "recovery"),
    observe=_observe,
    premise=LOG_KINDS,
)
