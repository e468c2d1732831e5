"""MetadataBeforeUse: an entry is sent only to bookies that the store names for it.

Any version that the store held before counts: a writer that has not learned of another client's change goes on with an older one.
The set of these only grows, so of several adds of an entry to one bookie the first decides.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, ensemble_of, is_in_write_set, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["METADATA_BEFORE_USE"]


def _observe(facts: Facts) -> DataFrame:
    entry, bookie, sent = sf.col("entry"), sf.col("bookie"), sf.col("sent")
    stored = sf.filter("images", lambda image: image["seq"] < sent)
    adds = join_small(facts.first_sends, facts.images, on=LEDGER_KEY, how="inner").withColumn("stored", stored)
    is_named = sf.exists(
        "stored",
        lambda image: is_in_write_set(
            bookie, ensemble_of(image["fragments"], entry), entry, sf.col("write_quorum_size")
        ),
    )
    newest = sf.array_max("stored")
    finding = tell(
        "C8",
        ~is_named,
        sent,
        [newest["seq"], sent],
        "%s sent entry %d to %s (event %d), which no stored metadata names for it; the newest (event %d) has [%s]",
        sf.col("actor"),
        entry,
        bookie,
        sent,
        newest["seq"],
        sf.array_join(ensemble_of(newest["fragments"], entry), ", "),
    )
    return observed(adds.filter(sf.size("stored") > 0), finding)


METADATA_BEFORE_USE: Final = Invariant(
    name="MetadataBeforeUse",
    clauses=("C8",),
    kinds=(Kind.ADD_SEND, *LEDGER_KINDS),
    columns=("seq", "actor", "incarnation", "entry", "bookie", "recovery", "lac", *LEDGER_COLUMNS),
    observe=_observe,
)
