"""Events of many histories to one Arrow table, each column of each kind in one go.

A kind has ten fields of forty, so a table is put together from parts of one kind each: what the kind has is converted, column
by column, and what it has not is a run of nulls, which costs nothing. So rows are ordered by kind, then by history and ``seq``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Final

import pyarrow as pa

from spark_analysis.packed import LEADING, Groups, HeaderOf, KindOf

__all__ = ["Batch", "Taken", "ValueTypeError"]

_DESCRIPTION: Final = ("format", "schema_version", "kinds", "fields")


class ValueTypeError(Exception):
    """A field holds a value of another type than it has; the message says which, as what is wrong with the file."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What the rows of a history have in common, and its file row: none for a piece that is not the last."""

    name: str
    header: HeaderOf
    events: int | None = None
    digest: str | None = None

    @property
    def scenario(self) -> str | None:
        """The scenario in the header, if there is one."""
        found = self.header.get("scenario")
        return found if isinstance(found, str) else None

    @property
    def seed(self) -> int | None:
        """The seed in the header, if there is one."""
        found = self.header.get("seed")
        return found if isinstance(found, int) else None


@dataclass(slots=True)
class Batch:
    """Events of some histories, on their way to becoming a table with the columns of ``schema``, all there are or fewer."""

    schema: pa.Schema
    events: int = 0
    _added: list[tuple[Taken, Groups]] = field(default_factory=list)

    @property
    def histories(self) -> list[Taken]:
        """Those that were added."""
        return [history for history, _ in self._added]

    def add(self, history: Taken, groups: Groups) -> None:
        """Add the rows of ``history``, grouped by kind, each as it is packed."""
        self._added.append((history, groups))
        self.events += sum(len(rows) for _, rows in groups)

    def checked(self) -> tuple[pa.Table, dict[str, str]]:
        """The table of all histories whose values have the types of their fields, and by name what is wrong with the others."""
        try:
            return self.table(), {}
        except ValueTypeError:
            problems, good = {}, Batch(self.schema)
            for history, groups in self._added:
                alone = Batch(self.schema)
                alone.add(history, groups)
                try:
                    alone.table()
                except ValueTypeError as error:
                    problems[history.name] = str(error)
                else:
                    good.add(history, groups)
            return good.table(), problems

    def table(self) -> pa.Table:
        """All rows, those of files last. Raises :class:`ValueTypeError`."""
        rows_of: dict[KindOf, list[Sequence[Any]]] = {}
        owners_of: dict[KindOf, list[repeat[int]]] = {}
        for number, (_, groups) in enumerate(self._added):
            for kind, rows in groups:
                if rows:
                    rows_of.setdefault(kind, []).extend(rows)
                    owners_of.setdefault(kind, []).append(repeat(number, len(rows)))
        parts = [self._part(kind, rows_of[kind], chain.from_iterable(owners_of[kind])) for kind in sorted(rows_of)]
        parts.append(self._file_rows())
        columns: dict[str, list[pa.Array]] = {name: [] for name in self.schema.names}
        for length, present in parts:
            nothing = {type_: pa.nulls(length, type_) for type_ in set(self.schema.types)}
            for name, chunks in columns.items():
                array = present.get(name)
                chunks.append(nothing[self.schema.field(name).type] if array is None else array)
        arrays = [pa.chunked_array(columns[field.name], field.type) for field in self.schema]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _part(self, kind: KindOf, rows: list[Sequence[Any]], owners: Iterable[int]) -> tuple[int, dict[str, pa.Array]]:
        name, fields = kind
        values: dict[str, Any] = dict(zip(chain(LEADING, fields), zip(*rows, strict=True), strict=True))
        del values[""]
        if "fragments" in values:
            values["fragments"] = list(map(_fragments, values["fragments"]))
        present = self._shared(list(owners))
        present["kind"] = pa.repeat(pa.scalar(name, pa.string()), len(rows))
        for column, found in values.items():
            index = self.schema.get_field_index(column)
            if index >= 0:
                present[column] = _array(column, found, self.schema.field(index).type)
        return len(rows), present

    def _shared(self, numbers: list[int]) -> dict[str, pa.Array]:
        """The columns that all rows of a history share, for rows of the histories of these numbers."""
        which = pa.array(numbers, pa.int32())
        return {
            "history": pa.array([history.name for history in self.histories], pa.string()).take(which),
            "scenario": pa.array([history.scenario for history in self.histories], pa.string()).take(which),
            "seed": _array("seed", [history.seed for history in self.histories], pa.int64()).take(which),
        }

    def _file_rows(self) -> tuple[int, dict[str, pa.Array]]:
        ended = [number for number, history in enumerate(self.histories) if history.digest is not None]
        whole = [self.histories[number] for number in ended]
        return len(ended), self._shared(ended) | {
            "events": pa.array([history.events for history in whole], pa.int64()),
            "digest": pa.array([history.digest for history in whole], pa.string()),
            "header": pa.array([_header_text(history.header) for history in whole], pa.string()),
        }


def _header_text(header: HeaderOf) -> str:
    """The header without the description of the format, as JSON."""
    told = {key: value for key, value in header.items() if key not in _DESCRIPTION}
    return json.dumps(told, sort_keys=True, default=repr)


def _fragments(value: Any) -> Any:
    """Fragments as Arrow takes them; anything else is returned for Arrow to refuse."""
    try:
        return None if value is None else [{"first_entry": first, "bookies": bookies} for first, bookies in value]
    except (TypeError, ValueError):
        return value


def _array(name: str, values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, type=type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueTypeError(f"holds a value in the field {name} that is no {type_} ({error})") from error
