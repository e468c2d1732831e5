"""Verifying a folder of histories: every invariant's judgement of every ledger, counted, with witnesses where one is broken.

The findings of all invariants are one table, from which counts and witnesses are taken, so the number of Spark actions does not
depend on the number of invariants: one judges, or one for each part, one counts, and only where something is broken two more
fetch witnesses. What is brought to the driver is bounded by the number of invariants and ``max_witnesses``, never by the number
of histories.

A history is the unit of work: its events are judged in one task. Histories are many and small, so that is the parallelism there
is to have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as sf

from scenarios.history import KINDS
from spark_analysis.commands import replay_command
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.invariants import INVARIANTS, Invariant
from spark_analysis.invariants.base import is_broken
from spark_analysis.invariants.left_open import LeftOpen
from spark_analysis.jobs.files import REJECTED_MAX, Copy, Rejected, rejected_in
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.judging import Judged, judged_histories
from spark_analysis.schema import HISTORY_COLUMNS

__all__ = [
    "InvariantVerdict",
    "Verdict",
    "WitnessedViolation",
    "verify",
]


@dataclass(frozen=True, slots=True)
class InvariantVerdict:
    """How one invariant fared, counted in ledgers.

    ``checked`` ledgers were judged: it ``holds`` in them or is ``violated``. The others are ``unknown``; ``why`` counts these by
    :class:`~spark_analysis.invariants.left_open.LeftOpen`. ``violated_histories`` counts the histories of violated ledgers.
    """

    name: str
    statement: str
    checked: int
    holds: int
    violated: int
    unknown: int
    why: Mapping[str, int]
    violated_histories: int


@dataclass(frozen=True, slots=True)
class WitnessedViolation:
    """A broken clause of one ledger.

    ``clause`` is its number. ``witness`` says what is wrong, with the numbers of the events
    that show it; ``evidence`` is these events, for people. ``first_seq`` is the event from which on the clause is broken.
    Scenario and seed are those of the history's header, ``replay`` is the command that makes the run again.
    """

    invariant: str
    history: str
    scenario: str | None
    seed: int | None
    ledger: int
    clause: str
    witness: str
    first_seq: int
    evidence: tuple[str, ...] = ()
    replay: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification came to.

    ``ledgers`` counts those that occur in events which the invariants read. ``violations`` are at most ``max_witnesses`` per
    invariant, and at most :data:`~spark_analysis.jobs.files.REJECTED_MAX` files are named in ``rejected`` and in ``copies``,
    which are not counted elsewhere; counts are complete.
    """

    histories: int
    ledgers: int
    events: int
    rejected: tuple[Rejected, ...]
    rejected_files: int
    invariants: tuple[InvariantVerdict, ...]
    violations: tuple[WitnessedViolation, ...]
    seconds: float
    copies: tuple[Copy, ...] = ()
    copied_files: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether no invariant is broken; rejected files are another matter."""
        return not any(invariant.violated for invariant in self.invariants)

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify verify --json`` prints."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


def verify(
    spark: SparkSession,
    folder: Path | str,
    *,
    invariants: Sequence[Invariant] = INVARIANTS,
    max_witnesses: int = MAX_WITNESSES_DEFAULT,
    progress: Callable[[int, int], None] | None = None,
) -> Verdict:
    """Judge every ledger of every history below ``folder``, or in the data set there, by every one of ``invariants``.

    Raises as :func:`~spark_analysis.jobs.inputs.histories_of` does. Files that are no usable histories are named in
    the verdict. Where there is more than one part to judge, ``progress`` is told before each how many are done, and how many
    there are.
    """
    started = time.perf_counter()
    histories = histories_of(folder)
    with judged_histories(spark, histories, invariants, progress) as judged:
        counted, rejected = _count_files(judged.files)
        verdicts = _count_findings(judged.findings, invariants, counted["ledgers"])
        violations: tuple[WitnessedViolation, ...] = ()
        if max_witnesses and any(verdict.violated for verdict in verdicts):
            violations = _witnesses(judged, invariants, max_witnesses)
    known, known_files = histories.set_aside()
    return Verdict(
        histories=counted["histories"],
        ledgers=counted["ledgers"],
        events=counted["events"],
        rejected=(*rejected, *known)[:REJECTED_MAX],
        rejected_files=counted["rejected"] + known_files,
        invariants=verdicts,
        violations=tuple(replace(found, replay=replay_command(folder, found.history)) for found in violations),
        seconds=time.perf_counter() - started,
        copies=tuple(histories.copies()[:REJECTED_MAX]),
        copied_files=len(histories.copies()),
    )


def _count_files(files: DataFrame) -> tuple[Row, tuple[Rejected, ...]]:
    """``histories``, their ``events`` and ``ledgers``, and how many files are ``rejected``; and these by name."""
    is_usable = sf.col("problem").isNull()
    counted = files.agg(
        sf.count_if(is_usable).alias("histories"),
        sf.coalesce(sf.sum(sf.when(is_usable, sf.col("events"))), sf.lit(0)).alias("events"),
        sf.coalesce(sf.sum("ledgers"), sf.lit(0)).alias("ledgers"),
        sf.count_if(~is_usable).alias("rejected"),
    ).first()
    assert counted is not None, "an aggregate without groups has one row"
    return counted, rejected_in(files.filter(~is_usable)) if counted["rejected"] else ()


def _count_findings(findings: DataFrame, invariants: Sequence[Invariant], ledgers: int) -> tuple[InvariantVerdict, ...]:
    why = sf.when(~is_broken(), sf.col("witness"))
    counted = (
        findings.filter(sf.col("nth") == 0)
        .groupBy("invariant", "history", why.alias("why"))
        .agg(sf.count(sf.lit(1)).alias("ledgers"), sf.count_if(is_broken()).alias("violated"))
        .groupBy("invariant", "why")
        .agg(
            sf.sum("ledgers").alias("ledgers"),
            sf.sum("violated").alias("violated"),
            sf.count_if(sf.col("violated") > 0).alias("violated_histories"),
        )
        .collect()
    )
    by_name: Mapping[tuple[str, str | None], Row] = {(row["invariant"], row["why"]): row for row in counted}
    verdicts = []
    for invariant in invariants:
        row = by_name.get((invariant.name, None))
        checked, violated, histories = (
            (row["ledgers"], row["violated"], row["violated_histories"]) if row is not None else (0, 0, 0)
        )
        left_open = {
            str(reason): by_name[invariant.name, reason]["ledgers"]
            for reason in LeftOpen
            if (invariant.name, reason) in by_name
        }
        without = ledgers - checked - sum(left_open.values())
        verdicts.append(
            InvariantVerdict(
                name=invariant.name,
                statement=invariant.statement,
                checked=checked,
                holds=checked - violated,
                violated=violated,
                unknown=ledgers - checked,
                why=({str(LeftOpen.NO_PREMISE): without} if without else {}) | left_open,
                violated_histories=histories,
            )
        )
    return tuple(verdicts)


def _witnesses(judged: Judged, invariants: Sequence[Invariant], max_witnesses: int) -> tuple[WitnessedViolation, ...]:
    """The first ``max_witnesses`` broken clauses of each invariant, by history and ledger, with the events that show it."""
    in_order = Window.partitionBy("invariant").orderBy("history", "ledger", "nth")
    broken = judged.findings.filter(is_broken()).withColumn("rank", sf.row_number().over(in_order))
    shown = judged.keep(broken.filter(sf.col("rank") <= max_witnesses))
    found = shown.join(judged.files.select(*HISTORY_COLUMNS), on="history", how="left").collect()
    wanted = shown.select("history", sf.explode("evidence").alias("seq")).distinct()
    evidence = {
        (row["history"], row["seq"]): _describe(row)
        for row in judged.table.join(sf.broadcast(wanted), on=["history", "seq"], how="inner").collect()
    }
    order = {invariant.name: number for number, invariant in enumerate(invariants)}
    return tuple(
        WitnessedViolation(
            invariant=row["invariant"],
            history=row["history"],
            scenario=row["scenario"],
            seed=row["seed"],
            ledger=row["ledger"],
            clause=row["clause"],
            witness=row["witness"],
            first_seq=row["seq"],
            evidence=tuple(
                evidence[row["history"], seq] for seq in sorted({seq for seq in row["evidence"] if seq is not None})
            ),
        )
        for row in sorted(found, key=lambda row: (order[row["invariant"]], row["rank"]))
    )


def _describe(event: Row) -> str:
    """An event in a line: its number, kind and actor, and the fields of its kind that were read."""
    values = event.asDict(recursive=True)
    names = [name for name in KINDS.get(event["kind"], ()) if values.get(name) is not None]
    fields = " ".join(f"{name}={_text(values[name])}" for name in names)
    return f"{event['seq']} {event['kind']} {event['actor']} {fields}".rstrip()


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(
            f"{fragment['first_entry']}: {', '.join(map(str, fragment['bookies'] or ()))}" for fragment in value
        )
    return str(value).lower() if isinstance(value, bool) else str(value)
