"""What an executor does for an ingest: it decodes files, or a chunk of a large one, and writes one event file."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from scenarios.history import History, HistoryError
from simbookie.collector_off import collector_off
from spark_analysis.columns import Batch, Taken, ValueTypeError
from spark_analysis.dataset.survey import Chunk, Surveyed
from spark_analysis.packed import MALFORMED, Groups, decode_whole, group, kinds_of, unpacker
from spark_analysis.schema import TABLE_SCHEMA

__all__ = ["GROUP_EVENTS", "BucketWork", "ChunkWork", "FileOutcome", "write_bucket", "write_chunk"]

_ARROW_SCHEMA: Final = to_arrow_schema(TABLE_SCHEMA, timezone="UTC")

#: A row group is written when it has so many events, which bounds the memory of readers and writers.
GROUP_EVENTS: Final = 1 << 16

#: Columns whose values repeat. The others are numbers that hardly do.
_REPEATING: Final = [field.name for field in _ARROW_SCHEMA if field.type in (pa.string(), pa.bool_())]


@dataclass(frozen=True, slots=True)
class BucketWork:
    """Files of one bucket, to be written to the event file ``target``."""

    target: str
    files: tuple[Surveyed, ...]

    @property
    def size(self) -> int:
        """How many bytes there are to read."""
        return sum(found.file.size for found in self.files)


@dataclass(frozen=True, slots=True)
class ChunkWork:
    """A chunk of a large file, to be written to the event file ``target``; the last one also writes the file row."""

    target: str
    found: Surveyed
    chunk: Chunk
    is_last: bool

    @property
    def size(self) -> int:
        """How many bytes there are to read."""
        return self.chunk.end - self.chunk.start


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of a file, or of a chunk of it: what is known of it once taken, or the ``problem``."""

    name: str
    problem: str | None
    scenario: str | None = None
    seed: int | None = None
    events: int = 0
    digest: str = ""


def write_bucket(work: BucketWork) -> list[FileOutcome]:
    """Decode files and write their rows. A file that cannot be used costs its own rows only."""
    outcomes: list[FileOutcome] = []
    with collector_off(), _event_file(Path(work.target)) as writer:
        batch = Batch(_ARROW_SCHEMA)
        for found in work.files:
            try:
                taken, groups = _decoded(found)
            except HistoryError as error:
                outcomes.append(FileOutcome(found.file.name, error.problem))
                continue
            except OSError as error:
                outcomes.append(FileOutcome(found.file.name, f"cannot be read ({error.strerror})"))
                continue
            batch.add(taken, groups)
            if batch.events >= GROUP_EVENTS:
                outcomes += _write(writer, batch)
                batch = Batch(_ARROW_SCHEMA)
        outcomes += _write(writer, batch)
    return outcomes


def write_chunk(work: ChunkWork) -> list[FileOutcome]:
    """Decode a chunk and write its rows, some at a time."""
    found = work.found
    try:
        history = History(Path(found.file.path))
        with collector_off(), _event_file(Path(work.target)) as writer:
            for taken, groups in _pieces(work, history):
                batch = Batch(_ARROW_SCHEMA)
                batch.add(taken, groups)
                _write_group(writer, batch.table())
    except HistoryError as error:
        return [FileOutcome(found.file.name, error.problem)]
    except ValueTypeError as error:
        return [FileOutcome(found.file.name, str(error))]
    except OSError as error:
        return [FileOutcome(found.file.name, f"cannot be read ({error.strerror})")]
    told = Taken(found.file.name, history.header)
    return [FileOutcome(found.file.name, None, told.scenario, told.seed, work.chunk.events, found.digest)]


# Decoding -----------------------------------------------------------------------------------------------------------


def _decoded(found: Surveyed) -> tuple[Taken, Groups]:
    """The rows of a small file, all checked. Raises :class:`HistoryError`."""
    path = Path(found.file.path)
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != found.sha256:
        raise HistoryError(path, "is truncated, or changes while it is read")
    whole = decode_whole(data)
    if whole is None:
        for _ in History(path).rows():
            pass  # which says what is wrong
        raise HistoryError(path, "is damaged")
    return Taken(found.file.name, whole.header, whole.events, whole.digest), whole.groups


def _pieces(work: ChunkWork, history: History) -> Iterator[tuple[Taken, Groups]]:
    """The rows of a chunk, in pieces of :data:`GROUP_EVENTS`. Raises :class:`HistoryError`."""
    path, chunk, name = Path(work.found.file.path), work.chunk, work.found.file.name
    with path.open("rb") as stream:
        stream.seek(chunk.start)
        data = stream.read(chunk.end - chunk.start)
    objects, kinds = unpacker(data), kinds_of(history.header)
    seq, last = chunk.first_seq, chunk.first_seq + chunk.events
    while seq < last:
        try:
            items = [objects.unpack() for _ in range(min(GROUP_EVENTS, last - seq))]
            groups = group(items, kinds, seq)
        except MALFORMED as error:
            raise HistoryError(path, f"is damaged between event {seq} and event {last} ({error})") from error
        seq += len(items)
        ends = work.is_last and seq == last
        yield (
            Taken(name, history.header, *((work.found.events, work.found.digest) if ends else ())),
            groups,
        )


# Writing ------------------------------------------------------------------------------------------------------------


def _write(writer: pq.ParquetWriter, batch: Batch) -> list[FileOutcome]:
    """Write a row group; where a value is of a wrong type, without the histories that have one."""
    rows, problems = batch.checked()
    _write_group(writer, rows)
    return [
        FileOutcome(found.name, problems[found.name])
        if found.name in problems
        else FileOutcome(found.name, None, found.scenario, found.seed, found.events or 0, found.digest or "")
        for found in batch.histories
    ]


def _write_group(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    if rows.num_rows:
        writer.write_table(rows, row_group_size=rows.num_rows)


@contextmanager
def _event_file(target: Path) -> Iterator[pq.ParquetWriter]:
    """A writer of ``target``, which gets its name when all is written, so that a task may be tried again."""
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with pq.ParquetWriter(
            partial,
            _ARROW_SCHEMA,
            compression="zstd",
            use_dictionary=_REPEATING,
            store_schema=False,
            write_page_index=True,  # rows are ordered by kind, so who asks for one passes over the pages of others
        ) as writer:
            yield writer
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def work_of(item: BucketWork | ChunkWork) -> Iterable[FileOutcome]:
    """Do a piece of work, whichever it is."""
    return write_bucket(item) if isinstance(item, BucketWork) else write_chunk(item)
