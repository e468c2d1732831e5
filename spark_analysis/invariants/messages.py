"""Requests and answers at clients, and answers at bookies.

Half of all events are these, and almost all requests are *plain*: sent once, answered once by the bookie, which the client heard
once, by the same code. Those are counted, and only the messages of the others need to be looked at one by one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, is_true

__all__ = ["ANSWERS", "ASKED", "MESSAGE_KINDS", "REQUEST", "SENDS", "doubtful_requests", "messages"]

SENDS: Final = (Kind.ADD_SEND, Kind.FENCE_SEND, Kind.READ_SEND, Kind.REC_READ_SEND)
ANSWERS: Final = (Kind.ADD_RESP, Kind.FENCE_RESP, Kind.READ_RESP, Kind.REC_READ_RESP)
MESSAGE_KINDS: Final = (*SENDS, *ANSWERS, Kind.BK_ANSWER)

REQUEST: Final = (*LEDGER_KEY, "client", "request")
#: What a request asks for.
ASKED: Final = ("bookie", "operation", "entry")


def messages(events: DataFrame) -> DataFrame:
    """Requests and answers at clients, and answers at bookies, in the words of bookies, with ``client`` and ``request``."""
    is_said = is_kind(Kind.BK_ANSWER)
    is_fence = is_kind(Kind.FENCE_SEND, Kind.FENCE_RESP)
    operation = (
        sf.when(is_said, sf.col("operation"))
        .when(is_fence, "fence")
        .when(is_kind(Kind.READ_SEND, Kind.READ_RESP), "read")
        .when(is_kind(Kind.REC_READ_SEND, Kind.REC_READ_RESP), "recovery-read")
        .when(sf.col("recovery"), "write-back")
        .otherwise("add")
    )
    return events.select(
        *LEDGER_KEY,
        *("seq", "kind", "code", "request"),
        sf.when(is_said, sf.col("source")).otherwise(sf.col("actor")).alias("client"),
        sf.when(is_said, sf.col("actor")).otherwise(sf.col("bookie")).alias("bookie"),
        operation.alias("operation"),
        sf.when(is_fence, -1).otherwise(sf.col("entry")).alias("entry"),
    )


def doubtful_requests(events: DataFrame) -> DataFrame:
    """Per ledger with numbered messages: ``has_plain``, whether there are plain requests, and ``doubtful``, the others.

    ``events`` are those of :data:`MESSAGE_KINDS`. Each of the others is a ``client`` and a ``request``.
    """
    seq = sf.col("seq")
    kinds = {"sent": SENDS, "said": (Kind.BK_ANSWER,), "heard": ANSWERS}
    is_plain = is_true(
        (sf.col("messages") == len(kinds))
        & (sf.col("asked_min") == sf.col("asked_max"))
        & (sf.col("sent") < sf.col("said"))
        & (sf.col("said") < sf.col("heard"))
        & (sf.col("codes") == 2)
        & (sf.col("code_min") == sf.col("code_max"))
    )
    return (
        messages(events)
        .filter(sf.col("request").isNotNull())
        .withColumn("asked", sf.xxhash64(*ASKED))
        .groupBy(*REQUEST)
        .agg(
            sf.count(sf.lit(1)).alias("messages"),
            *(sf.min(sf.when(is_kind(*of), seq)).alias(name) for name, of in kinds.items()),
            sf.min("asked").alias("asked_min"),
            sf.max("asked").alias("asked_max"),
            sf.count("code").alias("codes"),
            sf.min("code").alias("code_min"),
            sf.max("code").alias("code_max"),
        )
        .groupBy(*LEDGER_KEY)
        .agg(
            sf.max(is_plain).alias("has_plain"),
            sf.collect_set(sf.when(~is_plain, sf.struct("client", "request"))).alias("doubtful"),
        )
    )
