"""Taking histories into a data set: decoded once, in columns, where every later check finds a history in one place.

The first Spark job looks at the files that are new, the second one decodes them: a task takes the files of one bucket, or a chunk
of a large file, and writes one event file. Nothing is shuffled, because a history's name alone decides where it belongs. What
comes to the driver is a row for each new file, which is what the list of files is, too.
"""

from __future__ import annotations

import fcntl
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_analysis.dataset.buckets import bucket_of
from spark_analysis.dataset.layout import (
    COPY_OF,
    DESCRIPTION,
    SET_ASIDE_SCHEMA,
    TAKEN_SCHEMA,
    DataSet,
    DataSetError,
    Reason,
    create_dataset,
    is_dataset,
    open_dataset,
)
from spark_analysis.dataset.survey import Surveyed, survey_files
from spark_analysis.dataset.writing import BucketWork, ChunkWork, FileOutcome, work_of
from spark_analysis.jobs.files import REJECTED_MAX, histories_in
from spark_analysis.source import HistoryFile, plan_partitions

__all__ = ["BUCKET_BYTES", "Ingested", "SetAside", "ingest"]

#: A new data set has a bucket for so many bytes of the histories that it begins with; some 800,000 events.
BUCKET_BYTES: Final = 32 * 1024 * 1024

