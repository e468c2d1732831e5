"""LengthConsistent: every length is the sum of the payloads up to there.

Judged is the length in the header of each entry that an application appended under an id of the writer's own, and the
length that a ledger is closed with, both where every entry up to there was seen on its way. Where the application
gives the ids, an entry may be sent before those below it, whose sizes are not known then: its header is not judged,
nor the length that a recovery takes from it. A client may recover the ledger that it writes; which of the two closes it is not
told, so with given ids neither is judged. A recovery that wrote nothing back has the length from the last entry; where it asked
for that and no bookie gave it, the length is a guess, and not judged.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.closing_runs import creators
from spark_analysis.invariants.expressions import (
    ENTRY_KEY,
    LEDGER_KEY,
    OK,
    is_applied_write,
    is_closed,
    is_kind,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["LENGTH_CONSISTENT"]


def _sums(facts: Facts) -> DataFrame:
    """Per entry that a writer sent: its ``length``, the event (``sent``), and ``total``, the payloads up to it, if known."""
    until_here = Window.partitionBy(*LEDGER_KEY).orderBy("entry").rowsBetween(Window.unboundedPreceding, 0)
    first = sf.min(sf.struct("seq", "length", "size")).alias("first")
    sent = facts.of(Kind.ADD_SEND).filter(~sf.col("recovery")).groupBy(*ENTRY_KEY).agg(first)
    is_whole = sf.count("first.size").over(until_here) == sf.col("entry") + 1
    return sent.select(
        *ENTRY_KEY,
        sf.col("first.length").alias("length"),
        sf.col("first.seq").alias("sent"),
        sf.when(is_whole, sf.sum("first.size").over(until_here)).alias("total"),
    )


def _unmeasured(facts: Facts, writes: DataFrame, recoveries: DataFrame) -> DataFrame:
    """Those of ``writes`` by recoveries that asked for the last entry, and neither were given it nor wrote it back."""
    seq = sf.col("seq")
    closes = (
        writes.select(*LEDGER_KEY, "actor", sf.col("last_entry").alias("entry"), seq.alias("closed"))
        .transform(join_small, recoveries, on=(*LEDGER_KEY, "actor"), how="inner")
        .withColumn("begun", sf.array_max(sf.filter("starts", lambda start: start < sf.col("closed"))))
    )
    reads = facts.of(Kind.READ_SEND, Kind.READ_RESP).filter(is_kind(Kind.READ_SEND) | (sf.col("code") == OK))
    adds = facts.of(Kind.ADD_SEND).filter("recovery")
    return (
        reads.select(*ENTRY_KEY, "actor", "seq", is_kind(Kind.READ_RESP).alias("has"))
        .union(adds.select(*ENTRY_KEY, "actor", "seq", sf.lit(True)))  # noqa: FBT003
        .transform(join_small, closes, on=(*ENTRY_KEY, "actor"), how="inner")
        .filter((seq > sf.col("begun")) & (seq < sf.col("closed")))
        .groupBy(*LEDGER_KEY, sf.col("closed").alias("seq"))
        .agg(sf.max("has").alias("has"))
        .filter("not has")
    )


def _observe(facts: Facts) -> DataFrame:
    sums = _sums(facts)
    given = facts.of(Kind.APP_ADD).groupBy(*ENTRY_KEY).agg(sf.max("given").alias("given"))
    own = given.filter(~sf.col("given"))
    entry, sent = sf.col("entry"), sf.col("sent")
    of_entries = observed(
        join_small(own, sums, on=ENTRY_KEY, how="inner"),
        tell(
            "B6",
            sf.col("length") != sf.col("total"),
            sent,
            [sent],
            "entry %d was sent with length %d (event %d); the payloads up to it have %d bytes",
            entry,
            sf.col("length"),
            sent,
            sf.col("total"),
        ),
    )
    with_given_ids = given.groupBy(*LEDGER_KEY).agg(sf.max("given").alias("given"))
    recoveries = (
        facts.rare_events.filter(is_kind(Kind.REC_START))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.collect_list("seq").alias("starts"))
    )
    seq, end = sf.col("seq"), sf.col("last_entry")
    writes = facts.rare_events.filter(is_applied_write() & is_closed() & (sf.col("cause") == "close"))
    closes = (
        writes.select(*LEDGER_KEY, "actor", "seq", "last_entry", sf.col("length").alias("closed_length"))
        .transform(join_small, creators(facts), on=LEDGER_KEY, how="left")
        .transform(join_small, with_given_ids, on=LEDGER_KEY, how="left")
        .transform(join_small, recoveries, on=(*LEDGER_KEY, "actor"), how="left")
        .filter(~is_true(sf.col("given")) | ((sf.col("actor") == sf.col("creator")) & sf.col("starts").isNull()))
        .withColumn("entry", end)
        .transform(join_small, _unmeasured(facts, writes, recoveries), on=(*LEDGER_KEY, "seq"), how="left_anti")
        .transform(join_small, sums, on=ENTRY_KEY, how="left")
    )
    total = sf.when(end < 0, sf.lit(0)).otherwise(sf.col("total"))
    of_closes = observed(
        closes,
        tell(
            "B6",
            sf.col("closed_length") != total,
            seq,
            [seq],
            "the ledger was closed after entry %d with length %d (event %d); its entries have %d bytes",
            end,
            sf.col("closed_length"),
            seq,
            total,
        ),
    )
    return of_entries.union(of_closes)


LENGTH_CONSISTENT: Final = Invariant(
    name="LengthConsistent",
    clauses=("B6",),
    kinds=(Kind.ADD_SEND, Kind.APP_ADD, Kind.REC_START, Kind.READ_SEND, Kind.READ_RESP, *LEDGER_KINDS),
    columns=("actor", "entry", "length", "size", "recovery", "given", "code", *LEDGER_COLUMNS),
    observe=_observe,
)
