"""NegativeCoverage: recovery declares an entry absent only when no ack quorum can have it.

That is when Qw - Qa + 1 different bookies of the entry's write set, in the last fragment stored when the recovery started,
denied it outright. A timeout, an error or silence denies nothing. A denial that the same client got in an earlier recovery of
the ledger counts as well: the read that brought it fenced the bookie for good.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import (
    LEDGER_KEY,
    CheckClass,
    Invariant,
    first_per_ledger,
    is_kind,
    join_small,
    tell,
)
from spark_analysis.invariants.recovery_reads import recoveries
from spark_analysis.invariants.relations import (
    DENIALS,
    LEDGER_COLUMNS,
    LEDGER_KINDS,
    is_in_write_set,
    ledgers,
    rare_events,
)

__all__ = ["NEGATIVE_COVERAGE"]

_READ_KEY: Final = (*LEDGER_KEY, "actor", "entry")


def _findings(events: DataFrame) -> DataFrame:
    seq, entry = sf.col("seq"), sf.col("entry")
    denials = (
        rare_events(events)
        .filter(is_kind(Kind.REC_READ_RESP) & sf.col("code").isin(*DENIALS))
        .groupBy(*_READ_KEY)
        .agg(sf.collect_list(sf.struct("bookie", "seq")).alias("denials"))
    )
    decisions = (
        rare_events(events)
        .filter(is_kind(Kind.REC_DECIDE) & (sf.col("verdict") == "negative"))
        .groupBy(*_READ_KEY)
        .agg(sf.min("seq").alias("seq"))
        .transform(join_small, denials, on=_READ_KEY, how="left")
        .transform(join_small, recoveries(events), on=(*LEDGER_KEY, "actor"), how="inner")
        .transform(join_small, ledgers(events), on=LEDGER_KEY, how="inner")
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
    return first_per_ledger(judged, finding)


NEGATIVE_COVERAGE: Final = Invariant(
    name="NegativeCoverage",
    statement="Recovery declares an entry absent only after Qw - Qa + 1 bookies of its write set denied it.",
    formula="E3",
    check_class=CheckClass.JOINED,
    kinds=(Kind.REC_START, Kind.REC_READ_RESP, Kind.REC_DECIDE, *LEDGER_KINDS),
    columns=("actor", "entry", "bookie", "bookies", "code", "verdict", "first_entry", *LEDGER_COLUMNS),
    findings=_findings,
)
