"""History files to Arrow record batches, the work of a reading task.

A file is judged whole: nothing of it is emitted before its footer and digest have been checked, so a truncated or damaged
file contributes one file row that says so, and no event. What is wrong with a file is decided by
:class:`scenarios.history.History` alone. Files up to :data:`WHOLE_FILE_BYTES` are decoded in one go, with the same checks in
bulk and several times faster; where a bulk check fails, or the file is larger, the file is read as ``History`` reads it,
twice: once to check it, once to emit it in pieces of :data:`PIECE_ROWS`, which bounds the memory of the task.

Rows are emitted grouped by kind, not in order; ``seq`` has the order. Kinds and fields that this version does not know are
passed over: an unknown kind keeps its common fields, an unknown field has no column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from scenarios.history import History, HistoryError
from spark_analysis.columns import Batch, Taken, ValueTypeError
from spark_analysis.packed import Groups, KindOf, bytes_up_to, decode_whole

__all__ = ["PIECE_ROWS", "WHOLE_FILE_BYTES", "decode_files"]

WHOLE_FILE_BYTES: Final = 64 * 1024 * 1024
PIECE_ROWS: Final = 100_000

#: Small files are emitted together up to about this many rows, because each batch has a fixed cost on both sides.
_MERGED_ROWS: Final = 16_384


def decode_files(
    files: Iterable[tuple[Path, str]], schema: pa.Schema, kinds: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """The rows of histories, each a path and what rows call it: the events and a file row of each.

    ``schema`` says which columns are wanted, ``kinds`` which kinds of events (all, if ``None``). An unusable file yields its
    file row alone.
    """
    small = Batch(schema)
    for path, name in files:
        try:
            data = bytes_up_to(path, WHOLE_FILE_BYTES)
            whole = None if data is None else decode_whole(data)
            del data
            if whole is not None:
                small.add(Taken(name, whole.header, whole.events, whole.digest), _only(whole.groups, kinds))
                if small.events >= _MERGED_ROWS:
                    yield from _batches_of(small)
                    small = Batch(schema)
                continue
            history = History(path)
            for _ in _in_pieces(history, name, schema, kinds):
                pass  # whatever is wrong with the file has to come up before any of its rows is emitted
        except HistoryError as error:
            yield _rejection(name, schema, error.problem)
        except ValueTypeError as error:
            yield _rejection(name, schema, str(error))
        except OSError as error:
            yield _rejection(name, schema, f"cannot be read ({error.strerror})")
        else:
            for piece in _in_pieces(history, name, schema, kinds):
                yield from piece.to_batches()
    yield from _batches_of(small)


def _only(groups: Groups, kinds: frozenset[str] | None) -> Groups:
    return [(kind, rows) for kind, rows in groups if kinds is None or kind[0] in kinds]


def _in_pieces(history: History, name: str, schema: pa.Schema, kinds: frozenset[str] | None) -> Iterator[pa.Table]:
    """The rows of a file read in order, some at a time. Raises :class:`HistoryError` and :class:`ValueTypeError`."""
    events = count = 0
    groups: dict[KindOf, list[Sequence[Any]]] = {}
    for seq, time_us, actor, kind, ledger, fields in history.rows():
        events += 1
        if kinds is not None and kind not in kinds:
            continue
        groups.setdefault((kind, tuple(fields)), []).append((None, seq, time_us, actor, ledger, *fields.values()))
        count += 1
        if count == PIECE_ROWS:
            yield _table(schema, Taken(name, history.header), groups)
            groups, count = {}, 0
    yield _table(schema, Taken(name, history.header, events, history.digest), groups)


def _table(schema: pa.Schema, history: Taken, groups: Mapping[KindOf, list[Sequence[Any]]]) -> pa.Table:
    rows = Batch(schema)
    rows.add(history, list(groups.items()))
    return rows.table().combine_chunks()


def _batches_of(small: Batch) -> Iterator[pa.RecordBatch]:
    rows, problems = small.checked()
    yield from rows.combine_chunks().to_batches()
    for name, problem in problems.items():
        yield _rejection(name, small.schema, problem)


def _rejection(name: str, schema: pa.Schema, problem: str) -> pa.RecordBatch:
    row = {"history": name, "problem": problem}
    return pa.RecordBatch.from_pylist([row], schema=schema)
