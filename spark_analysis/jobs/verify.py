"""Verifying a folder of histories: every invariant's judgement of every ledger, counted, with witnesses where one is broken.

Two Spark actions whatever the number of invariants. The events are read once and kept, partitioned by history; the first
action counts files and ledgers, the second judges: the findings of all invariants are one table, from which the counts and
the earliest witnesses are taken. What is brought to the driver is bounded by the number of invariants and ``max_witnesses``,
never by the number of histories.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_analysis.invariants import INVARIANTS, Invariant
from spark_analysis.invariants.relations import entries, ledgers, rare_events
from spark_analysis.invariants.replication import owed_entries
from spark_analysis.schema import HISTORY_COLUMNS, columns_of
from spark_analysis.source import event_rows, file_rows, find_histories, read_histories

__all__ = ["InvariantVerdict", "NoHistoriesError", "Rejected", "Verdict", "WitnessedViolation", "verify"]

MAX_WITNESSES_DEFAULT: Final = 100
_REJECTED_MAX: Final = 1000
_KEYS: Final = (*HISTORY_COLUMNS, "kind", "ledger", "actor")
#: Relations that several invariants derive from the events in the same words, so that Spark can keep them.
_SHARED: Final = (rare_events, entries, ledgers, owed_entries)


class NoHistoriesError(Exception):
    """There is nothing to verify: the folder does not exist or holds no history."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file that is no usable history, and why."""

    file: str
    problem: str


@dataclass(frozen=True, slots=True)
class InvariantVerdict:
    """How one invariant fared. Counts are ledgers: ``unknown`` are those whose history lacks the invariant's premise."""

    name: str
    statement: str
    checked: int
    holds: int
    violated: int
    unknown: int
    violated_histories: int


