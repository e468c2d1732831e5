"""Verifying a folder of histories: every invariant's judgement of every ledger, counted, with witnesses where one is broken.

Histories are judged a part at a time, so that the memory for it does not depend on how many there are. The events of a part are
read once and kept, partitioned by history, as are the relations that several invariants start from. The findings of all
invariants are one table, from which counts and witnesses are taken, so the number of Spark actions does not depend on the number
of invariants: one reads and counts, one judges, and only where something is broken two more fetch witnesses. What is brought to
the driver is bounded by the number of invariants and ``max_witnesses``, never by the number of histories.

A history is the unit of work: its events are judged in one task. Histories are many and small, so that is the parallelism there
is to have.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as sf

from scenarios.history import KINDS
from spark_analysis.commands import replay_command
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.invariants import INVARIANTS, Invariant
from spark_analysis.invariants.base import is_broken
from spark_analysis.invariants.expressions import LEDGER_KEY
from spark_analysis.invariants.left_open import LeftOpen
from spark_analysis.jobs.files import REJECTED_MAX, Rejected, rejected_in
from spark_analysis.jobs.inputs import Histories, histories_of
from spark_analysis.jobs.judging import judged_histories, keep
from spark_analysis.jobs.lost import again_if_lost
from spark_analysis.schema import HISTORY_COLUMNS
from spark_analysis.source import file_rows

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
    invariant, and at most :data:`~spark_analysis.jobs.files.REJECTED_MAX` files are named in ``rejected``; counts are complete.
    """

    histories: int
    ledgers: int
    events: int
    rejected: tuple[Rejected, ...]
    rejected_files: int
    invariants: tuple[InvariantVerdict, ...]
    violations: tuple[WitnessedViolation, ...]
    seconds: float

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
    the verdict. An executor that is lost with what it had computed makes the part that was judged begin again.
    ``progress`` is told before each part how many are done, and how many there are.
    """
    started = time.perf_counter()
    histories = histories_of(folder)
    parts: list[Verdict] = []
    for part in (all_parts := histories.parts()):
        if progress is not None:
            progress(len(parts), len(all_parts))
        parts.append(again_if_lost(partial(_verify, spark, part, invariants, max_witnesses)))
    known, known_files = histories.set_aside()
    return Verdict(
        histories=sum(part.histories for part in parts),
        ledgers=sum(part.ledgers for part in parts),
        events=sum(part.events for part in parts),
        rejected=(*(rejected for part in parts for rejected in part.rejected), *known)[:REJECTED_MAX],
        rejected_files=sum(part.rejected_files for part in parts) + known_files,
        invariants=tuple(_together(found) for found in zip(*(part.invariants for part in parts), strict=True)),
        violations=tuple(
            replace(found, replay=replay_command(folder, found.history))
            for found in _first_of(parts, invariants, max_witnesses)
        ),
        seconds=time.perf_counter() - started,
    )


def _together(parts: Sequence[InvariantVerdict]) -> InvariantVerdict:
    """How one invariant fared in all ``parts``."""
    why = Counter[str]()
    for part in parts:
        why.update(part.why)
    return InvariantVerdict(
        name=parts[0].name,
        statement=parts[0].statement,
        checked=sum(part.checked for part in parts),
        holds=sum(part.holds for part in parts),
        violated=sum(part.violated for part in parts),
        unknown=sum(part.unknown for part in parts),
        why={str(reason): why[reason] for reason in LeftOpen if why[reason]},
        violated_histories=sum(part.violated_histories for part in parts),
    )


def _first_of(
    parts: Sequence[Verdict], invariants: Sequence[Invariant], max_witnesses: int
) -> tuple[WitnessedViolation, ...]:
    """The first violations of each invariant in ``parts``, which have the first ones of theirs."""
    found: dict[str, list[WitnessedViolation]] = {invariant.name: [] for invariant in invariants}
    for part in parts:
        for violation in part.violations:
            found[violation.invariant].append(violation)
    return tuple(
        violation
        for violations in found.values()
        for violation in sorted(violations, key=lambda one: (one.history, one.ledger, one.first_seq))[:max_witnesses]
    )


def _verify(spark: SparkSession, part: Histories, invariants: Sequence[Invariant], max_witnesses: int) -> Verdict:
    started = time.perf_counter()
    with judged_histories(spark, part, invariants) as (table, findings):
        counted, rejected = _count_files(table)
        verdicts = _count_findings(findings, invariants, counted["ledgers"])
        violations: tuple[WitnessedViolation, ...] = ()
        if max_witnesses and any(verdict.violated for verdict in verdicts):
            violations = _witnesses(findings, table, invariants, max_witnesses)
    return Verdict(
        histories=counted["histories"],
        ledgers=counted["ledgers"],
        events=counted["known_events"] or 0,
        rejected=rejected,
        rejected_files=counted["rejected_files"],
        invariants=verdicts,
        violations=violations,
        seconds=time.perf_counter() - started,
    )


def _count_files(table: DataFrame) -> tuple[Row, tuple[Rejected, ...]]:
    """``histories``, ``known_events``, ``rejected_files`` and ``ledgers``; and the files that are rejected."""
    is_file, is_usable = sf.col("kind").isNull(), sf.col("problem").isNull()
    by_ledger = table.groupBy(*LEDGER_KEY).agg(
        sf.count_if(is_file & is_usable).alias("histories"),
        sf.sum(sf.when(is_file & is_usable, sf.col("events"))).alias("events"),
        sf.count_if(is_file & ~is_usable).alias("rejected"),
    )
    counted = by_ledger.agg(
        sf.sum("histories").alias("histories"),
        sf.sum("events").alias("known_events"),
        sf.sum("rejected").alias("rejected_files"),
        sf.count_if(sf.col("ledger") >= 0).alias("ledgers"),
    ).first()
    assert counted is not None, "an aggregate without groups has one row"
    if not counted["rejected_files"]:
        return counted, ()
    return counted, rejected_in(file_rows(table).filter(~is_usable))


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


def _witnesses(
    findings: DataFrame, table: DataFrame, invariants: Sequence[Invariant], max_witnesses: int
) -> tuple[WitnessedViolation, ...]:
    """The first ``max_witnesses`` broken clauses of each invariant, by history and ledger, with the events that show it."""
    in_order = Window.partitionBy("invariant").orderBy("history", "ledger", "nth")
    broken = findings.filter(is_broken()).withColumn("rank", sf.row_number().over(in_order))
    shown = keep(broken.filter(sf.col("rank") <= max_witnesses))
    runs = file_rows(table).select(*HISTORY_COLUMNS)
    found = shown.join(runs, on="history", how="left").collect()
    wanted = shown.select("history", sf.explode("evidence").alias("seq")).distinct()
    evidence = {
        (row["history"], row["seq"]): _describe(row)
        for row in table.join(sf.broadcast(wanted), on=["history", "seq"], how="inner").collect()
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
