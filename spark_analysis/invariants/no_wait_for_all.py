"""NoWaitForAll: a recovery rules an entry out as soon as enough bookies denied it.

That is when Qw - Qa + 1 different bookies of its write set, in the last fragment stored when the recovery started, denied it, and
the entry before it was decided, or it is the first that the recovery reads. A further answer that comes before the decision was
waited for, and a bookie that never gives it would hold the recovery up. Judged where the entry was decided in the end: a recovery
that failed before may still get answers.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    DENIALS,
    LEDGER_KEY,
    is_in_write_set,
    is_kind,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS
from spark_analysis.invariants.runs import RUN_COLUMNS, RUN_KEY, RUN_KINDS

__all__ = ["NO_WAIT_FOR_ALL"]


def _observe(facts: Facts) -> DataFrame:
    seq, entry, decided = sf.col("seq"), sf.col("entry"), sf.col("decided")
    is_denial = is_kind(Kind.REC_READ_RESP) & sf.col("code").isin(*DENIALS)
    upwards = Window.partitionBy(*RUN_KEY).orderBy("entry")
    entries = (
        facts.run_events.filter(sf.col("run").isNotNull() & is_kind(Kind.REC_READ_RESP, Kind.REC_DECIDE))
        .groupBy(*RUN_KEY, "entry")
        .agg(
            sf.collect_list(sf.when(is_denial, sf.struct("seq", "bookie"))).alias("denials"),
            sf.collect_list(sf.when(is_kind(Kind.REC_READ_RESP), seq)).alias("answers"),
            sf.min(sf.when(is_kind(Kind.REC_DECIDE), seq)).alias("decided"),
        )
        .withColumn("below", sf.when(sf.lag("entry").over(upwards) == entry - 1, sf.lag("decided").over(upwards)))
        .filter(decided.isNotNull() & (sf.size("denials") > 0))
    )
    runs = facts.runs.select(*RUN_KEY, "ensemble", "first_read_entry")
    sizes = facts.ledgers.select(*LEDGER_KEY, "write_quorum_size", "ack_quorum_size")
    counted = sf.filter(
        sf.array_sort("denials"),
        lambda denial: is_in_write_set(denial["bookie"], sf.col("ensemble"), entry, sf.col("write_quorum_size")),
    )
    first = sf.filter(
        "counted",
        lambda denial: (
            ~sf.exists("counted", lambda other: (other["bookie"] == denial["bookie"]) & (other["seq"] < denial["seq"]))
        ),
    )
    needed = (sf.col("write_quorum_size") - sf.col("ack_quorum_size") + 1).cast("int")
    is_next = sf.col("below").isNotNull() | (entry == sf.col("first_read_entry"))
    judged = (
        entries.transform(join_small, runs, on=RUN_KEY, how="inner")
        .transform(join_small, sizes, on=LEDGER_KEY, how="inner")
        .withColumn("counted", counted)
        .withColumn("enough", sf.get(sf.transform(first, lambda denial: denial["seq"]), needed - 1))
        .filter(is_next & (sf.col("enough") < decided))
        .withColumn("since", sf.greatest("enough", "below"))
        .withColumn(
            "waited",
            sf.array_min(sf.filter("answers", lambda answer: (answer > sf.col("since")) & (answer < decided))),
        )
    )
    finding = tell(
        "L3",
        sf.col("waited").isNotNull(),
        decided,
        [sf.col("enough"), sf.col("waited"), decided],
        "recovery by %s could rule entry %d out (event %d), and waited for another answer (event %d) until it did (event %d)",
        sf.col("actor"),
        entry,
        sf.col("since"),
        sf.col("waited"),
        decided,
    )
    return observed(judged, finding)


NO_WAIT_FOR_ALL: Final = Invariant(
    name="NoWaitForAll",
    clauses=("L3",),
    kinds=(*RUN_KINDS, *LEDGER_KINDS),
    columns=(*RUN_COLUMNS, *LEDGER_COLUMNS),
    observe=_observe,
)
