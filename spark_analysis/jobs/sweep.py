"""Sweeping seeds on executors: runs are made and judged where they are made, and a folder keeps what came of them.

A unit is a scenario with some seeds in a row. The task that runs it writes one small file into ``units``, whole or not at all, so
a sweep that was ended goes on where it stood: units with a file are not made again. ``plan.json`` says what is swept, and a
folder is never used for another sweep. ``histories`` has the runs that break an invariant, and every n-th one on demand.
The driver sums up the files of units, with Spark; it holds nothing that grows with the number of seeds but the list of units.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from bkclient import __version__
from scenarios.model import TransportKind
from scenarios.situations import SITUATIONS
from scenarios.sweep import misses_too_often
from scenarios.sweep import sweep as run_seeds
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT

__all__ = ["OtherSweepError", "SweepPlan", "SweepVerdict", "SweptScenario", "sweep", "units_done"]

#: Seeds in one unit: some seconds of work, so that little is lost when a sweep ends in the middle.
SEEDS_PER_UNIT: Final = 50

_SCHEMA: Final = """
    scenario string, first_seed bigint, runs bigint, events bigint, simulated_seconds double, cpu_seconds double,
    met map<string, bigint>, failing array<struct<seed: bigint, invariant: string, path: string>>,
    undecided array<struct<seed: bigint, problem: string>>, missed array<struct<seed: bigint, problem: string>>
"""


class OtherSweepError(Exception):
    """The folder belongs to another sweep; the message says how that differs."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What is swept: every scenario with every seed from ``first_seed`` on. ``keep_every`` n keeps every n-th history, 0 none."""

    scenarios: tuple[str, ...]
    seeds: int
    first_seed: int = 0
    mutant: str = ""
    transport: TransportKind = TransportKind.OBJECTS
    keep_every: int = 0
    version: str = __version__

    def units(self) -> list[tuple[str, int, int]]:
        """Scenario, first seed and number of seeds of each unit; scenarios take turns."""
        end = self.first_seed + self.seeds
        return [
            (scenario, first, min(SEEDS_PER_UNIT, end - first))
            for first in range(self.first_seed, end, SEEDS_PER_UNIT)
            for scenario in self.scenarios
        ]


@dataclass(frozen=True, slots=True)
class SweptScenario:
    """The runs of one scenario: how many, how many broke an invariant, came to no verdict, and missed what it is about."""

    scenario: str
    runs: int
    violated: int
    undecided: int
    missed: int = 0

    @property
    def is_decided(self) -> bool:
        """Whether every run came to a verdict, but for the luck of the draw."""
        return not self.undecided and not misses_too_often(self.runs, self.missed)


@dataclass(frozen=True, slots=True)
class SweepVerdict:
    """What a sweep came to, with the units that were there before.

    ``failing`` are scenario, seed and invariant of broken runs, ``problems`` scenario, seed and reason of those without a
    verdict; at most as many of each as were asked for, while counts are complete. ``met`` counts, for every situation, the runs
    that came across it. ``units_before`` are those of an earlier call.
    """

    plan: SweepPlan
    units_before: int
    units: int
    runs: int
    events: int
    simulated_seconds: float
    cpu_seconds: float
    scenarios: tuple[SweptScenario, ...]
    met: dict[str, int]
    failing: tuple[tuple[str, int, str], ...]
    problems: tuple[tuple[str, int, str], ...]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether no run broke an invariant."""
        return not any(found.violated for found in self.scenarios)

    @property
    def is_decided(self) -> bool:
        """Whether every run came to a verdict, but for few that missed what their scenario is about."""
        return all(found.is_decided for found in self.scenarios)

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify sweep --json`` prints."""
        return asdict(self) | {"seconds": round(self.seconds, 3), "cpu_seconds": round(self.cpu_seconds, 3)}


def sweep(
    spark: SparkSession, plan: SweepPlan, folder: Path, *, max_shown: int = MAX_WITNESSES_DEFAULT
) -> SweepVerdict:
    """Make the runs of ``plan`` of which ``folder`` has no unit yet, and sum up all of them.

    Executors have to see ``folder`` under the same path. Raises :class:`OtherSweepError` if it has another plan, ``KeyError`` for
    an unknown scenario or mutant, and ``OSError`` if it cannot be written.
    """
    started = time.perf_counter()
    folder = folder.resolve()
    _claim(folder, plan)
    done = units_done(folder)
    units = plan.units()
    todo = [unit for unit in units if _unit_name(unit) not in done]
    if todo:
        context = spark.sparkContext
        # One unit a task: a unit takes seconds, and tasks end in any order.
        context.parallelize(todo, len(todo)).foreach(_Worker(plan, str(folder)))
    rows = spark.read.schema(_SCHEMA).json(str(_units_of(folder)))
    return _summed(rows, plan, len(units) - len(todo), max_shown, started)


def units_done(folder: Path) -> set[str]:
    """The names of the files of units that are there."""
    return {
        path.name for path in _units_of(folder).iterdir() if path.suffix == ".json" and not path.name.startswith(".")
    }


