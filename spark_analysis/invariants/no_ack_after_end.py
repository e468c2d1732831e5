"""NoAckAfterEnd: a writer that failed, closed or was told that it is fenced acknowledges nothing more.

Three things are looked for. After an append of a writer failed, neither it nor a later one is acknowledged. After a
client tried to close the ledger at some entry, whatever came of it, nothing above that is acknowledged to its
application. After its application was told that the ledger is fenced, or that its own close succeeded, nothing is
acknowledged at all: an application is told in the order in which its client decided. An acknowledgement up to an end
that another client set may come late, because a slow writer learns late of what was long decided.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, OK, is_closed, is_kind, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["NO_ACK_AFTER_END"]

_LEDGER_FENCED: Final = -101
_WRITER: Final = (*LEDGER_KEY, "actor")


def _turning_points(facts: Facts) -> DataFrame:
    """Per client of a ledger: when its application was ``told``, the ``ends`` it tried to set, and its ``failures``."""
    seq = sf.col("seq")
    is_failure = is_kind(Kind.APP_FAIL) & (sf.col("entry") >= 0)
    is_told = (is_failure & (sf.col("code") == _LEDGER_FENCED)) | (is_kind(Kind.CLOSE_RESULT) & (sf.col("code") == OK))
    is_close = is_kind(Kind.META_CAS) & (sf.col("cause") == "close") & is_closed()
    return (
        facts.rare_events.filter(is_told | is_close | is_failure)
        .groupBy(*_WRITER)
        .agg(
            sf.min(sf.when(is_told, seq)).alias("told"),
            sf.collect_list(sf.when(is_close, sf.struct("seq", "last_entry"))).alias("ends"),
            sf.collect_list(sf.when(is_failure, sf.struct("seq", "entry", "incarnation"))).alias("failures"),
        )
    )


def _observe(facts: Facts) -> DataFrame:
    entry, seq, told = sf.col("entry"), sf.col("seq"), sf.col("told")
    acks = facts.of(Kind.APP_ACK).select(*_WRITER, "incarnation", "entry", "seq")
    points = _turning_points(facts).filter(told.isNotNull() | (sf.size("ends") > 0) | (sf.size("failures") > 0))
    judged = (
        join_small(acks, points, on=_WRITER, how="inner")
        .withColumn(
            "end", sf.get(sf.filter("ends", lambda end: (end["seq"] < seq) & (entry > end["last_entry"])), sf.lit(0))
        )
        .withColumn(
            "failure",
            sf.get(
                sf.filter(
                    "failures",
                    lambda failure: (
                        (failure["seq"] < seq)
                        & (entry >= failure["entry"])
                        & (failure["incarnation"] == sf.col("incarnation"))
                    ),
                ),
                sf.lit(0),
            ),
        )
    )
    after_told = tell(
        "A7",
        seq > told,
        seq,
        [told, seq],
        "the application was told that its ledger has ended (event %d), and entry %d was acknowledged after that (event %d)",
        told,
        entry,
        seq,
    )
    above_the_end = tell(
        "A7",
        sf.col("end").isNotNull(),
        seq,
        [sf.col("end.seq"), seq],
        "the writer moved to close the ledger after entry %d (event %d), and entry %d was acknowledged after that (event %d)",
        sf.col("end.last_entry"),
        sf.col("end.seq"),
        entry,
        seq,
    )
    after_failure = tell(
        "A6",
        sf.col("failure").isNotNull(),
        seq,
        [sf.col("failure.seq"), seq],
        "entry %d failed (event %d), and entry %d was acknowledged after that (event %d)",
        sf.col("failure.entry"),
        sf.col("failure.seq"),
        entry,
        seq,
    )
    return observed(judged, after_told, above_the_end, after_failure)


NO_ACK_AFTER_END: Final = Invariant(
    name="NoAckAfterEnd",
    clauses=("A6", "A7"),
    kinds=(Kind.APP_ACK, Kind.APP_FAIL, Kind.CLOSE_RESULT, *LEDGER_KINDS),
    columns=("seq", "actor", "incarnation", "entry", "code", *LEDGER_COLUMNS),
    observe=_observe,
)
