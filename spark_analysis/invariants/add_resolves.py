"""AddResolves: every append ends with an acknowledgement or a failure, unless it was cancelled.

Judged where the history says that the run is over. By then an application has been told of all its appends if the run
came to its end and its client was neither killed nor left asleep; and in any case of those that were open when its
close returned. A history that does not say how it ended may not know of cancelled appends either, and leaves all of them open; a
run that was ended before its time leaves those open that had no outcome by then.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, is_true, join_small, observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.left_open import LeftOpen, leave_open, run_ends

__all__ = ["ADD_RESOLVES"]


def _observe(facts: Facts) -> DataFrame:
    seq = sf.col("seq")
    is_pause = is_kind(Kind.CLIENT_PAUSE)
    clients = (
        facts.rare_events.filter(is_kind(Kind.CLIENT_CRASH, Kind.CLIENT_PAUSE, Kind.CLIENT_RESUME))
        .groupBy("history", "actor")
        .agg(
            sf.max(sf.when(is_kind(Kind.CLIENT_CRASH), seq)).alias("crashed"),
            sf.max(sf.when(~is_kind(Kind.CLIENT_CRASH), sf.struct("seq", is_pause.alias("is_asleep")))).alias("last"),
        )
    )
    closes = (
        facts.rare_events.filter(is_kind(Kind.CLOSE_RESULT))
        .groupBy(*LEDGER_KEY, "actor")
        .agg(sf.max("seq").alias("closed"))
    )
    is_outcome = is_kind(Kind.APP_ACK, Kind.APP_FAIL, Kind.APP_CANCEL)
    appends = (
        facts.of(Kind.APP_ADD, Kind.APP_ACK, Kind.APP_FAIL, Kind.APP_CANCEL)
        .groupBy(*LEDGER_KEY, "actor", "incarnation", "entry")
        .agg(
            sf.min(sf.when(is_kind(Kind.APP_ADD), seq)).alias("added"),
            sf.count_if(is_outcome).alias("outcomes"),
        )
        .filter(sf.col("added").isNotNull())
        .transform(join_small, run_ends(facts.rare_events), on=("history",), how="left")
        .transform(join_small, clients, on=("history", "actor"), how="left")
        .transform(join_small, closes, on=(*LEDGER_KEY, "actor"), how="left")
    )
    added, end = sf.col("added"), sf.col("end")
    is_alive = ~is_true(sf.col("crashed") > added)
    is_awake = ~is_true(sf.col("last.is_asleep"))
    is_open = (sf.col("outcomes") == 0) & is_alive
    is_told = end.isNotNull()
    when_closed = tell(
        "L2",
        is_told & is_open & (sf.col("closed") > added),
        sf.col("closed"),
        [added, sf.col("closed")],
        "the application of %s was never told what became of entry %d (event %d), though its close returned (event %d)",
        sf.col("actor"),
        sf.col("entry"),
        added,
        sf.col("closed"),
    )
    when_over = tell(
        "L2",
        is_open & is_awake & sf.col("completed"),
        end,
        [added, end],
        "the application of %s was never told what became of entry %d (event %d)",
        sf.col("actor"),
        sf.col("entry"),
        added,
    )
    untold = leave_open(LeftOpen.CUT_OFF, ~is_told)
    undecided = leave_open(LeftOpen.NO_OUTCOME, is_told & is_open & is_awake & ~is_true(sf.col("completed")), [added])
    return observed(appends, when_closed, when_over, undecided, untold)


ADD_RESOLVES: Final = Invariant(
    name="AddResolves",
    clauses=("L2",),
    kinds=(
        *(Kind.APP_ADD, Kind.APP_ACK, Kind.APP_FAIL, Kind.APP_CANCEL, Kind.CLOSE_RESULT),
        *(Kind.CLIENT_CRASH, Kind.CLIENT_PAUSE, Kind.CLIENT_RESUME, Kind.RUN_END),
    ),
    columns=("seq", "actor", "incarnation", "entry", "completed"),
    observe=_observe,
)
