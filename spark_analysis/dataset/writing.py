"""What an executor does for an ingest: it decodes files, or a chunk of a large one, and writes one event file."""

from __future__ import annotations

import gc
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq

from scenarios.history import History, HistoryError
from spark_analysis.dataset.columns import EVENT_ARROW_SCHEMA, Batch, KindOf, Taken, ValueTypeError
from spark_analysis.dataset.survey import Chunk, Surveyed

__all__ = ["GROUP_EVENTS", "BucketWork", "ChunkWork", "FileOutcome", "write_bucket", "write_chunk"]

#: A row group is written when it has so many events, which bounds the memory of readers and writers.
GROUP_EVENTS: Final = 1 << 16

#: Columns whose values repeat. The others are numbers that hardly do.
_REPEATING: Final = [field.name for field in EVENT_ARROW_SCHEMA if field.type in (pa.string(), pa.bool_())]


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
    with _collector_paused(), _event_file(Path(work.target)) as writer:
        batch, waiting = Batch(), []
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
            waiting.append((taken, groups))
            if batch.events >= GROUP_EVENTS:
                outcomes += _write(writer, batch, waiting)
                batch, waiting = Batch(), []
        if waiting:
            outcomes += _write(writer, batch, waiting)
    return outcomes


def write_chunk(work: ChunkWork) -> list[FileOutcome]:
    """Decode a chunk and write its rows, some at a time."""
    found = work.found
    try:
        history = History(Path(found.file.path))
        with _collector_paused(), _event_file(Path(work.target)) as writer:
            for taken, groups in _pieces(work, history):
                batch = Batch()
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

_Groups = list[tuple[KindOf, list[Sequence[Any]]]]


def _decoded(found: Surveyed) -> tuple[Taken, _Groups]:
    """The rows of a small file, all checked. Raises :class:`HistoryError`."""
    path = Path(found.file.path)
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != found.sha256:
        raise HistoryError(path, "is truncated, or changes while it is read")
    decoded = _decode_whole(data)
    if decoded is None:
        for _ in History(path).rows():
            pass  # which says what is wrong
        raise HistoryError(path, "is damaged")
    header, groups, events, digest = decoded
    return Taken(found.file.name, header, events, digest), groups


def _decode_whole(data: bytes) -> tuple[Mapping[str, Any], _Groups, int, str] | None:
    """Header, rows by kind, how many, and their digest; None where any check fails that a reader of histories makes."""
    unpacker = msgpack.Unpacker(None, max_buffer_size=max(len(data), 1), strict_map_key=False)
    unpacker.feed(data)
    try:
        header = unpacker.unpack()
        start = unpacker.tell()
        items = list(unpacker)
        footer = items.pop()
        end = len(data) - len(msgpack.packb(footer))
        digest = hashlib.sha256(memoryview(data)[start:end]).hexdigest()
        if footer != {"events": len(items), "digest": digest}:
            return None
        return header, _grouped(items, header, 0), len(items), digest
    except (msgpack.UnpackException, ValueError, TypeError, LookupError):
        return None


def _pieces(work: ChunkWork, history: History) -> Iterator[tuple[Taken, _Groups]]:
    """The rows of a chunk, in pieces of :data:`GROUP_EVENTS`. Raises :class:`HistoryError`."""
    path, chunk, name = Path(work.found.file.path), work.chunk, work.found.file.name
    with path.open("rb") as stream:
        stream.seek(chunk.start)
        data = stream.read(chunk.end - chunk.start)
    unpacker = msgpack.Unpacker(None, max_buffer_size=max(len(data), 1), strict_map_key=False)
    unpacker.feed(data)
    seq, last = chunk.first_seq, chunk.first_seq + chunk.events
    while seq < last:
        try:
            items = [unpacker.unpack() for _ in range(min(GROUP_EVENTS, last - seq))]
            groups = _grouped(items, history.header, seq)
        except (msgpack.UnpackException, ValueError, TypeError, LookupError) as error:
            raise HistoryError(path, f"is damaged between event {seq} and event {last} ({error})") from error
        seq += len(items)
        ends = work.is_last and seq == last
        yield (
            Taken(name, history.header, *((work.found.events, work.found.digest) if ends else ())),
            groups,
        )


def _grouped(items: list[Any], header: Mapping[str, Any], first_seq: int) -> _Groups:
    """Events by kind. ``ValueError``, ``TypeError`` or ``LookupError`` where one has another shape or place."""
    if [item[1] for item in items] != list(range(first_seq, first_seq + len(items))):
        raise ValueError("events are missing or out of order")
    kinds: list[KindOf] = [(str(kind), tuple(map(str, names))) for kind, names in header["kinds"]]
    by_index: list[list[Any]] = [[] for _ in kinds]
    for item in items:
        by_index[item[0]].append(item)
    for (kind, names), rows in zip(kinds, by_index, strict=True):
        if set(map(len, rows)) - {5 + len(names)}:
            raise ValueError(f"an event of kind {kind} has not {len(names)} fields")
    return list(zip(kinds, by_index, strict=True))


# Writing ------------------------------------------------------------------------------------------------------------


def _write(writer: pq.ParquetWriter, batch: Batch, waiting: list[tuple[Taken, _Groups]]) -> list[FileOutcome]:
    """Write a row group; where a value is of a wrong type, without the histories that have one."""
    try:
        _write_group(writer, batch.table())
        return [_taken(taken) for taken, _ in waiting]
    except ValueTypeError:
        outcomes, good = [], Batch()
        for taken, groups in waiting:
            alone = Batch()
            alone.add(taken, groups)
            try:
                alone.table()
            except ValueTypeError as error:
                outcomes.append(FileOutcome(taken.name, str(error)))
            else:
                good.add(taken, groups)
                outcomes.append(_taken(taken))
        if good.histories:
            _write_group(writer, good.table())
        return outcomes


def _taken(taken: Taken) -> FileOutcome:
    return FileOutcome(taken.name, None, taken.scenario, taken.seed, taken.events or 0, taken.digest or "")


def _write_group(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    writer.write_table(rows, row_group_size=max(rows.num_rows, 1))


@contextmanager
def _event_file(target: Path) -> Iterator[pq.ParquetWriter]:
    """A writer of ``target``, which gets its name when all is written, so that a task may be tried again."""
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with pq.ParquetWriter(
            partial, EVENT_ARROW_SCHEMA, compression="zstd", use_dictionary=_REPEATING, store_schema=False
        ) as writer:
            yield writer
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Decoding makes millions of lists without a cycle; looking for some among them takes longer than decoding."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def work_of(item: BucketWork | ChunkWork) -> Iterable[FileOutcome]:
    """Do a piece of work, whichever it is."""
    return write_bucket(item) if isinstance(item, BucketWork) else write_chunk(item)