def _units_of(folder: Path) -> Path:
    return folder / "units"


def _unit_name(unit: tuple[str, int, int]) -> str:
    scenario, first, _ = unit
    return f"{scenario}-{first}.json"


def _claim(folder: Path, plan: SweepPlan) -> None:
    """Write down what is swept, or see that it is the same."""
    _units_of(folder).mkdir(parents=True, exist_ok=True)
    path, wanted = folder / "plan.json", json.loads(json.dumps(asdict(plan)))
    if not path.exists():
        _write_whole(path, wanted)
        return
    there = json.loads(path.read_text())
    if there != wanted:
        differing = [name for name in wanted if there.get(name) != wanted[name]]
        told = ", ".join(f"{name} {there.get(name)!r} instead of {wanted[name]!r}" for name in differing)
        raise OtherSweepError(f"{folder}: has another sweep ({told}); name another folder")


def _write_whole(path: Path, value: object) -> None:
    """Write a file that is there with everything in it, or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value))
    partial.replace(path)


@dataclass(frozen=True, slots=True)
class _Worker:
    """On an executor: runs a unit and writes its file."""

    plan: SweepPlan
    folder: str

    def __call__(self, unit: tuple[str, int, int]) -> None:
        scenario, first, count = unit
        plan, folder = self.plan, Path(self.folder)
        result = run_seeds(
            range(first, first + count),
            [scenario],
            mutant=plan.mutant or None,
            transport=plan.transport,
            record=folder / "histories",
            failing_only=True,
            keep_every=plan.keep_every,
            processes=1,
        )
        row = {
            "scenario": scenario,
            "first_seed": first,
            "runs": result.runs,
            "events": result.events,
            "simulated_seconds": result.simulated_seconds,
            "cpu_seconds": result.cpu_seconds,
            "met": dict(result.met),
            "failing": [{"seed": one.seed, "invariant": one.invariant, "path": one.path} for one in result.failing],
            "undecided": [{"seed": seed, "problem": problem} for _, seed, problem in result.undecided],
            "missed": [{"seed": seed, "problem": problem} for _, seed, problem in result.missed],
        }
        _write_whole(_units_of(folder) / _unit_name(unit), row)


def _summed(rows: DataFrame, plan: SweepPlan, units_before: int, max_shown: int, started: float) -> SweepVerdict:
    by_scenario = (
        rows.groupBy("scenario")
        .agg(
            sf.count(sf.lit(1)).alias("units"),
            sf.sum("runs").alias("runs"),
            sf.sum("events").alias("events"),
            sf.sum("simulated_seconds").alias("simulated_seconds"),
            sf.sum("cpu_seconds").alias("cpu_seconds"),
            sf.sum(sf.size(sf.array_distinct("failing.seed"))).alias("violated"),
            sf.sum(sf.size("undecided")).alias("undecided"),
            sf.sum(sf.size(sf.coalesce("missed", sf.array()))).alias("missed"),
        )
        .orderBy("scenario")
        .collect()
    )
    scenarios = tuple(
        SweptScenario(row["scenario"], row["runs"], row["violated"], row["undecided"], row["missed"])
        for row in by_scenario
    )
    beside = rows.filter(
        sf.col("scenario").isin([found.scenario for found in scenarios if misses_too_often(found.runs, found.missed)])
    )
    met = {row["key"]: row["runs"] for row in _met(rows).collect()}
    return SweepVerdict(
        plan=plan,
        units_before=units_before,
        units=sum(row["units"] for row in by_scenario),
        runs=sum(row["runs"] for row in by_scenario),
        events=sum(row["events"] for row in by_scenario),
        simulated_seconds=sum(row["simulated_seconds"] for row in by_scenario),
        cpu_seconds=sum(row["cpu_seconds"] for row in by_scenario),
        scenarios=scenarios,
        met={name: met.get(name, 0) for name in SITUATIONS},
        failing=tuple(_shown(rows, "failing", "invariant", max_shown)),
        problems=(*_shown(rows, "undecided", "problem", max_shown), *_shown(beside, "missed", "problem", max_shown))[
            :max_shown
        ],
        seconds=time.perf_counter() - started,
    )


def _met(rows: DataFrame) -> DataFrame:
    return rows.select(sf.explode("met")).groupBy("key").agg(sf.sum("value").alias("runs"))


def _shown(rows: DataFrame, column: str, told: str, max_shown: int) -> Iterator[tuple[str, int, str]]:
    """The first of the structs in ``column``, by scenario and seed."""
    found = rows.select("scenario", sf.inline(column)).orderBy("scenario", "seed", told).limit(max_shown)
    for row in found.collect():
        yield row["scenario"], row["seed"], row[told]


def chosen(scenarios: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """The scenarios that were named, each once, in the order of ``known``; all if none was. ``KeyError`` for an unknown one."""
    unknown = [name for name in scenarios or () if name not in known]
    if unknown:
        raise KeyError(unknown[0])
    return tuple(name for name in known if not scenarios or name in scenarios)
