"""One history file to Arrow record batches, the work of a reading task.

A file is judged whole: nothing of it is emitted before its footer and digest have been checked, so a truncated or damaged
file contributes one file row that says so, and no event. What is wrong with a file is decided by
:class:`scenarios.history.History` alone. Files up to :data:`WHOLE_FILE_BYTES` are decoded in one go, with the same checks in
bulk and several times faster; where a bulk check fails, or the file is larger, the file is read as ``History`` reads it,
twice: once to check it, once to emit it in pieces of :data:`PIECE_ROWS`, which bounds the memory of the task.

Rows are emitted grouped by kind, not in order; ``seq`` has the order. Kinds and fields that this version does not know are
passed over: an unknown kind keeps its common fields, an unknown field has no column.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import msgpack
import pyarrow as pa

from scenarios.history import History, HistoryError
from scenarios.history.schema import COMMON_FIELDS

__all__ = ["PIECE_ROWS", "WHOLE_FILE_BYTES", "decode_file"]

WHOLE_FILE_BYTES: Final = 64 * 1024 * 1024
PIECE_ROWS: Final = 100_000

_HEADER_DESCRIPTION: Final = ("format", "schema_version", "kinds", "fields")

#: An event as it is packed: the index of its kind, then its fields in order, the kind not repeated.
_Row = Sequence[Any]
_ROW_COMMON: Final = ("", *(name for name in COMMON_FIELDS if name != "kind"))


@dataclass(frozen=True, slots=True)
class _File:
    """One file and what is wanted of it."""

    history: History
    name: str
    fields_by_kind: Mapping[str, tuple[str, ...]]
    schema: pa.Schema
    kinds: frozenset[str] | None

    def new_groups(self) -> dict[str, list[_Row]]:
        return {kind: [] for kind in self.fields_by_kind}

    def file_row(self, events: int, digest: str) -> dict[str, Any]:
        header = {key: value for key, value in self.history.header.items() if key not in _HEADER_DESCRIPTION}
        return {"events": events, "digest": digest, "header": json.dumps(header, sort_keys=True, default=repr)}


def decode_file(path: Path, name: str, schema: pa.Schema, kinds: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    """The rows of the history in ``path``, which rows call ``name``: its events, then its file row.

    ``schema`` says which columns are wanted, ``kinds`` which kinds of events (all, if ``None``). An unusable file yields its
    file row alone.
    """
    try:
        history = History(path)
        fields_by_kind = {str(kind): tuple(names) for kind, names in history.header["kinds"]}
        file = _File(history, name, fields_by_kind, schema, kinds)
        whole = _read_whole(file) if path.stat().st_size <= WHOLE_FILE_BYTES else None
        if whole is not None:
            yield whole
            return
        for _ in _read_in_pieces(file):
            pass  # whatever is wrong with the file has to come up before any of its rows is emitted
    except HistoryError as error:
        yield _rejection(name, schema, error.problem)
    except OSError as error:
        yield _rejection(name, schema, f"cannot be read ({error.strerror})")
    else:
        yield from _read_in_pieces(file)


def _read_whole(file: _File) -> pa.RecordBatch | None:
    """All rows of a file that passes every check; ``None`` where one fails, for ``History`` to say why."""
    data = file.history.path.read_bytes()
    unpacker = msgpack.Unpacker(None, max_buffer_size=max(len(data), 1), strict_map_key=False)
    unpacker.feed(data)
    by_index: list[list[_Row]] = [[] for _ in file.fields_by_kind]
    try:
        unpacker.skip()
        start = unpacker.tell()
        items = list(unpacker)
        footer = items.pop()
        end = len(data) - len(msgpack.packb(footer))
        digest = hashlib.sha256(memoryview(data)[start:end]).hexdigest()
        if footer != {"events": len(items), "digest": digest}:
            return None
        if [item[1] for item in items] != list(range(len(items))):
            return None
        for item in items:
            by_index[item[0]].append(item)
    except (msgpack.UnpackException, ValueError, TypeError, LookupError):
        return None
    groups = dict(zip(file.fields_by_kind, by_index, strict=True))
    for kind, names in file.fields_by_kind.items():
        if set(map(len, groups[kind])) - {len(_ROW_COMMON) + len(names)}:
            return None
    return _batch(file, groups, file.file_row(len(items), digest))


def _read_in_pieces(file: _File) -> Iterator[pa.RecordBatch]:
    """The rows of a file read in order, some at a time; raises :class:`HistoryError` where something is wrong."""
    groups, count, events = file.new_groups(), 0, 0
    for seq, time_us, actor, kind, ledger, fields in file.history.rows():
        events += 1
        if file.kinds is not None and kind not in file.kinds:
            continue
        groups[kind].append((None, seq, time_us, actor, ledger, *fields.values()))
        count += 1
        if count == PIECE_ROWS:
            yield _batch(file, groups, None)
            groups, count = file.new_groups(), 0
    yield _batch(file, groups, file.file_row(events, file.history.digest))


def _batch(file: _File, groups: Mapping[str, list[_Row]], file_row: Mapping[str, Any] | None) -> pa.RecordBatch:
    """The rows of the wanted kinds, and the file row if there is one, as one batch."""
    parts: list[tuple[int, Mapping[str, Any]]] = []
    for kind, rows in groups.items():
        if rows and (file.kinds is None or kind in file.kinds):
            names = chain(_ROW_COMMON, file.fields_by_kind[kind])
            columns: dict[str, Any] = dict(zip(names, zip(*rows, strict=True), strict=True))
            columns["kind"] = repeat(kind, len(rows))
            if "fragments" in columns:
                columns["fragments"] = map(_fragments, columns["fragments"])
            parts.append((len(rows), columns))
    if file_row is not None:
        parts.append((1, {key: (value,) for key, value in file_row.items()}))
    total = sum(count for count, _ in parts)
    shared = {
        "history": file.name,
        "scenario": file.history.header.get("scenario"),
        "seed": file.history.header.get("seed"),
    }
    arrays = []
    for field in file.schema:
        if field.name in shared:
            values: Any = repeat(shared[field.name], total)
        else:
            values = chain.from_iterable(columns.get(field.name, repeat(None, count)) for count, columns in parts)
        arrays.append(_array(file, field, list(values)))
    return pa.RecordBatch.from_arrays(arrays, schema=file.schema)


def _fragments(value: Any) -> Any:
    """Fragments as Arrow takes them; anything else is returned for Arrow to refuse."""
    try:
        return None if value is None else [{"first_entry": first, "bookies": bookies} for first, bookies in value]
    except (TypeError, ValueError):
        return value


def _array(file: _File, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = f"holds a value in the field {field.name} that is no {field.type} ({error})"
        raise HistoryError(file.history.path, problem) from error


def _rejection(name: str, schema: pa.Schema, problem: str) -> pa.RecordBatch:
    row = {"history": name, "problem": problem}
    return pa.RecordBatch.from_pylist([row], schema=schema)
