"""The Spark data source of recorded histories: a folder of ``*.bkh`` files as one table.

``spark.read.format("bkhistory").load(folder)`` gives the rows of :data:`spark_analysis.schema.TABLE_SCHEMA`: one per event, and
one *file row* per file (``kind`` null). A file that is no usable history costs its own events, never the job: its file row names
the problem. :func:`event_rows` and :func:`file_rows` take the two apart.

A sweep records thousands of small files; :func:`plan_partitions` packs them into few tasks. With a schema of some of the columns
(:func:`spark_analysis.schema.columns_of`) only these are decoded, with the option ``kinds`` (names joined by commas) only these
kinds of events.

Files are opened by the executors, so on a cluster the folder has to be visible to all of them, and this package has to be there:
:func:`spark_analysis.session.open_session` sends it to them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_analysis.decode import decode_files
from spark_analysis.schema import TABLE_SCHEMA, columns_of

__all__ = [
    "FORMAT",
    "SUFFIX",
    "FilePartition",
    "HistoryDataSource",
    "HistoryFile",
    "event_rows",
    "file_rows",
    "find_histories",
    "list_files",
    "plan_partitions",
    "read_histories",
]

FORMAT: Final = "bkhistory"
SUFFIX: Final = ".bkh"

#: A task reads about this much, or less where that would leave a core without work.
PARTITION_BYTES: Final = 32 * 1024 * 1024

#: What opening a file costs, in bytes that could be read in that time.
OPEN_COST_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file to read: where it is, what rows call it (its path below the folder), its size in bytes, and when it was written."""

    path: str
    name: str
    size: int
    mtime_ns: int = 0


class FilePartition(InputPartition):
    """The files that one task reads."""

    def __init__(self, files: tuple[HistoryFile, ...]) -> None:
        super().__init__(None)
        self.files = files


def find_histories(folder: Path | str) -> list[HistoryFile]:
    """Every ``*.bkh`` file below ``folder``, ordered by name, by its absolute path; ``folder`` may also be one such file.

    Raises ``FileNotFoundError`` if there is nothing of that name.
    """
    root = Path(folder).absolute()
    if root.is_file():
        return [HistoryFile(str(root), root.name, *_size_and_time(root))]
    if not root.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder or file")
    found = []
    for parent, _, names in os.walk(root):
        for name in names:
            if name.endswith(SUFFIX):
                path = Path(parent, name)
                size, mtime_ns = _size_and_time(path)
                found.append(HistoryFile(str(path), path.relative_to(root).as_posix(), size, mtime_ns))
    return sorted(found, key=lambda file: file.name)


def _size_and_time(path: Path) -> tuple[int, int]:
    """Of a file that may be gone, or lead nowhere; reading it will tell."""
    try:
        told = path.stat()
    except OSError:
        return 0, 0
    return told.st_size, told.st_mtime_ns


def plan_partitions(files: Sequence[HistoryFile], parallelism: int) -> list[FilePartition]:
    """``files`` in runs of about equal cost, in order.

    There are about ``parallelism`` runs, if there are that many files, and more where a run would exceed
    :data:`PARTITION_BYTES`.
    """
    total = sum(file.size + OPEN_COST_BYTES for file in files)
    target = min(PARTITION_BYTES, -(-total // max(parallelism, 1)))
    partitions, run, cost = [], [], 0
    for file in files:
        run.append(file)
        cost += file.size + OPEN_COST_BYTES
        if cost >= target:
            partitions.append(FilePartition(tuple(run)))
            run, cost = [], 0
    if run:
        partitions.append(FilePartition(tuple(run)))
    return partitions


def list_files(listing: Path, files: Sequence[HistoryFile]) -> None:
    """Write ``files`` to ``listing``, which the driver reads when the query is planned. An option would go to every task."""
    listing.write_text(json.dumps([(file.path, file.name, file.size) for file in files]), encoding="utf-8")


def _listed(listing: Path) -> list[HistoryFile]:
    return [HistoryFile(*file) for file in json.loads(listing.read_text(encoding="utf-8"))]


class HistoryDataSource(DataSource):
    """Short name ``bkhistory``. Options: ``path``, ``kinds`` (names joined by commas), ``parallelism`` (tasks wanted).

    ``listing`` is a file with those to read, as :func:`list_files` writes it; without it the folder is searched.
    """

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return FORMAT

    def schema(self) -> StructType:
        """All columns of all kinds."""
        return TABLE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the wanted columns; ``ValueError`` for a column, or a type, that histories do not have."""
        known = columns_of(*schema.names)
        types = {field.name: field.dataType for field in known.fields}
        for field in schema.fields:
            if field.dataType != types[field.name]:
                raise ValueError(
                    f"column {field.name} is {types[field.name].simpleString()}, not {field.dataType.simpleString()}"
                )
        path = self.options.get("path")
        if not path:
            raise ValueError(f"{FORMAT} needs the path of a folder of *{SUFFIX} files")
        kinds = self.options.get("kinds")
        parallelism = int(self.options.get("parallelism", 0)) or os.cpu_count() or 1
        return _Reader(
            path, self.options.get("listing"), schema, frozenset(kinds.split(",")) if kinds else None, parallelism
        )


class _Reader(DataSourceReader):
    """Reads the folder as it was when the query was planned."""

    def __init__(
        self,
        path: str,
        listing: str | None,
        schema: StructType,
        kinds: frozenset[str] | None,
        parallelism: int,
    ) -> None:
        self._path = path
        self._listing = listing
        self._schema = schema
        self._kinds = kinds
        self._parallelism = parallelism

    def partitions(self) -> Sequence[InputPartition]:
        """Runs of files."""
        files = find_histories(self._path) if self._listing is None else _listed(Path(self._listing))
        return plan_partitions(files, self._parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the files of ``partition``."""
        files = partition.files if isinstance(partition, FilePartition) else ()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        yield from decode_files(((Path(file.path), file.name) for file in files), schema, self._kinds)


def read_histories(
    spark: SparkSession,
    folder: Path | str,
    *,
    columns: StructType = TABLE_SCHEMA,
    kinds: Sequence[str] = (),
    listing: Path | None = None,
) -> DataFrame:
    """The table of the histories in ``folder``, not read yet; ``spark`` may be any session, of a notebook, too.

    Files are read by the interpreter that this program has, unless ``PYSPARK_PYTHON`` names another.
    ``columns`` and ``kinds`` (all, if empty) narrow it, and ``listing``, a file of :func:`list_files`.
    """
    if "PYSPARK_PYTHON" not in os.environ and (spark.sparkContext.master or "").startswith("local"):
        spark.sparkContext.pythonExec = sys.executable  # PySpark's own choice is python3, which may lack this package
    spark.dataSource.register(HistoryDataSource)
    reader = spark.read.format(FORMAT).schema(columns).option("parallelism", spark.sparkContext.defaultParallelism)
    if kinds:
        reader = reader.option("kinds", ",".join(kinds))
    if listing is not None:
        reader = reader.option("listing", str(listing))
    return reader.load(str(folder))


def event_rows(table: DataFrame) -> DataFrame:
    """The events in ``table``."""
    return table.filter(sf.col("kind").isNotNull())


def file_rows(table: DataFrame) -> DataFrame:
    """The file rows in ``table``, one per file, usable or not."""
    return table.filter(sf.col("kind").isNull())
