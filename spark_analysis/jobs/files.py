"""The files that a job works on, and those that turn out to be no histories."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from scenarios.history import History, HistoryError
from spark_analysis.decode import WHOLE_FILE_BYTES
from spark_analysis.packed import bytes_up_to, decode_whole
from spark_analysis.source import SUFFIX, HistoryFile, find_histories, plan_partitions

__all__ = [
    "REJECTED_MAX",
    "Copy",
    "NoHistoriesError",
    "Rejected",
    "counted_files",
    "histories_in",
    "problem_of",
    "rejected_in",
    "rows_of_files",
    "without_copies",
]

#: Rejected files, and copies, that are named; more are only counted.
REJECTED_MAX: Final = 1000

#: More than one for each core, because what a history costs depends on what happened in it, and its size does not tell.
_PARTITIONS_PER_CORE: Final = 4


class NoHistoriesError(Exception):
    """There is nothing to work on: the folder does not exist or holds no history."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file that is no usable history, and why."""

    file: str
    problem: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A file with the bytes of another, which is judged for both."""

    file: str
    original: str


def histories_in(folder: Path | str) -> list[HistoryFile]:
    """Every history below ``folder``, or ``folder`` itself if it is one; :class:`NoHistoriesError` if there is none."""
    try:
        files = find_histories(folder)
    except FileNotFoundError as error:
        raise NoHistoriesError(str(error)) from error
    if not files:
        raise NoHistoriesError(f"{folder}: holds no history (*{SUFFIX})")
    return files


def without_copies(files: Sequence[HistoryFile]) -> tuple[list[HistoryFile], list[Copy]]:
    """``files`` without those that have the bytes of one before, and these.

    Only files of one size are read. One that is no usable history is no copy: all of its bytes are to be named.
    """
    by_size: dict[int, list[HistoryFile]] = {}
    for file in files:
        by_size.setdefault(file.size, []).append(file)
    copies: dict[str, str] = {}
    for size, alike in by_size.items():
        if size and len(alike) > 1:
            copies |= _copies_among(alike)
    return [file for file in files if file.name not in copies], [Copy(*names) for names in sorted(copies.items())]


def _copies_among(files: Sequence[HistoryFile]) -> dict[str, str]:
    """Those of ``files`` that have the bytes of one before, by name, with the name of that."""
    first_of: dict[bytes, str] = {}
    copies: dict[str, str] = {}
    for file in files:
        try:
            with Path(file.path).open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").digest()
        except OSError:
            continue
        original = first_of.setdefault(content, file.name)
        if original != file.name:
            copies[file.name] = original
    usable = {
        original: _is_usable(next(file for file in files if file.name == original)) for original in copies.values()
    }
    return {name: original for name, original in copies.items() if usable[original]}


def _is_usable(file: HistoryFile) -> bool:
    """Whether a file is a whole history, all of which has to be read for that."""
    path = Path(file.path)
    try:
        data = bytes_up_to(path, WHOLE_FILE_BYTES)
        if data is not None:
            return decode_whole(data) is not None
        for _ in History(path).rows():
            pass
    except (HistoryError, OSError):
        return False
    return True


def problem_of(error: Exception) -> str:
    """Why a history cannot be used, in a row that does not name its path."""
    if isinstance(error, HistoryError):
        return error.problem
    return f"holds what cannot be judged ({type(error).__name__}: {error})"


def rows_of_files(
    spark: SparkSession,
    files: Sequence[HistoryFile],
    work: Callable[[Sequence[HistoryFile]], Iterator[tuple[Any, ...]]],
    schema: str,
) -> DataFrame:
    """The rows that ``work`` makes of ``files`` on the executors, computed when they are asked for."""
    context = spark.sparkContext
    partitions = plan_partitions(files, context.defaultParallelism * _PARTITIONS_PER_CORE)
    runs = context.parallelize([partition.files for partition in partitions], len(partitions))
    return spark.createDataFrame(runs.flatMap(work), schema)


def counted_files(rows: DataFrame) -> Row:
    """How many of ``rows`` are ``histories``, with their ``events``, and how many are ``rejected``: files with a ``problem``."""
    is_usable = sf.col("problem").isNull()
    counted = rows.agg(
        sf.count_if(is_usable).alias("histories"),
        sf.coalesce(sf.sum("events"), sf.lit(0)).alias("events"),
        sf.count_if(~is_usable).alias("rejected"),
    ).first()
    assert counted is not None, "an aggregate without groups has one row"
    return counted


def rejected_in(rows: DataFrame) -> tuple[Rejected, ...]:
    """The first of ``rows``, each of a file that cannot be used, by name; with the columns ``history`` and ``problem``."""
    named = rows.select("history", "problem").orderBy("history").limit(REJECTED_MAX)
    return tuple(Rejected(row["history"], row["problem"]) for row in named.collect())
