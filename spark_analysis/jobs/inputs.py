"""What a job works on: a folder of history files, or a data set that they were taken into. Its verdict is the same.

Either gives a table in which a history is in one partition, and the events of one history after the other for what judges them in
order. A folder is decoded each time, and shuffled by history once; a data set lies as it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from scenarios.history import Event, History
from spark_analysis.collector import collector_paused
from spark_analysis.dataset.layout import COPY_OF, DataSet, Reason, is_dataset, open_dataset
from spark_analysis.dataset.reading import StoredHistory, bucketed_table, stored_histories
from spark_analysis.jobs.files import (
    REJECTED_MAX,
    Copy,
    NoHistoriesError,
    Rejected,
    histories_in,
    rows_of_files,
    without_copies,
)
from spark_analysis.jobs.keeping import moved_once
from spark_analysis.packed import HeaderOf, bytes_up_to, decode_events
from spark_analysis.schema import columns_of
from spark_analysis.source import HistoryFile, list_files, read_histories

__all__ = ["Histories", "JudgedHistory", "Unjudged", "histories_of", "judge_files", "judge_stored"]

#: About how much of the files one partition holds; some 800,000 events. Before a task sees a row, it has made hash tables,
#: projections and their code for a hundred questions, which takes as long as to judge some 50,000 events.
PARTITION_BYTES: Final = 32 * 1024 * 1024

#: How much less a data set takes than the files that it was made of.
_COMPRESSION: Final = 6

#: A file up to this is decoded in one go to be judged in order; its events take some twenty times as much memory.
WHOLE_FILE_BYTES: Final = 8 * 1024 * 1024

#: What is done with a history, in rows of which the first column is its name: given its name, scenario, seed and events.
JudgedHistory = Callable[[str, str | None, int | None, Iterator[Event]], tuple[Any, ...]]
#: The row for a history that cannot be read or judged, given its name and the reason.
Unjudged = Callable[[str, Exception], tuple[Any, ...]]


class Histories(Protocol):
    """Recorded histories that a job works on."""

    @property
    def size(self) -> int:
        """About how many bytes there are to decode, as files."""
        ...

    @property
    def largest_partition(self) -> int:
        """About how many bytes of files the largest partition of the table is made of: a history is in one, however large."""
        ...

    def partitions(self, spark: SparkSession) -> int:
        """How many partitions the table has."""
        ...

    def table(
        self, spark: SparkSession, columns: Sequence[str], kinds: Sequence[str]
    ) -> AbstractContextManager[DataFrame]:
        """File rows and the events of ``kinds`` (all, if empty), in ``columns``, one history in one partition.

        Inside the block it may be planned, and read several times: no event is moved again. A file that cannot be used has a
        file row that names the problem.
        """
        ...

    def each(self, spark: SparkSession, judge: JudgedHistory, failed: Unjudged, schema: str) -> DataFrame:
        """A row for every history, which ``judge`` makes on an executor, or ``failed`` where that is not possible."""
        ...

    def set_aside(self) -> tuple[tuple[Rejected, ...], int]:
        """Files that are known not to be usable and are in neither of the above: the first ones by name, and how many."""
        ...

    def copies(self) -> Sequence[Copy]:
        """Files that are in neither of the above because others have the same bytes, by name."""
        ...


def histories_of(folder: Path | str) -> Histories:
    """The histories below ``folder``, which may be a data set or one file.

    Raises :class:`NoHistoriesError` if there is none, and :class:`~spark_analysis.dataset.layout.DataSetError` for a data set of
    another version.
    """
    if not is_dataset(folder):
        return _FileHistories(folder, *without_copies(histories_in(folder)))
    dataset = open_dataset(folder)
    if not dataset.taken(["history"]).num_rows:
        raise NoHistoriesError(f"{folder}: is a data set without a history")
    return _StoredHistories(dataset)


class _FileHistories:
    """The files below a folder."""

    def __init__(self, folder: Path | str, files: Sequence[HistoryFile], copies: Sequence[Copy]) -> None:
        self._folder = folder
        self._files = files
        self._copies = copies

    @property
    def size(self) -> int:
        return sum(file.size for file in self._files)

    @property
    def largest_partition(self) -> int:
        return max((file.size for file in self._files), default=0) + PARTITION_BYTES

    def partitions(self, spark: SparkSession) -> int:
        return max(-(-self.size // PARTITION_BYTES), spark.sparkContext.defaultParallelism)

    @contextmanager
    def table(self, spark: SparkSession, columns: Sequence[str], kinds: Sequence[str]) -> Iterator[DataFrame]:
        with TemporaryDirectory(prefix="bk-verify-") as scratch:
            listing = Path(scratch, "files.json")
            list_files(listing, self._files)
            rows = read_histories(spark, self._folder, columns=columns_of(*columns), kinds=kinds, listing=listing)
            yield moved_once(rows.repartition(self.partitions(spark), "history"))

    def each(self, spark: SparkSession, judge: JudgedHistory, failed: Unjudged, schema: str) -> DataFrame:
        def work(files: Sequence[HistoryFile]) -> Iterator[tuple[Any, ...]]:
            return judge_files(files, judge, failed)

        return rows_of_files(spark, self._files, work, schema)

    def set_aside(self) -> tuple[tuple[Rejected, ...], int]:
        return (), 0

    def copies(self) -> Sequence[Copy]:
        return self._copies


class _StoredHistories:
    """The histories of a data set."""

    def __init__(self, dataset: DataSet) -> None:
        self._dataset = dataset

    @property
    def size(self) -> int:
        return sum(map(_size_of, self._dataset.event_files().values()))

    @property
    def largest_partition(self) -> int:
        return max(map(_size_of, self._dataset.event_files().values()), default=0)

    def partitions(self, spark: SparkSession) -> int:  # noqa: ARG002  a data set was divided when it was made
        return self._dataset.buckets

    @contextmanager
    def table(self, spark: SparkSession, columns: Sequence[str], kinds: Sequence[str]) -> Iterator[DataFrame]:
        with bucketed_table(spark, self._dataset, columns_of(*columns).names, kinds) as rows:
            yield rows

    def each(self, spark: SparkSession, judge: JudgedHistory, failed: Unjudged, schema: str) -> DataFrame:
        def work(files: Sequence[str]) -> Iterator[tuple[Any, ...]]:
            return judge_stored(files, judge, failed)

        buckets = [[path for path, _ in files] for _, files in sorted(self._dataset.event_files().items())]
        rows = spark.sparkContext.parallelize(buckets, max(len(buckets), 1)).flatMap(work)
        return spark.createDataFrame(rows, schema)

    def set_aside(self) -> tuple[tuple[Rejected, ...], int]:
        rows = [row for row in self._dataset.set_aside().to_pylist() if row["reason"] != Reason.DUPLICATE]
        return tuple(Rejected(row["history"], row["problem"]) for row in rows[:REJECTED_MAX]), len(rows)

    def copies(self) -> Sequence[Copy]:
        rows = [row for row in self._dataset.set_aside().to_pylist() if row["reason"] == Reason.DUPLICATE]
        return [Copy(row["history"], row["problem"].removeprefix(COPY_OF)) for row in rows]


def _size_of(files: Sequence[tuple[str, int]]) -> int:
    """About how many bytes the files were from which a bucket of a data set was made."""
    return sum(size for _, size in files) * _COMPRESSION


def judge_files(files: Sequence[HistoryFile], judge: JudgedHistory, failed: Unjudged) -> Iterator[tuple[Any, ...]]:
    """On an executor: a row for each of ``files``."""

    def judged(file: HistoryFile) -> tuple[Any, ...]:
        try:
            header, events = _opened(Path(file.path))
            scenario, seed = header.get("scenario"), header.get("seed")
            return judge(
                file.name,
                scenario if isinstance(scenario, str) else None,
                seed if isinstance(seed, int) else None,
                events,
            )
        except Exception as error:  # noqa: BLE001  whatever a history holds, the others are judged
            return failed(file.name, error)

    return collector_paused(map(judged, files))


def _opened(path: Path) -> tuple[HeaderOf, Iterator[Event]]:
    """Header and events of a history, of a small one decoded in one go. Raises :class:`HistoryError`, here or later."""
    data = bytes_up_to(path, WHOLE_FILE_BYTES)
    found = None if data is None else decode_events(data)
    if found is not None:
        return found
    history = History(path)
    return history.header, history.events()


def judge_stored(files: Sequence[str], judge: JudgedHistory, failed: Unjudged) -> Iterator[tuple[Any, ...]]:
    """On an executor: a row for each history in the event ``files`` of a bucket."""

    def judged(history: StoredHistory) -> tuple[Any, ...]:
        try:
            return judge(history.name, history.scenario, history.seed, history.events())
        except Exception as error:  # noqa: BLE001  whatever a history holds, the others are judged
            return failed(history.name, error)

    return collector_paused(map(judged, stored_histories(files)))