@dataclass(frozen=True, slots=True)
class WitnessedViolation:
    """One broken ledger; ``first_seq`` is the event from which on the invariant is broken."""

    invariant: str
    history: str
    scenario: str
    seed: int
    ledger: int
    witness: str
    first_seq: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification came to. ``violations`` are at most ``max_witnesses`` per invariant; counts are complete."""

    histories: int
    ledgers: int
    events: int
    rejected: tuple[Rejected, ...]
    invariants: tuple[InvariantVerdict, ...]
    violations: tuple[WitnessedViolation, ...]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether no invariant is broken; rejected files are another matter."""
        return not any(invariant.violated for invariant in self.invariants)

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify --json`` prints."""
        return {
            "histories": self.histories,
            "ledgers": self.ledgers,
            "events": self.events,
            "rejected": [{"file": rejected.file, "problem": rejected.problem} for rejected in self.rejected],
            "invariants": [
                {
                    "name": invariant.name,
                    "checked": invariant.checked,
                    "holds": invariant.holds,
                    "violated": invariant.violated,
                    "unknown": invariant.unknown,
                }
                for invariant in self.invariants
            ],
            "violations": [
                {
                    "invariant": violation.invariant,
                    "history": violation.history,
                    "scenario": violation.scenario,
                    "seed": violation.seed,
                    "ledger": violation.ledger,
                    "witness": violation.witness,
                }
                for violation in self.violations
            ],
            "seconds": round(self.seconds, 3),
        }


def verify(
    spark: SparkSession,
    folder: Path | str,
    *,
    invariants: Sequence[Invariant] = INVARIANTS,
    max_witnesses: int = MAX_WITNESSES_DEFAULT,
) -> Verdict:
    """Judge every ledger of every history below ``folder`` by every one of ``invariants``.

    Raises :class:`NoHistoriesError` if there is none. Files that are no usable histories are named in the verdict.
    """
    started = time.perf_counter()
    try:
        files = find_histories(folder)
    except FileNotFoundError as error:
        raise NoHistoriesError(str(error)) from error
    if not files:
        raise NoHistoriesError(f"{folder}: holds no history (*.bkh)")
    kept: list[DataFrame] = []

    def keep(relation: DataFrame) -> DataFrame:
        kept.append(relation.persist(StorageLevel.MEMORY_AND_DISK))
        return relation

    try:
        table = keep(_needed(spark, folder, invariants))
        histories, events, rejected = _count_files(table)
        for shared in _SHARED:
            keep(shared(event_rows(table)))
        ledger_count = _count_ledgers(table)
        findings = keep(_findings(table, invariants))
        verdicts = _count_findings(findings, invariants, ledger_count)
        violations = _witnesses(findings, table, invariants, verdicts, max_witnesses)
    finally:
        for relation in reversed(kept):
            relation.unpersist()
    return Verdict(histories, ledger_count, events, rejected, verdicts, violations, time.perf_counter() - started)


def _needed(spark: SparkSession, folder: Path | str, invariants: Sequence[Invariant]) -> DataFrame:
    """The columns and kinds of events that ``invariants`` look at, and the file rows."""
    kinds = sorted({str(kind) for invariant in invariants for kind in invariant.kinds})
    columns = {name for invariant in invariants for name in invariant.columns}
    schema = columns_of(*columns.union(_KEYS, ("problem", "events")))
    table = read_histories(spark, folder, columns=schema, kinds=kinds)
    # Every question is asked per history; having each in one place once spares a shuffle per question. Events of a kind
    # lie together, so that a question skips the others' in whole batches.
    partitions = 2 * spark.sparkContext.defaultParallelism
    return table.repartition(partitions, "history").sortWithinPartitions("kind")


def _count_files(table: DataFrame) -> tuple[int, int, tuple[Rejected, ...]]:
    files = file_rows(table)
    usable = sf.col("problem").isNull()
    counted = files.agg(
        sf.count_if(usable).alias("histories"), sf.sum(sf.when(usable, sf.col("events"))).alias("events")
    ).first()
    assert counted is not None, "an aggregate without groups has one row"
    rejected = files.filter(~usable).select("history", "problem").orderBy("history").limit(_REJECTED_MAX)
    return (
        counted["histories"],
        counted["events"] or 0,
        tuple(Rejected(row["history"], row["problem"]) for row in rejected.collect()),
    )


def _count_ledgers(table: DataFrame) -> int:
    return event_rows(table).filter(sf.col("ledger") >= 0).select("history", "ledger").distinct().count()


def _findings(table: DataFrame, invariants: Sequence[Invariant]) -> DataFrame:
    events = event_rows(table)
    judged = (
        invariant.judge(events).select(sf.lit(invariant.name).alias("invariant"), "history", "ledger", "seq", "witness")
        for invariant in invariants
    )
    return reduce(DataFrame.unionByName, judged)


def _count_findings(findings: DataFrame, invariants: Sequence[Invariant], ledgers: int) -> tuple[InvariantVerdict, ...]:
    is_violated = sf.col("witness").isNotNull()
    counted = (
        findings.groupBy("invariant")
        .agg(
            sf.count("*").alias("checked"),
            sf.count_if(is_violated).alias("violated"),
            sf.count_distinct(sf.when(is_violated, sf.col("history"))).alias("violated_histories"),
        )
        .collect()
    )
    by_name = {row["invariant"]: row for row in counted}
    verdicts = []
    for invariant in invariants:
        row = by_name.get(invariant.name)
        checked, violated, in_histories = (
            (row["checked"], row["violated"], row["violated_histories"]) if row else (0, 0, 0)
        )
        verdicts.append(
            InvariantVerdict(
                invariant.name,
                invariant.statement,
                checked,
                checked - violated,
                violated,
                max(0, ledgers - checked),
                in_histories,
            )
        )
    return tuple(verdicts)


def _witnesses(
    findings: DataFrame,
    table: DataFrame,
    invariants: Sequence[Invariant],
    verdicts: Sequence[InvariantVerdict],
    max_witnesses: int,
) -> tuple[WitnessedViolation, ...]:
    violated = [verdict.name for verdict in verdicts if verdict.violated]
    if not violated or max_witnesses <= 0:
        return ()
    runs = file_rows(table).select(*HISTORY_COLUMNS)
    order = {invariant.name: number for number, invariant in enumerate(invariants)}
    rows: list[WitnessedViolation] = []
    for name in sorted(violated, key=lambda name: order[name]):
        found = (
            findings.filter((sf.col("invariant") == name) & sf.col("witness").isNotNull())
            .orderBy("history", "ledger")
            .limit(max_witnesses)
            .join(runs, on="history", how="left")
            .orderBy("history", "ledger")
            .collect()
        )
        rows += [
            WitnessedViolation(
                name, row["history"], row["scenario"], row["seed"], row["ledger"], row["witness"], row["seq"]
            )
            for row in found
        ]
    return tuple(rows)
