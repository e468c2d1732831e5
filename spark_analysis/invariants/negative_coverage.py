"""NegativeCoverage: recovery declares an entry absent only when no ack quorum can have it.

That is when Qw - Qa + 1 different bookies of the entry's write set, in the last fragment stored when the recovery
started, denied it outright. A timeout, an error or silence denies nothing. A denial that the same client got in an
earlier recovery of the ledger counts as well: the read that brought it fenced the bookie for good.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
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
from spark_analysis.invariants.recovery_reads import recoveries
from spark_analysis.invariants.relations import LEDGER_COLUMNS, LEDGER_KINDS

__all__ = ["NEGATIVE_COVERAGE"]

_READ_KEY: Final = (*LEDGER_KEY, "actor", "entry")


def _observe(facts: Facts) -> DataFrame:
    seq, entry = sf.col("seq"), sf.col("entry")
    denials = (
        facts.rare_events.filter(is_kind(Kind.REC_READ_RESP) & sf.col("code").isin(*DENIALS))
        .groupBy(*_READ_KEY)
        .agg(sf.collect_list(sf.struct("bookie", "seq")).alias("denials"))
    )
    decisions = (
        facts.rare_events.filter(is_kind(Kind.REC_DECIDE) & (sf.col("verdict") == "negative"))
        .groupBy(*_READ_KEY)
        .agg(sf.min("seq").alias("seq"))
        .transform(join_small, denials, on=_READ_KEY, how="left")
        .transform(join_small, recoveries(facts), on=(*LEDGER_KEY, "actor"), how="inner")
        .transform(join_small, facts.ledgers, on=LEDGER_KEY, how="inner")
    )
    runs = sf.filter("runs", lambda run: run["seq"] < seq)
    counted = sf.filter(
        "denials",
        lambda denial: (
            (denial["seq"] < seq)
            & sf.exists(
                runs,
                lambda run: is_in_write_set(denial["bookie"], run["ensemble"], entry, sf.col("write_quorum_size")),
            )
        ),
    )
    deniers = sf.array_distinct(sf.transform(counted, lambda denial: denial["bookie"]))
    needed = sf.col("write_quorum_size") - sf.col("ack_quorum_size") + 1
    judged = decisions.withColumn("deniers", sf.coalesce(deniers, sf.array().cast("array<string>")))
    finding = tell(
        "E3",
        sf.size("deniers") < needed,
        seq,
        [seq],
        "recovery by %s declared entry %d absent (event %d) on the word of %d bookies instead of %d: [%s]",
        sf.col("actor"),
        entry,
        seq,
        sf.size("deniers"),
        needed,
        sf.array_join("deniers", ", "),
    )
    return observed(judged, finding)


NEGATIVE_COVERAGE: Final = Invariant(
    name="NegativeCoverage",
    clauses=("E3",),
    kinds=(Kind.REC_START, Kind.REC_READ_RESP, Kind.REC_DECIDE, *LEDGER_KINDS),
    columns=("actor", "entry", "bookie", "bookies", "code", "verdict", "first_entry", *LEDGER_COLUMNS),
    observe=_observe,
)
