"""ReadWithinLac: no entry is returned above the last add confirmed of its reader.

That is the one it had when the read began; whether that was right, LacHonest judges.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, OK, observed, tell
from spark_analysis.invariants.facts import Facts

__all__ = ["READ_WITHIN_LAC"]


def _observe(facts: Facts) -> DataFrame:
    reads = facts.of(Kind.READ_RESULT).filter(sf.col("code") == OK).select(*LEDGER_KEY, "actor", "seq", "entry", "lac")
    entry, lac, seq = sf.col("entry"), sf.col("lac"), sf.col("seq")
    finding = tell(
        "F1",
        entry > lac,
        seq,
        [seq],
        "%s read entry %d (event %d) when its last add confirmed was %d",
        sf.col("actor"),
        entry,
        seq,
        lac,
    )
    return observed(reads, finding)


READ_WITHIN_LAC: Final = Invariant(
    name="ReadWithinLac",
    clauses=("F1",),
    kinds=(Kind.READ_RESULT,),
    columns=("seq", "actor", "entry", "code", "lac"),
    observe=_observe,
)
