"""FencedStaysFenced: a fence holds for ever, and is what the bookie says it is.

A bookie that made a fence durable stores no ordinary add of that ledger after that, across restarts; one whose fence
is in memory alone stores none until it crashes. A history may say that a bookie forgot a fence, and one that collected the ledger
and crashed has. Its fence is durable
before it answers a fencing read with OK. And one that denies an entry to a recovery, by a read that fences or should
have, is fenced, unless it collected the ledger before.

A crash may come between a fence that was set and the event that says it is durable; then its answers prove nothing. Nor do they
where no bookie of the history recorded what happens inside it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    DENIALS,
    LEDGER_KEY,
    OK,
    is_kind,
    is_stored_copy,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.relations import (
    ENTRY_COLUMNS,
    ENTRY_KINDS,
    LEDGER_COLUMNS,
    LEDGER_KINDS,
    fences,
)

__all__ = ["FENCED_STAYS_FENCED"]


def _where_bookies_record(facts: Facts, answers: DataFrame) -> DataFrame:
    """Those of ``answers`` that are in histories in which bookies recorded a fence, or anything that they store."""
    has_stored = sf.exists("copies", is_stored_copy)
    storing = facts.entries.filter(has_stored).groupBy("history").agg(sf.count("*").alias("stored_there"))
    fencing = (
        facts.rare_events.filter(is_kind(Kind.FENCE_SET)).groupBy("history").agg(sf.count("*").alias("fenced_there"))
    )
    return (
        answers.transform(join_small, storing, on=("history",), how="left")
        .transform(join_small, fencing, on=("history",), how="left")
        .filter(sf.col("stored_there").isNotNull() | sf.col("fenced_there").isNotNull())
    )


def _has_between(seqs: Column, first: Column, end: Column) -> Column:
    return sf.exists(seqs, lambda seq: (seq > first) & (seq < end))


def _stores(facts: Facts) -> DataFrame:
    """What fenced bookies stored for the old writer, as observations."""
    by_ledger = (
        fences(facts.rare_events)
        .groupBy(*LEDGER_KEY)
        .agg(sf.collect_list(sf.struct("bookie", "fences", "forgotten", "crashes")).alias("bookies"))
    )
    judged = join_small(by_ledger, facts.entries, on=LEDGER_KEY, how="left")

    def fence_of(bookie: Column, store: Column) -> Column:
        """The fences that held on the bookie when it stored."""
        return sf.filter(
            bookie["fences"],
            lambda fence: (
                (fence["seq"] < store)
                & ~_has_between(bookie["forgotten"], fence["seq"], store)
                & (fence["durable"] | ~_has_between(bookie["crashes"], fence["seq"], store))
            ),
        )

    intruding = sf.filter(
        "copies",
        lambda copy: sf.exists(
            "bookies",
            lambda bookie: (bookie["bookie"] == copy["bookie"]) & (sf.size(fence_of(bookie, copy["ordinary_seq"])) > 0),
        ),
    )
    with_stores = judged.withColumn("intruder", sf.get(intruding, sf.lit(0)))
    intruder = sf.col("intruder")
    of_intruder = sf.get(sf.filter("bookies", lambda bookie: bookie["bookie"] == intruder["bookie"]), sf.lit(0))
    held = fence_of(of_intruder, intruder["ordinary_seq"])
    fence_seq = sf.array_min(sf.transform(held, lambda fence: fence["seq"]))
    finding = tell(
        "D1",
        intruder.isNotNull(),
        intruder["ordinary_seq"],
        [fence_seq, intruder["ordinary_seq"]],
        "bookie %s was fenced (event %d), and stored an ordinary add of entry %d after that (event %d)",
        intruder["bookie"],
        fence_seq,
        sf.col("entry"),
        intruder["ordinary_seq"],
    )
    return observed(with_stores, finding)


def _answers(facts: Facts) -> DataFrame:
    """What bookies said to recoveries about their fences, as observations."""
    seq, code = sf.col("seq"), sf.col("code")
    started = facts.runs.select(*LEDGER_KEY, "actor", "run", "first_read_entry")
    answers = (
        facts.run_events.filter(is_kind(Kind.FENCE_RESP, Kind.REC_READ_RESP) & sf.col("run").isNotNull())
        .select(*LEDGER_KEY, "actor", "run", "kind", "seq", "bookie", "code", "fence", "entry")
        .transform(join_small, started, on=(*LEDGER_KEY, "actor", "run"), how="inner")
        .transform(partial(_where_bookies_record, facts))
        .transform(join_small, fences(facts.rare_events), on=(*LEDGER_KEY, "bookie"), how="left")
    )
    is_fencing = is_kind(Kind.FENCE_RESP) | sf.col("fence")
    was_set = is_true(sf.exists("fences", lambda fence: fence["seq"] < seq))
    was_durable = is_true(sf.exists("fences", lambda fence: (fence["seq"] < seq) & fence["durable"]))
    first_set = sf.array_min(sf.transform("fences", lambda fence: fence["seq"]))
    has_crashed = is_true(_has_between(sf.col("crashes"), first_set, seq))
    # The read that measures the last entry of a ledger without a tail is an ordinary one, below where recovery began.
    is_deciding = is_fencing | (sf.col("entry") >= sf.col("first_read_entry"))
    early = tell(
        "D2",
        is_fencing & (code == OK) & ~was_durable & ~(was_set & has_crashed),
        seq,
        [seq],
        "bookie %s answered a fencing read of %s (event %d) before its fence was durable",
        sf.col("bookie"),
        sf.col("actor"),
        seq,
    )
    unfenced = tell(
        "D3",
        is_deciding & code.isin(*DENIALS) & ~was_set & ~is_true(sf.col("collected") < seq),
        seq,
        [seq],
        "bookie %s denied an entry to %s (event %d) without being fenced",
        sf.col("bookie"),
        sf.col("actor"),
        seq,
    )
    return observed(answers, early, unfenced)


def _observe(facts: Facts) -> DataFrame:
    return _stores(facts).union(_answers(facts))


FENCED_STAYS_FENCED: Final = Invariant(
    name="FencedStaysFenced",
    clauses=("D1", "D2", "D3"),
    kinds=(
        *(*ENTRY_KINDS, *LEDGER_KINDS, Kind.FENCE_SET, Kind.FENCE_LOST, Kind.BK_GC, Kind.BK_CRASH, Kind.FENCE_RESP),
        *(Kind.REC_START, Kind.REC_READ_SEND, Kind.REC_READ_RESP, Kind.OPEN_START, Kind.OPEN_RESULT),
    ),
    columns=(*ENTRY_COLUMNS, *LEDGER_COLUMNS, "fence", "first_entry", "bookies", "lac", "verdict"),
    observe=_observe,
)
