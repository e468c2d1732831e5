"""Verification: what it takes to judge a corpus of recorded histories, in each of the ways there are.

*In one process* the online checker reads file after file; it is what Spark has to be worth its start. Then `ingest`, and the
checker and the formulas over the files and over the data set, in one Spark session with a core for each processor. CPU time and
memory are those of this process and of all that it starts: the JVM and the Python workers.

Three of the formulas are asked of the data set once more, of Spark and of DuckDB and Polars, if they are installed
(``benchmarks/requirements.txt``). If the answers are not the same, that is an error.

    python -m benchmarks.verify --seeds 100
    python -m benchmarks.verify --folder histories
    python -m benchmarks.verify --folder histories --times 8

With ``--times`` each history is there so often, each time with another header, so that none is a copy of another: many millions
of events in a minute, where to record as many takes hours. What is in them repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgpack
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.processes import ForeignLoad, family
from benchmarks.verify_engines import ENGINES, QUESTIONS, Answers
from scenarios.checker import OnlineChecker
from scenarios.history import History
from scenarios.library import SCENARIOS
from scenarios.runner import run_scenario
from spark_analysis.dataset.layout import open_dataset
from spark_analysis.invariants import INVARIANTS, select
from spark_analysis.jobs.check import check
from spark_analysis.jobs.ingest import ingest
from spark_analysis.jobs.verify import verify
from spark_analysis.session import open_session
from spark_analysis.source import find_histories

_LOOK_EVERY_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class VerificationCost:
    """What a way took: in seconds, in events for each of them, and the most memory that was resident at once, in MiB.

    ``foreign`` is the part of all processors that went to other programs meanwhile.
    """

    way: str
    events: int
    seconds: float
    cpu_seconds: float
    events_per_second: float
    events_per_cpu_second: float
    peak_mib: int
    foreign: float


@contextmanager
def measured(found: list[VerificationCost], way: str, events: Callable[[], int]) -> Iterator[None]:
    """Add what the block takes to ``found``."""
    peak, ended = 0, threading.Event()

    def look() -> None:
        nonlocal peak
        while not ended.wait(_LOOK_EVERY_S):
            peak = max(peak, sum(process.resident_bytes for process in family().values()))

    watcher = threading.Thread(target=look, daemon=True)
    with ForeignLoad() as load:
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
    count = events()
    found.append(
        VerificationCost(
            way,
            count,
            load.wall_s,
            load.cpu_s,
            count / load.wall_s,
            count / max(load.cpu_s, 0.01),
            peak >> 20,
            load.part or 0.0,
        )
    )


def multiply(folder: Path, target: Path, times: int) -> None:
    """Write each history in ``folder`` to ``target`` so many ``times``, with its number in the header, which no digest covers."""
    for file in find_histories(folder):
        data = Path(file.path).read_bytes()
        unpacker = msgpack.Unpacker(None, max_buffer_size=len(data), strict_map_key=False)
        unpacker.feed(data)
        header = unpacker.unpack()
        for number in range(times):
            path = target / f"{number:03d}" / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgpack.packb({**header, "copy": number}) + data[unpacker.tell() :])


def judge_here(folder: Path) -> int:
    """The online checker over all files in this process: how many events there were."""
    events = 0
    for file in find_histories(folder):
        checker = OnlineChecker()
        checker.feed_all(History(Path(file.path)).events())
        checker.finish()
        events += checker.events
    return events


def spark_answers(spark: SparkSession, dataset: Path) -> Answers:
    """The answers of Spark's formulas."""
    verdict = verify(spark, dataset, invariants=select(QUESTIONS), max_witnesses=0)
    return {found.name: (found.checked, found.violated) for found in verdict.invariants}


def measure_questions(
    spark: SparkSession, dataset: Path, only: str, events: int, found: list[VerificationCost]
) -> dict[str, Answers]:
    """The answers of each way to ask three questions whose name contains ``only``, and what it took added to ``found``."""
    files, threads = f"{open_dataset(dataset).events_glob()}/*.parquet", os.cpu_count() or 1
    ways: dict[str, Callable[[], Answers]] = {"Spark": lambda: spark_answers(spark, dataset)}
    ways |= {name: partial(engine, files, threads) for name, engine in ENGINES.items()}
    answers: dict[str, Answers] = {}
    for name, ask in ways.items():
        if only in (way := f"{len(QUESTIONS)} questions, {name}"):
            with measured(found, way, lambda: events):
                answers[name] = ask()
    return answers


def measure(folder: Path, scratch: Path, only: str) -> list[VerificationCost]:
    """Every way whose name contains ``only``, over the histories in ``folder``. Raises :class:`SystemExit` if answers differ."""
    found: list[VerificationCost] = []
    counted: list[int] = []
    if only in (here := "checker, one process"):
        with measured(found, here, lambda: counted[-1]):
            counted.append(judge_here(folder))
    spark = open_session(app_name="benchmarks", input_bytes=sum(file.size for file in find_histories(folder)))
    spark.range(1).count()  # the session stands
    target = scratch / "dataset"
    ways: dict[str, Callable[[], int]] = {
        "ingest": lambda: ingest(spark, folder, target).events,
        "checker, files": lambda: check(spark, folder).events,
        "checker, data set": lambda: check(spark, target).events,
        f"{len(INVARIANTS)} formulas, files": lambda: verify(spark, folder).events,
        f"{len(INVARIANTS)} formulas, data set": lambda: verify(spark, target).events,
    }
    for way, work in ways.items():
        if only in way:
            if "data set" in way and not target.exists():
                ingest(spark, folder, target)
            with measured(found, way, lambda: counted[-1]):
                counted.append(work())
    if any(only in f"{len(QUESTIONS)} questions, {name}" for name in ("Spark", *ENGINES)):
        taken = ingest(spark, folder, target)
        answers = measure_questions(spark, target, only, taken.all_events, found)
        if len({tuple(sorted(answered.items())) for answered in answers.values()}) > 1:
            raise SystemExit(f"the answers differ: {answers}")
    return found


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="recorded histories; without it some are made")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds of each scenario to make")
    parser.add_argument("--times", type=int, default=1, help="how often each history is to be there")
    parser.add_argument(
        "--only", default="", help="ways whose names contain this; each in a run of its own is comparable"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="bk-verify-bench-"))
    try:
        folder = options.folder or scratch / "histories"
        if options.folder is None:
            for name in SCENARIOS:
                for seed in range(options.seeds):
                    run_scenario(name, seed, record=folder)
        if options.times > 1:
            multiply(folder, scratch / "multiplied", options.times)
            folder = scratch / "multiplied"
        found = measure(folder, scratch, options.only)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        print(json.dumps({"results": [asdict(cost) for cost in found]}))
        return
    table = Table(title=f"{found[0].events:,} events" if found else "nothing is called so", title_justify="left")
    for name in ("way", "s", "CPU s", "events/s", "events/CPU s", "peak MiB", "other load"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for cost in found:
        rates = (f"{cost.events_per_second:,.0f}", f"{cost.events_per_cpu_second:,.0f}")
        table.add_row(
            cost.way,
            f"{cost.seconds:.1f}",
            f"{cost.cpu_seconds:.1f}",
            *rates,
            f"{cost.peak_mib:,}",
            f"{cost.foreign:.0%}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
