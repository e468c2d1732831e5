"""The streaming source of Spark that judges histories as they grow: ``spark.readStream.format("bkverdicts")``.

A micro-batch is what came since the last one (:mod:`spark_analysis.streaming.arrivals`), and its rows are the judgements of the
tasks that read it (:mod:`spark_analysis.streaming.growing`): one for each history that is new or has grown.

How far a history was judged is a file below ``open``, which the task that judges it writes anew with each scan. A scan that is
repeated, because a task or the whole program was ended, starts from what the scan before it left, and comes to the same. What no
scan can ask for any more is removed when Spark is done with a micro-batch. Nothing else is kept, so the state is that of the
histories that are open.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from scenarios.checker import INVARIANTS
from spark_analysis.source import HistoryFile, plan_partitions
from spark_analysis.streaming.arrivals import Arrival, Arrivals, write_whole
from spark_analysis.streaming.growing import Growth, HistoryState, Progress, judge_growth

__all__ = ["FORMAT", "STREAMED_SCHEMA", "StreamSource", "register"]

FORMAT: Final = "bkverdicts"

#: A look at a history: ``scan`` when it was taken, ``started`` the scan in which judging it began, ``events`` and
#: ``checked`` of all that was judged, ``violations`` those that are new.
STREAMED_SCHEMA: Final = """
    history string, scan bigint, started bigint, state string, problem string, scenario string, seed bigint, events bigint,
    digest string, checked array<string>,
    violations array<struct<invariant: string, clause: string, ledger: bigint, witness: string, seqs: array<bigint>>>
"""

_OPEN: Final = "open"
_SCANS: Final = "scans"
_PROGRESS: Final = ".progress"
_ENDED: Final = ".ended"
#: A task judges some histories, so that Python starts fewer times.
_PARTITIONS: Final = 8


class _Arrived(InputPartition):
    """Histories that one task judges, in one scan."""

    def __init__(self, scan: int, arrivals: tuple[Arrival, ...]) -> None:
        super().__init__(None)
        self.scan = scan
        self.arrivals = arrivals


class StreamSource(DataSource):
    """Short name ``bkverdicts``. Options: ``path``, the folder of histories, and ``kept``, a folder for what has to be kept."""

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a look at a history."""
        return STREAMED_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  Spark's names
        """A reader of what comes to the folder; ``ValueError`` without one of the options."""
        path, kept = self.options.get("path"), self.options.get("kept")
        if not path or not kept:
            raise ValueError(f"{FORMAT} needs the path of a folder of histories, and of one for what is kept")
        return _Reader(path, Path(kept))


class _Reader(DataSourceStreamReader):
    """One lives beside the driver and looks; copies of it judge on executors."""

    def __init__(self, path: str, kept: Path) -> None:
        self._path = path
        self._kept = kept
        self._arrivals: Arrivals | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Reader, (self._path, self._kept)  # who judges does not look

    def _looking(self) -> Arrivals:
        if self._arrivals is None:
            self._arrivals = Arrivals(self._path, self._kept / _SCANS)
        return self._arrivals

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first scan."""
        return {"scan": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802
        """After the last scan, or one more where nothing else is left to be judged."""
        return {"scan": self._looking().look(start["scan"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """What came, divided by its size."""
        found = self._looking().between(start["scan"], end["scan"])
        by_name = {arrival.name: arrival for arrival in found}
        files = [HistoryFile(arrival.path, arrival.name, arrival.grown) for arrival in found]
        return [
            _Arrived(end["scan"], tuple(by_name[file.name] for file in partition.files))
            for partition in plan_partitions(files, _PARTITIONS)
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """On an executor: a row for each history of ``partition``."""
        if isinstance(partition, _Arrived):
            for arrival in partition.arrivals:
                yield _judge(self._kept, arrival, partition.scan)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing up to ``end`` will be asked for again."""
        for folder in (self._kept / _OPEN).glob("*"):
            _clear(folder, end["scan"])
        self._looking().forget(end["scan"])


def register(spark: SparkSession) -> None:
    """Make the source known to ``spark``."""
    spark.dataSource.register(StreamSource)


def _judge(kept: Path, arrival: Arrival, scan: int) -> tuple[Any, ...]:
    folder = kept / _OPEN / hashlib.sha256(arrival.name.encode()).hexdigest()
    growth = judge_growth(arrival.path, _load(folder, scan), arrival.up_to, scan)
    folder.mkdir(parents=True, exist_ok=True)
    if growth.state is HistoryState.OPEN:
        write_whole(folder / f"{scan:012d}{_PROGRESS}", pickle.dumps(growth.progress))
    else:
        write_whole(folder / f"{scan:012d}{_ENDED}", b"")
    return _row(arrival.name, scan, growth)


def _row(name: str, scan: int, growth: Growth) -> tuple[Any, ...]:
    progress = growth.progress
    judged = progress.checker.checked
    return (
        *(name, scan, progress.started, str(growth.state), growth.problem, progress.scenario, progress.seed),
        *(progress.checker.events, growth.digest, [invariant for invariant in INVARIANTS if judged[invariant]]),
        [(one.invariant, one.clause, one.ledger, one.witness, list(one.seqs)) for one in growth.violations],
    )


def _load(folder: Path, scan: int) -> Progress | None:
    """What the last scan before ``scan`` left of a history; None if it had ended, or was not there."""
    earlier = [path for path in _states(folder) if int(path.stem) < scan]
    if not earlier or earlier[-1].suffix != _PROGRESS:
        return None
    progress = pickle.loads(earlier[-1].read_bytes())  # noqa: S301  written by this program, to a folder of its own
    assert isinstance(progress, Progress), "nothing else is written there"
    return progress


def _clear(folder: Path, scan: int) -> None:
    """Remove what no scan after ``scan`` starts from."""
    old = [path for path in _states(folder) if int(path.stem) <= scan]
    if old and old[-1].suffix == _ENDED and old == _states(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in old[:-1]:
        path.unlink(missing_ok=True)


def _states(folder: Path) -> list[Path]:
    """The files of a history, by scan."""
    return sorted(path for suffix in (_PROGRESS, _ENDED) for path in folder.glob(f"[0-9]*{suffix}"))
