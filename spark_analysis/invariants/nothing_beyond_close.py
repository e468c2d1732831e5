"""NothingBeyondClose: no reader that knows the end of a ledger gets an entry above it.

The metadata that the reader had when the read began says whether it knew the end.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, OK, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["NOTHING_BEYOND_CLOSE"]


def _observe(facts: Facts) -> DataFrame:
    entry, seq, known = sf.col("entry"), sf.col("seq"), sf.col("known")
    ends = (
        facts.images.select(*LEDGER_KEY, sf.explode("images").alias("known"))
        .filter(known["state"] == "CLOSED")
        .withColumn("version", known["version"])
    )
    judged = (
        facts.of(Kind.READ_RESULT)
        .filter(sf.col("code") == OK)
        .select(*LEDGER_KEY, "actor", "seq", "entry", "version")
        .transform(join_small, ends, on=(*LEDGER_KEY, "version"), how="inner")
        .filter(known["seq"] < seq)
    )
    finding = tell(
        "B5",
        entry > known["last_entry"],
        seq,
        [known["seq"], seq],
        "%s read entry %d (event %d) of a ledger that it knew to be closed after entry %d (event %d)",
        sf.col("actor"),
        entry,
        seq,
        known["last_entry"],
        known["seq"],
    )
    return observed(judged, finding)


NOTHING_BEYOND_CLOSE: Final = Invariant(
    name="NothingBeyondClose",
    clauses=("B5",),
    kinds=(Kind.READ_RESULT, *LEDGER_KINDS),
    columns=("actor", "entry", "code", *LEDGER_COLUMNS),
    observe=_observe,
)
