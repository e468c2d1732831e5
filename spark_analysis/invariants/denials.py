"""Requests to read an entry that were denied, and when they were sent.

Of several requests by one client to one bookie for one entry that are under way, the first answer is taken for that to the
oldest. Denials are few, so only what has one is looked at.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import DENIALS, LEDGER_KEY, is_kind, join_small

__all__ = ["DENIAL_COLUMNS", "DENIAL_KINDS", "denied_requests", "sent_before"]

DENIAL_KINDS: Final = (Kind.READ_SEND, Kind.READ_RESP, Kind.REC_READ_SEND, Kind.REC_READ_RESP)
DENIAL_COLUMNS: Final = ("seq", "actor", "entry", "bookie", "code")

_REQUEST: Final = (*LEDGER_KEY, "actor", "entry", "bookie")


def denied_requests(requests: DataFrame) -> DataFrame:
    """One row per denial by a bookie: ledger, ``actor``, ``entry``, ``bookie``, ``sent`` and ``seq``, the two events.

    ``requests`` are the events of :data:`DENIAL_KINDS`.
    """
    is_answer = is_kind(Kind.READ_RESP, Kind.REC_READ_RESP)
    is_denial = is_answer & sf.col("code").isin(*DENIALS)
    asked = requests.select(*_REQUEST, "seq", "code", is_answer.alias("is_answer"))
    denied = requests.filter(is_denial).select(*_REQUEST).distinct()
    paired = sent_before(join_small(asked, denied, on=_REQUEST, how="left_semi"), _REQUEST, sf.col("is_answer"))
    return paired.filter(sf.col("code").isin(*DENIALS) & sf.col("sent").isNotNull()).select(*_REQUEST, "sent", "seq")


def sent_before(rows: DataFrame, key: tuple[str, ...], is_answer: Column) -> DataFrame:
    """The answers in ``rows``, each with ``sent``, the first request with that ``key`` since the answer before; null if none."""
    before = Window.partitionBy(*key).orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    answered = sf.coalesce(sf.max(sf.when(is_answer, sf.col("seq"))).over(before), sf.lit(-1))
    together = Window.partitionBy(*key, "answered")
    sent = sf.min(sf.when(~is_answer, sf.col("seq"))).over(together)
    return rows.withColumn("answered", answered).withColumn("sent", sent).filter(is_answer)
