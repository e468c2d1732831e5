"""Checking a folder of histories with the online checker, on executors.

The checker judges a history event by event, in one pass and with little memory, so a file is the unit of work and nothing is
shuffled but what was found: a row for each file, and one for each broken clause and ledger. It takes less time than the
formulas of :mod:`spark_analysis.invariants`, which are the witness that shares no code with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from scenarios.checker import INVARIANTS, OnlineChecker
from scenarios.clauses import STATEMENTS
from scenarios.history import Event
from spark_analysis.commands import replay_command
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.files import REJECTED_MAX, Copy, Rejected, counted_files, problem_of, rejected_in
from spark_analysis.jobs.inputs import Histories, histories_of

__all__ = [
    "Broken",
    "CheckVerdict",
    "Checked",
    "CheckedInvariant",
    "check",
    "check_history",
    "checked_histories",
    "counted_invariants",
    "first_broken",
    "unchecked",
]

_SCHEMA: Final = """
    history string, problem string, scenario string, seed bigint, events bigint, checked array<string>,
    violations array<struct<invariant: string, clause: string, ledger: bigint, witness: string, seqs: array<bigint>>>
"""


@dataclass(frozen=True, slots=True)
class CheckedInvariant:
    """How one invariant fared, in histories: those that had something to judge, and those that break it."""

    name: str
    statement: str
    histories: int
    violated_histories: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken clause of one ledger, the numbers of the events that show it, and the command that makes the run again."""

    invariant: str
    clause: str
    history: str
    scenario: str | None
    seed: int | None
    ledger: int
    witness: str
    seqs: tuple[int, ...]
    replay: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the online checker found in histories.

    ``violations`` are at most ``max_witnesses`` per invariant, and at most
    :data:`~spark_analysis.jobs.files.REJECTED_MAX` files are named in ``rejected``; counts are complete.
    """

    histories: int
    events: int
    invariants: tuple[CheckedInvariant, ...]
    violations: tuple[Broken, ...]
    rejected: tuple[Rejected, ...]
    rejected_files: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether no invariant is broken; rejected files are another matter."""
        return not any(invariant.violated_histories for invariant in self.invariants)

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify`` prints with ``--json``."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckVerdict(Checked):
    """What a check came to.

    At most :data:`~spark_analysis.jobs.files.REJECTED_MAX` of the ``copied_files`` are named in ``copies``, and none is counted
    elsewhere.
    """

    copies: tuple[Copy, ...]
    copied_files: int


def check(spark: SparkSession, folder: Path | str, *, max_witnesses: int = MAX_WITNESSES_DEFAULT) -> CheckVerdict:
    """Judge every history below ``folder``, or in the data set there, by the online checker.

    Raises as :func:`~spark_analysis.jobs.inputs.histories_of` does. Files that are no usable histories are named in
    the verdict.
    """
    started = time.perf_counter()
    histories = histories_of(folder)
    rows = checked_histories(spark, histories).persist(StorageLevel.MEMORY_AND_DISK_DESER)
    try:
        counted = counted_files(rows)
        invariants = counted_invariants(rows, rows)
        violations = first_broken(rows, max_witnesses) if any(found.violated_histories for found in invariants) else ()
        rejected = rejected_in(rows.filter(sf.col("problem").isNotNull()))
    finally:
        rows.unpersist()
    known, known_files = histories.set_aside()
    return CheckVerdict(
        histories=counted["histories"],
        events=counted["events"],
        invariants=invariants,
        violations=tuple(replace(found, replay=replay_command(folder, found.history)) for found in violations),
        rejected=(*rejected, *known)[:REJECTED_MAX],
        rejected_files=counted["rejected"] + known_files,
        seconds=time.perf_counter() - started,
        copies=tuple(histories.copies()[:REJECTED_MAX]),
        copied_files=len(histories.copies()),
    )


def checked_histories(spark: SparkSession, histories: Histories) -> DataFrame:
    """A row for each of ``histories``, computed when it is asked for.

    ``history``, ``problem`` (null if it is usable), ``scenario``, ``seed``, ``events``, ``checked`` (the invariants that
    had something to judge) and ``violations`` (structs of ``invariant``, ``clause``, ``ledger``, ``witness``, ``seqs``).
    """
    return histories.each(spark, check_history, unchecked, _SCHEMA)


def check_history(name: str, scenario: str | None, seed: int | None, events: Iterator[Event]) -> tuple[Any, ...]:
    """On an executor: the row of a history."""
    checker = OnlineChecker()
    checker.feed_all(events)
    violations = [
        (violation.invariant, violation.clause, violation.ledger, violation.witness, list(violation.seqs))
        for violation in checker.finish()
    ]
    judged = [invariant for invariant, count in checker.checked.items() if count]
    return name, None, scenario, seed, checker.events, judged, violations


def unchecked(name: str, error: Exception) -> tuple[Any, ...]:
    """The row of a history that cannot be judged."""
    return name, problem_of(error), None, None, None, [], []


def counted_invariants(checked: DataFrame, found: DataFrame) -> tuple[CheckedInvariant, ...]:
    """How each invariant fared, from the columns ``history`` and ``checked``, and ``history`` and ``violations``."""

    def by_invariant(rows: DataFrame, names: str) -> dict[str, int]:
        exploded = rows.select("history", sf.explode(sf.col(names)).alias("invariant"))
        histories = exploded.groupBy("invariant").agg(sf.count_distinct("history").alias("histories"))
        return {row["invariant"]: row["histories"] for row in histories.collect()}

    judged, broken = by_invariant(checked, "checked"), by_invariant(found, "violations.invariant")
    return tuple(
        CheckedInvariant(name, STATEMENTS[name], judged.get(name, 0), broken.get(name, 0)) for name in INVARIANTS
    )


def first_broken(rows: DataFrame, max_witnesses: int) -> tuple[Broken, ...]:
    """The first ``max_witnesses`` broken clauses of each invariant, by history.

    ``rows`` have columns ``history``, ``scenario``, ``seed`` and ``violations``.
    """
    exploded = rows.select("history", "scenario", "seed", sf.inline("violations"))
    in_order = Window.partitionBy("invariant").orderBy("history", "ledger", "clause")
    shown = exploded.withColumn("rank", sf.row_number().over(in_order)).filter(sf.col("rank") <= max_witnesses)
    order = {name: number for number, name in enumerate(INVARIANTS)}
    found = sorted(shown.collect(), key=lambda row: (order[row["invariant"]], row["rank"]))
    return tuple(
        Broken(
            invariant=row["invariant"],
            clause=row["clause"],
            history=row["history"],
            scenario=row["scenario"],
            seed=row["seed"],
            ledger=row["ledger"],
            witness=row["witness"],
            seqs=tuple(row["seqs"]),
        )
        for row in found
    )
