"""The tables of the analysis: what the columns are called and of which type they are.

All kinds of events share one flat, wide table, because a field means the same wherever it stands
(docs/reference/history-format.md). A history is one file; ``history`` names it and is the unit that every judgement is made
for. Beside its event rows, the data source emits one *file row* per file, with ``kind`` null and the file columns set: that
is where a history without events, and a file that is no usable history, show up.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from scenarios.history import FIELDS, FieldType
from scenarios.history.schema import COMMON_FIELDS

__all__ = [
    "EVENT_SCHEMA",
    "FILE_COLUMNS",
    "FINDING_SCHEMA",
    "HISTORY_COLUMNS",
    "TABLE_SCHEMA",
    "columns_of",
]

_FRAGMENT: Final = StructType(
    [
        StructField("first_entry", LongType()),
        StructField("bookies", ArrayType(StringType())),
    ]
)

_TYPES: Final[dict[FieldType, DataType]] = {
    FieldType.LONG: LongType(),
    FieldType.STRING: StringType(),
    FieldType.BOOLEAN: BooleanType(),
    FieldType.FRAGMENTS: ArrayType(_FRAGMENT),
}

_COMMON_TYPES: Final[dict[str, DataType]] = {
    "seq": LongType(),
    "time_us": LongType(),
    "actor": StringType(),
    "kind": StringType(),
    "ledger": LongType(),
}

assert tuple(_COMMON_TYPES) == COMMON_FIELDS, "every common field has its type"

#: What every row carries: the file's name, and the scenario and seed of its header.
HISTORY_COLUMNS: Final = ("history", "scenario", "seed")

#: What only file rows carry: why the file was rejected (else null), its count of events, its digest, and the header as JSON
#: without the description of the format.
FILE_COLUMNS: Final = ("problem", "events", "digest", "header")

EVENT_SCHEMA: Final = StructType(
    [
        StructField("history", StringType()),
        StructField("scenario", StringType()),
        StructField("seed", LongType()),
        *(StructField(name, type_) for name, type_ in _COMMON_TYPES.items()),
        *(StructField(name, _TYPES[type_]) for name, type_ in FIELDS.items()),
    ]
)

#: Everything the data source can emit.
TABLE_SCHEMA: Final = StructType(
    [
        *EVENT_SCHEMA.fields,
        StructField("problem", StringType()),
        StructField("events", LongType()),
        StructField("digest", StringType()),
        StructField("header", StringType()),
    ]
)

#: What an invariant says of one ledger of one history: that it holds, or, with a witness, what is wrong: from which event on,
#: which clause is broken, and the numbers of the events that show it. A row for each broken clause, counted by ``nth`` from 0.
FINDING_SCHEMA: Final = StructType(
    [
        StructField("invariant", StringType()),
        StructField("history", StringType()),
        StructField("ledger", LongType()),
        StructField("nth", IntegerType()),
        StructField("seq", LongType()),
        StructField("clause", StringType()),
        StructField("witness", StringType()),
        StructField("evidence", ArrayType(LongType())),
    ]
)


def columns_of(*names: str) -> StructType:
    """The part of :data:`TABLE_SCHEMA` with these columns, in the table's order. ``ValueError`` for a column it has not."""
    unknown = sorted(set(names) - set(TABLE_SCHEMA.names))
    if unknown:
        raise ValueError(f"histories have no column {', '.join(unknown)}; they have {', '.join(TABLE_SCHEMA.names)}")
    return StructType([field for field in TABLE_SCHEMA.fields if field.name in names])
