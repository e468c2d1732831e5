"""FailureIsNoDenial: opening a ledger fails with the claim that it does not exist only if it does not.

It is stored when the call begins, and not deleted before the call ends. A denial of an entry is no reason at all. Of several
openings by one client the first answer is taken for that to the first.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.denials import sent_before
from spark_analysis.invariants.expressions import (
    DENIALS,
    LEDGER_KEY,
    NO_SUCH_LEDGER,
    is_kind,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.images import image_at
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["FAILURE_IS_NO_DENIAL"]

_CALL: Final = (*LEDGER_KEY, "actor")


def _observe(facts: Facts) -> DataFrame:
    seq, sent, code = sf.col("seq"), sf.col("sent"), sf.col("code")
    calls = facts.rare_events.filter(is_kind(Kind.OPEN_START, Kind.OPEN_RESULT)).select(
        *_CALL, "seq", "code", is_kind(Kind.OPEN_RESULT).alias("is_answer")
    )
    stored = sf.col("stored")
    judged = (
        sent_before(calls, _CALL, sf.col("is_answer"))
        .transform(join_small, facts.images, on=LEDGER_KEY, how="left")
        .withColumn("stored", image_at(sent))
        .withColumn("deleted", sf.exists("deletions", lambda deletion: (deletion > sent) & (deletion < seq)))
    )
    denied = tell(
        "L8",
        code.isin(*DENIALS),
        seq,
        [sent, seq],
        "%s was told with code %d why it cannot open the ledger (event %d)",
        sf.col("actor"),
        code,
        seq,
    )
    missing = tell(
        "L8",
        (code == NO_SUCH_LEDGER) & stored.isNotNull() & ~sf.col("deleted"),
        seq,
        [stored["seq"], sent, seq],
        "%s was told that the ledger does not exist (event %d), which was stored (event %d) when it began to open it (event %d)",
        sf.col("actor"),
        seq,
        stored["seq"],
        sent,
    )
    return observed(judged, denied, missing)


FAILURE_IS_NO_DENIAL: Final = Invariant(
    name="FailureIsNoDenial",
    clauses=("L8",),
    kinds=(Kind.OPEN_START, Kind.OPEN_RESULT, *LEDGER_KINDS),
    columns=("actor", "code", *LEDGER_COLUMNS),
    observe=_observe,
)
