"""LogOneOwner: a deposed owner gets no acknowledgement for what it publishes after its successor has begun.

A successor has begun when its first ledger is in the list. And what is acknowledged lies in a ledger that was listed under the
epoch of its publisher, not above the end that is noted. An acknowledgement that comes late, of what was published before, is
lawful.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.logs import LOG_KEY, LOG_KINDS, LOG_LEDGER_COLUMNS, LOG_LEDGER_KINDS

__all__ = ["LOG_ONE_OWNER"]


def _observe(facts: Facts) -> DataFrame:
    events = facts.log_events
    message = (*LOG_KEY, "epoch", "message")
    published = events.filter(is_kind(Kind.LOG_PUB)).groupBy(*message).agg(sf.min("seq").alias("published_seq"))
    began = (
        events.filter(is_kind(Kind.LOG_APPEND))
        .groupBy(*LOG_KEY)
        .agg(sf.collect_list(sf.struct("seq", "epoch")).alias("begun"))
    )
    later = sf.filter("begun", lambda each: (each["epoch"] > sf.col("epoch")) & (each["seq"] < sf.col("published_seq")))
    acks = events.filter(is_kind(Kind.LOG_ACK)).select(
        *LEDGER_KEY, "log", "epoch", "message", "entry", sf.col("seq").alias("ack_seq")
    )
    acks = join_small(acks, published, on=message, how="left")
    acks = join_small(acks, began, on=LOG_KEY, how="left").withColumn("begun_seq", sf.array_min(later)["seq"])
    ledgers = facts.log_ledgers.select(*LEDGER_KEY, "listed_seq", "listed_epoch", "noted_seq", "noted_entry")
    acks = join_small(acks, ledgers, on=LEDGER_KEY, how="left")
    late = tell(
        "H7",
        sf.col("begun_seq").isNotNull(),
        sf.col("ack_seq"),
        [sf.col("begun_seq"), sf.col("published_seq"), sf.col("ack_seq")],
        "message %d of epoch %d was acknowledged (event %d), and published (event %d) after a later owner had begun (event %d)",
        *(sf.col(name) for name in ("message", "epoch", "ack_seq", "published_seq", "begun_seq")),
    )
    is_listed = (sf.col("listed_epoch") == sf.col("epoch")) & (sf.col("listed_seq") < sf.col("ack_seq"))
    elsewhere = tell(
        "H8",
        ~is_true(is_listed),
        sf.col("ack_seq"),
        [sf.col("ack_seq")],
        "message %d of epoch %d was acknowledged (event %d) in a ledger that is not in the list, or under another epoch",
        *(sf.col(name) for name in ("message", "epoch", "ack_seq")),
    )
    above = tell(
        "H8",
        is_true(sf.col("entry") > sf.col("noted_entry")),
        sf.greatest("ack_seq", "noted_seq"),
        [sf.col("ack_seq"), sf.col("noted_seq")],
        "entry %d was acknowledged (event %d), and entry %d was noted as the end (event %d)",
        *(sf.col(name) for name in ("entry", "ack_seq", "noted_entry", "noted_seq")),
    )
    return observed(acks, late, elsewhere, above)


LOG_ONE_OWNER: Final = Invariant(
    name="LogOneOwner",
    clauses=("H7", "H8"),
    kinds=(*LOG_LEDGER_KINDS, Kind.LOG_PUB, Kind.LOG_ACK),
    columns=(*LOG_LEDGER_COLUMNS, "message", "entry"),
    observe=_observe,
    premise=LOG_KINDS,
)
