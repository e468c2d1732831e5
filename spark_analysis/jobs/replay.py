"""Replaying a folder of histories: every recorded run made again on the executors, and compared with what was recorded.

A run takes its seed and nothing else, so executors need the histories and this package, and exchange nothing: a partition is a
few files, and a file becomes one row, which says whether the same happened, what the history and the new run break, and the first
event that differs. The rows are kept where they were made. The driver gets counts by scenario, and a bounded number of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from scenarios.determinism import Difference, event_line
from scenarios.model import Violation
from scenarios.replaying import Replay, replay_history
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.files import (
    REJECTED_MAX,
    Copy,
    Rejected,
    histories_in,
    problem_of,
    rejected_in,
    rows_of_files,
    without_copies,
)
from spark_analysis.source import HistoryFile

__all__ = ["Differing", "Outcome", "ReplayVerdict", "ScenarioReplays", "replay"]

_SCHEMA: Final = """
    history string, outcome string, problem string, scenario string, seed bigint, mutant string, version string,
    recorded_violations array<string>, violations array<string>, verdict string, events bigint,
    first_seq bigint, recorded_event string, event string
"""


class Outcome(StrEnum):
    """What became of one history."""

    #: The same events at the same times.
    SAME = "same"
    #: Other events, and the same clauses broken in the same ledgers.
    DIFFERS = "differs"
    #: Other events, and other clauses broken.
    ENDS_OTHERWISE = "ends otherwise"
    #: No whole history, or one of a run that this version does not have.
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class ScenarioReplays:
    """The replays of one scenario, counted.

    Of those that ``differ`` some ``end_otherwise``. ``violated`` broke an invariant, ``undecided`` came to no verdict.
    """

    scenario: str
    histories: int
    same: int
    differ: int
    end_otherwise: int
    violated: int
    undecided: int


@dataclass(frozen=True, slots=True)
class Differing:
    """A run that came out otherwise than it was recorded.

    ``first_seq`` is the number of the first event that differs, ``recorded_event`` and ``event`` are that event then and now, for
    people; "" where the history has ended before. All three are missing if the run, made once more to find out, was the same.
    ``recorded_violations`` and ``violations`` are the broken clauses, each with its ledger.
    """

    history: str
    scenario: str
    seed: int
    mutant: str
    version: str
    ends_otherwise: bool
    recorded_violations: tuple[str, ...]
    violations: tuple[str, ...]
    first_seq: int | None
    recorded_event: str | None
    event: str | None


@dataclass(frozen=True, slots=True)
class ReplayVerdict:
    """What the replay of a folder came to.

    ``differing`` has at most as many runs as were asked for, and at most
    :data:`~spark_analysis.jobs.files.REJECTED_MAX` files are named in ``rejected`` and in ``copies``, which
    are not counted elsewhere; counts are complete.
    """

    histories: int
    events: int
    scenarios: tuple[ScenarioReplays, ...]
    differing: tuple[Differing, ...]
    rejected: tuple[Rejected, ...]
    rejected_files: int
    seconds: float
    copies: tuple[Copy, ...] = ()
    copied_files: int = 0

    @property
    def is_same(self) -> bool:
        """Whether every run came out as it was recorded."""
        return not any(scenario.differ for scenario in self.scenarios)

    @property
    def is_clean(self) -> bool:
        """Whether no run broke an invariant."""
        return not any(scenario.violated for scenario in self.scenarios)

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify replay --json`` prints."""
        return asdict(self) | {"same": self.is_same, "seconds": round(self.seconds, 3)}


