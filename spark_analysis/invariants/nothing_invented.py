"""NothingInvented: recovery writes back only what the writer sent, as it has read it.

A recovery add carries an entry that some client had sent before as an ordinary add, with a content that a bookie
answered to the same run.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    ENTRY_KEY,
    LEDGER_KEY,
    OK,
    is_kind,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.runs import RUN_COLUMNS, RUN_KINDS, run_of_add, starts_of

__all__ = ["NOTHING_INVENTED"]


def _observe(facts: Facts) -> DataFrame:
    seq, content = sf.col("seq"), sf.col("content")
    starts = starts_of(facts.runs)
    adds = facts.events.filter(is_kind(Kind.ADD_SEND))
    originals = adds.filter(~sf.col("recovery")).groupBy(*ENTRY_KEY).agg(sf.min("seq").alias("sent"))
    reads = (
        facts.rare_events.filter(is_kind(Kind.REC_READ_RESP) & (sf.col("code") == OK) & content.isNotNull())
        .groupBy(*ENTRY_KEY, "actor")
        .agg(sf.collect_list(sf.struct("content", "seq")).alias("reads"))
    )
    judged = (
        adds.filter(sf.col("recovery"))
        .select(*ENTRY_KEY, "actor", "seq", "content")
        .transform(join_small, originals, on=ENTRY_KEY, how="left")
        .transform(join_small, reads, on=(*ENTRY_KEY, "actor"), how="left")
        .transform(join_small, starts, on=(*LEDGER_KEY, "actor"), how="left")
        .withColumn("run", run_of_add(seq))
    )
    was_read = sf.exists(
        "reads",
        lambda read: (read["content"] == content) & (read["seq"] > sf.col("run")) & (read["seq"] < seq),
    )
    unsent = tell(
        "B8",
        sf.coalesce(sf.col("sent") > seq, sf.col("sent").isNull()),
        seq,
        [seq],
        "%s wrote entry %d back (event %d), which no writer had sent",
        sf.col("actor"),
        sf.col("entry"),
        seq,
    )
    unread = tell(
        "E10",
        sf.col("run").isNotNull() & content.isNotNull() & ~is_true(was_read),
        seq,
        [sf.col("run"), seq],
        "%s wrote entry %d back (event %d) with a content that no bookie had told it",
        sf.col("actor"),
        sf.col("entry"),
        seq,
    )
    return observed(judged, unsent, unread)


NOTHING_INVENTED: Final = Invariant(
    name="NothingInvented",
    clauses=("B8", "E10"),
    kinds=(*RUN_KINDS, Kind.ADD_SEND),
    columns=RUN_COLUMNS,
    observe=_observe,
)
