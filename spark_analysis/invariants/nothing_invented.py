"""NothingInvented: what a recovery writes back, and what readers get, is what the writer sent.

A recovery add carries an entry that some client had sent before as an ordinary add, with a content that a bookie
answered to the same run. A read delivers a content under which the entry was sent so before.
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


def _sent(facts: Facts) -> DataFrame:
    """Per entry and content: ``sent``, when it was first sent by an ordinary add."""
    adds = facts.of(Kind.ADD_SEND).filter(~sf.col("recovery"))
    return adds.groupBy(*ENTRY_KEY, "content").agg(sf.min("seq").alias("sent"))


def _read(facts: Facts) -> DataFrame:
    """Entries and contents that were read, as observations."""
    seq, entry, sent = sf.col("seq"), sf.col("entry"), sf.col("sent")
    is_read = (sf.col("code") == OK) & sf.col("content").isNotNull()
    contents = _sent(facts).filter(sf.col("content").isNotNull())
    first = contents.groupBy(*ENTRY_KEY).agg(sf.min("sent").alias("first"))
    judged = (
        facts.of(Kind.READ_RESULT)
        .filter(is_read)
        .groupBy(*ENTRY_KEY, "content")
        .agg(sf.min("seq").alias("seq"))
        .transform(join_small, first, on=ENTRY_KEY, how="inner")
        .transform(join_small, contents, on=(*ENTRY_KEY, "content"), how="left")
    )
    unsent = tell(
        "F4",
        (sf.col("first") < seq) & ~is_true(sent < seq),
        seq,
        [sf.col("first"), seq],
        "entry %d was read (event %d) with content %d, under which no writer had sent it (event %d)",
        entry,
        seq,
        sf.col("content"),
        sf.col("first"),
    )
    return observed(judged, unsent)


def _written_back(facts: Facts) -> DataFrame:
    """Adds of recoveries, as observations."""
    seq, content = sf.col("seq"), sf.col("content")
    starts = starts_of(facts.runs)
    adds = facts.of(Kind.ADD_SEND)
    originals = _sent(facts).groupBy(*ENTRY_KEY).agg(sf.min("sent").alias("sent"))
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


def _observe(facts: Facts) -> DataFrame:
    return _written_back(facts).union(_read(facts))


NOTHING_INVENTED: Final = Invariant(
    name="NothingInvented",
    clauses=("B8", "E10", "F4"),
    kinds=(*RUN_KINDS, Kind.ADD_SEND, Kind.READ_RESULT),
    columns=RUN_COLUMNS,
    observe=_observe,
)