def replay(spark: SparkSession, folder: Path | str, *, max_differing: int = MAX_WITNESSES_DEFAULT) -> ReplayVerdict:
    """Make every run again that a history below ``folder`` recorded.

    Raises :class:`~spark_analysis.jobs.files.NoHistoriesError` if there is none. Files that are no usable histories are named in
    the verdict.
    """
    started = time.perf_counter()
    files, copies = without_copies(histories_in(folder))
    rows = _rows(spark, files).persist(StorageLevel.MEMORY_AND_DISK_DESER)
    try:
        scenarios = _count(rows)
        is_unusable = sf.col("outcome") == Outcome.UNUSABLE
        counted = rows.agg(
            sf.count_if(~is_unusable).alias("histories"),
            sf.sum("events").alias("events"),
            sf.count_if(is_unusable).alias("rejected"),
        ).first()
        assert counted is not None, "an aggregate without groups has one row"
        differs = sf.col("outcome").isin(Outcome.DIFFERS, Outcome.ENDS_OTHERWISE)
        differing = rows.filter(differs).orderBy("history").limit(max_differing).collect()
        rejected = rejected_in(rows.filter(is_unusable))
    finally:
        rows.unpersist()
    return ReplayVerdict(
        histories=counted["histories"],
        events=counted["events"] or 0,
        scenarios=scenarios,
        differing=tuple(map(_differing, differing)),
        rejected=rejected,
        rejected_files=counted["rejected"],
        seconds=time.perf_counter() - started,
        copies=tuple(copies[:REJECTED_MAX]),
        copied_files=len(copies),
    )


def _rows(spark: SparkSession, files: Sequence[HistoryFile]) -> DataFrame:
    """A row of :data:`_SCHEMA` for each file."""
    return rows_of_files(spark, files, _replay_files, _SCHEMA)


def _replay_files(files: Sequence[HistoryFile]) -> Iterator[tuple[Any, ...]]:
    """On an executor: the rows of ``files``."""
    for file in files:
        try:
            made = replay_history(Path(file.path))
        except Exception as error:  # noqa: BLE001  whatever a history holds, the others are replayed
            yield file.name, Outcome.UNUSABLE.value, problem_of(error), *([None] * 11)
        else:
            yield file.name, *_row(made)


def _row(made: Replay) -> tuple[Any, ...]:
    result, difference = made.result, made.difference
    outcome = Outcome.SAME if made.is_same else Outcome.DIFFERS if made.ends_alike else Outcome.ENDS_OTHERWISE
    return (
        outcome.value,
        result.problem or None,
        result.scenario,
        result.seed,
        result.mutant,
        made.recorded.version,
        _clauses(made.recorded.violations),
        _clauses(result.violations),
        result.verdict,
        result.events,
        *_difference(difference),
    )


def _clauses(violations: Sequence[Violation]) -> list[str]:
    """The broken clauses, each with its ledger, once each."""
    return sorted({f"{violation.name}, ledger {violation.ledger}" for violation in violations})


def _difference(difference: Difference | None) -> tuple[int | None, str | None, str | None]:
    if difference is None:
        return None, None, None
    then, now = ("" if event is None else event_line(event).rstrip() for event in (difference.one, difference.other))
    return difference.seq, then, now


def _count(rows: DataFrame) -> tuple[ScenarioReplays, ...]:
    outcome, verdict = sf.col("outcome"), sf.col("verdict")
    counted = (
        rows.filter(outcome != Outcome.UNUSABLE)
        .groupBy("scenario")
        .agg(
            sf.count(sf.lit(1)).alias("histories"),
            sf.count_if(outcome == Outcome.SAME).alias("same"),
            sf.count_if(outcome != Outcome.SAME).alias("differ"),
            sf.count_if(outcome == Outcome.ENDS_OTHERWISE).alias("end_otherwise"),
            sf.count_if(verdict == "violated").alias("violated"),
            sf.count_if(verdict == "unknown").alias("undecided"),
        )
        .orderBy("scenario")
        .collect()
    )
    return tuple(ScenarioReplays(**row.asDict()) for row in counted)


def _differing(row: Row) -> Differing:
    return Differing(
        history=row["history"],
        scenario=row["scenario"],
        seed=row["seed"],
        mutant=row["mutant"],
        version=row["version"],
        ends_otherwise=row["outcome"] == Outcome.ENDS_OTHERWISE,
        recorded_violations=tuple(row["recorded_violations"]),
        violations=tuple(row["violations"]),
        first_seq=row["first_seq"],
        recorded_event=row["recorded_event"],
        event=row["event"],
    )