#: How a problem that a reader of histories names begins, and what it comes to. Any other is damage.
_REASONS: Final = {
    "is truncated": Reason.TORN,
    "is not a history": Reason.FOREIGN,
    "is no regular file": Reason.FOREIGN,
    "does not describe its kinds": Reason.FOREIGN,
    "has schema version": Reason.VERSION,
}


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that was not taken: one of :class:`~spark_analysis.dataset.layout.Reason`, and the reason in words."""

    file: str
    reason: str
    problem: str


@dataclass(frozen=True, slots=True)
class Ingested:
    """What an ingest came to.

    ``files`` were found, ``unchanged`` of them are as an earlier ingest saw them, ``taken`` are in the data set since, with
    ``events``. ``set_aside`` counts the others by reason; ``named`` has at most
    :data:`~spark_analysis.jobs.files.REJECTED_MAX` of them. ``histories`` and ``all_events`` are of the whole data set.
    """

    files: int
    unchanged: int
    taken: int
    events: int
    set_aside: Mapping[str, int]
    named: tuple[SetAside, ...]
    histories: int
    all_events: int
    buckets: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether all files are histories; copies are."""
        return not any(count for reason, count in self.set_aside.items() if reason != Reason.DUPLICATE)

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify ingest --json`` prints."""
        return asdict(self) | {"set_aside": dict(self.set_aside), "seconds": round(self.seconds, 3)}


def ingest(spark: SparkSession, folder: Path | str, target: Path | str, *, buckets: int | None = None) -> Ingested:
    """Take the histories below ``folder`` that are new into the data set ``target``, which is made if there is none.

    ``buckets`` is for a new data set; without it there is one for :data:`BUCKET_BYTES` of histories, and one for each core at
    least. Raises :class:`~spark_analysis.jobs.files.NoHistoriesError` if there is no history, and
    :class:`~spark_analysis.dataset.layout.DataSetError` if ``target`` is something else, another version, has another number of
    buckets, or another ingest writes to it.
    """
    started = time.perf_counter()
    files = histories_in(folder)
    dataset = _target(spark, files, target, buckets)
    with _alone(dataset):
        new, known = _new_files(dataset, files)
        unchanged, taken, aside = _take(spark, dataset, new, known) if new else (0, {}, [])
        counts = dataset.taken(["events"])["events"].to_pylist()
    return Ingested(
        files=len(files),
        unchanged=len(files) - len(new) + unchanged,
        taken=len(taken),
        events=sum(taken.values()),
        set_aside=dict(sorted(Counter(one.reason for one in aside).items())),
        named=tuple(aside[:REJECTED_MAX]),
        histories=len(counts),
        all_events=sum(counts),
        buckets=dataset.buckets,
        seconds=time.perf_counter() - started,
    )


def _target(spark: SparkSession, files: Sequence[HistoryFile], target: Path | str, buckets: int | None) -> DataSet:
    if not is_dataset(target):
        by_size = -(-sum(file.size for file in files) // BUCKET_BYTES)
        return create_dataset(target, buckets or max(by_size, spark.sparkContext.defaultParallelism))
    dataset = open_dataset(target)
    if buckets not in (None, dataset.buckets):
        raise DataSetError(f"{target}: has {dataset.buckets} buckets, which cannot be changed to {buckets}")
    return dataset


@contextmanager
def _alone(dataset: DataSet) -> Iterator[None]:
    """Inside, no other ingest on this machine writes to ``dataset``."""
    with (dataset.root / DESCRIPTION).open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataSetError(f"{dataset.root}: another ingest writes to it; wait until that has ended") from error
        yield


def _new_files(dataset: DataSet, files: Sequence[HistoryFile]) -> tuple[list[HistoryFile], Mapping[str, str]]:
    """The files that no ingest saw as they are, and the SHA-256 of every history by name."""
    taken = dataset.taken(["history", "size", "mtime_ns", "sha256"]).to_pylist()
    seen = {(row["history"], row["size"], row["mtime_ns"]) for row in taken}
    seen |= {(row["history"], row["size"], row["mtime_ns"]) for row in dataset.set_aside().to_pylist()}
    new = [file for file in files if (file.name, file.size, file.mtime_ns) not in seen]
    return new, {row["history"]: row["sha256"] for row in taken}


def _take(
    spark: SparkSession, dataset: DataSet, files: Sequence[HistoryFile], known: Mapping[str, str]
) -> tuple[int, dict[str, int], list[SetAside]]:
    """Take ``files`` into ``dataset``: how many it has already, the events of those that were taken, by name, and the others."""
    surveyed = _survey(spark, files)
    problems: dict[str, tuple[str, str]] = {}
    copies: dict[str, str] = {}
    first_of = {sha256: name for name, sha256 in known.items()}
    wanted = []
    unchanged = 0
    for found in surveyed:
        name = found.file.name
        if name in known and known[name] == found.sha256:
            unchanged += 1  # written again, with the same content
        elif name in known:
            problems[name] = (Reason.NAME_TAKEN, "the data set has another history of that name")
        elif found.problem is not None:
            problems[name] = (_reason(found.problem), found.problem)
        elif found.sha256 in first_of:
            copies[name] = first_of[found.sha256]
        else:
            first_of[found.sha256] = name
            wanted.append(found)
    unfinished = dataset.begin_ingest()
    outcomes = _write(spark, dataset, unfinished, wanted)
    problems |= {name: (_reason(one.problem), one.problem) for name, one in outcomes.items() if one.problem is not None}
    for name, original in copies.items():
        problems[name] = problems.get(original, (Reason.DUPLICATE, f"{COPY_OF}{original}"))
    taken = {name: one for name, one in outcomes.items() if one.problem is None}
    if taken or problems:
        _record(unfinished, surveyed, taken, problems)
        dataset.finish_ingest(unfinished)
    aside = [SetAside(name, *problems[name]) for name in sorted(problems)]
    return unchanged, {name: one.events for name, one in taken.items()}, aside


def _reason(problem: str) -> str:
    return next((reason for beginning, reason in _REASONS.items() if problem.startswith(beginning)), Reason.DAMAGED)


def _survey(spark: SparkSession, files: Sequence[HistoryFile]) -> list[Surveyed]:
    """What executors see of ``files``, by name."""
    context = spark.sparkContext
    partitions = plan_partitions(files, context.defaultParallelism * 4)
    looked = context.parallelize([partition.files for partition in partitions], len(partitions)).flatMap(survey_files)
    return sorted(looked.collect(), key=lambda found: found.file.name)


def _write(spark: SparkSession, dataset: DataSet, folder: Path, wanted: Sequence[Surveyed]) -> dict[str, FileOutcome]:
    """Have the event files written, and tell what became of each file."""
    small: dict[int, list[Surveyed]] = {}
    work: list[BucketWork | ChunkWork] = []
    targets: dict[str, list[str]] = {}
    for number, found in enumerate(wanted, 1):
        bucket = bucket_of(found.file.name, dataset.buckets)
        if not found.chunks:
            small.setdefault(bucket, []).append(found)
            continue
        for place, chunk in enumerate(found.chunks):
            target = str(folder / "events" / f"{number:06d}-{place:06d}_{bucket:05d}.parquet")
            targets.setdefault(found.file.name, []).append(target)
            work.append(ChunkWork(target, found, chunk, place == len(found.chunks) - 1))
    for bucket, files in small.items():
        work.append(BucketWork(str(folder / "events" / f"000000_{bucket:05d}.parquet"), tuple(files)))
    if not work:
        return {}
    work.sort(key=lambda item: -item.size)
    told = spark.sparkContext.parallelize(work, len(work)).flatMap(work_of).collect()
    outcomes: dict[str, FileOutcome] = {}
    for one in told:
        before = outcomes.get(one.name)
        if before is None or one.problem is not None:
            outcomes[one.name] = one
    sizes = {found.file.name: found.events for found in wanted}
    for name, written in targets.items():
        if outcomes[name].problem is not None:
            for target in written:
                Path(target).unlink(missing_ok=True)
        else:
            outcomes[name] = _whole(outcomes[name], sizes[name])
    return outcomes


def _whole(outcome: FileOutcome, events: int) -> FileOutcome:
    """The outcome of a large file, of whose chunks ``outcome`` is one."""
    return FileOutcome(outcome.name, None, outcome.scenario, outcome.seed, events, outcome.digest)


def _record(
    folder: Path,
    surveyed: Sequence[Surveyed],
    taken: Mapping[str, FileOutcome],
    problems: Mapping[str, tuple[str, str]],
) -> None:
    """Write which files were taken, and which were not."""
    rows, others = [], []
    for found in surveyed:
        file, name = found.file, found.file.name
        told = {"history": name, "size": file.size, "mtime_ns": file.mtime_ns}
        if name in problems:
            reason, problem = problems[name]
            others.append(told | {"reason": reason, "problem": problem})
        elif name in taken:
            one = taken[name]
            known = {"scenario": one.scenario, "seed": one.seed, "events": one.events, "digest": one.digest}
            rows.append(told | {"sha256": found.sha256} | known)
    pq.write_table(pa.Table.from_pylist(rows, schema=TAKEN_SCHEMA), folder / "taken.parquet")
    pq.write_table(pa.Table.from_pylist(others, schema=SET_ASIDE_SCHEMA), folder / "set_aside.parquet")
