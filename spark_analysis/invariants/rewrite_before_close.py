"""RewriteBeforeClose: recovery closes a ledger only when all it read is on an ack quorum of what it stores.

For each entry from the first recovery read of a run to the end at which it closed the ledger: Qa different bookies of
its write set, in the fragments that the closing write stores, told this run that they stored its recovery add.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.closing_runs import CLOSING_COLUMNS, CLOSING_KINDS, closing_runs
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    OK,
    ensemble_of,
    is_in_write_set,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import ENTRY_COLUMNS
from spark_analysis.invariants.runs import RUN_KEY

__all__ = ["REWRITE_BEFORE_CLOSE"]


def _observe(facts: Facts) -> DataFrame:
    closed = closing_runs(facts).filter(sf.col("close").isNotNull() & sf.col("first_read").isNotNull())
    entry, seq = sf.col("entry"), sf.col("seq")
    answers = (
        facts.of(Kind.ADD_RESP)
        .filter(sf.col("recovery") & (sf.col("code") == OK))
        .select(*LEDGER_KEY, "actor", "entry", "bookie", "seq")
    )
    is_placed = is_in_write_set(
        sf.col("bookie"), ensemble_of(sf.col("close.fragments"), entry), entry, sf.col("write_quorum_size")
    )
    is_owed = entry.between(sf.col("first_read_entry"), sf.col("close.last_entry"))
    safe = (
        join_small(answers, closed, on=(*LEDGER_KEY, "actor"), how="inner")
        .filter((seq > sf.col("run")) & (seq < sf.col("close.seq")) & is_owed & is_placed)
        .groupBy(*RUN_KEY, "entry", "ack_quorum_size")
        .agg(sf.count_distinct("bookie").alias("bookies"))
        .filter(sf.col("bookies") >= sf.col("ack_quorum_size"))
        .groupBy(*RUN_KEY)
        .agg(sf.array_sort(sf.collect_list("entry")).alias("safe"))
    )
    first, end, at = sf.col("first_read_entry"), sf.col("close.last_entry"), sf.col("close.seq")
    # The safe entries that follow each other from the first read on; the one after them is not safe.
    in_a_row = sf.filter(sf.transform("safe", lambda entry, index: entry - index), lambda start: start == first)
    missing = first + sf.when(sf.col("safe").isNotNull(), sf.size(in_a_row)).otherwise(sf.lit(0))
    judged = join_small(closed, safe, on=RUN_KEY, how="left").withColumn("missing", missing)
    finding = tell(
        "E6",
        sf.col("missing") <= end,
        at,
        [at],
        "recovery by %s closed the ledger after entry %d (event %d), and had not %d good answers to its rewrite of entry %d",
        sf.col("actor"),
        end,
        at,
        sf.col("ack_quorum_size"),
        sf.col("missing"),
    )
    return observed(judged, finding)


REWRITE_BEFORE_CLOSE: Final = Invariant(
    name="RewriteBeforeClose",
    clauses=("E6",),
    kinds=(*CLOSING_KINDS, Kind.ADD_RESP),
    columns=(*CLOSING_COLUMNS, *ENTRY_COLUMNS),
    observe=_observe,
)
