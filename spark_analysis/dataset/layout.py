"""How a data set lies in its folder, and what may be read.

::

    bk-dataset.json                      what this is: format, version, number of buckets
    ingest-000001/events/*_00003.parquet the rows of the histories in bucket 3, one file or several
    ingest-000001/taken.parquet          the histories that were taken
    ingest-000001/set_aside.parquet      the files that were not, and why

Each ingest adds a folder, which gets its name when all of it is written. So what is below a name that begins with ``ingest-`` is
whole, and an ingest that was ended in the middle left nothing behind but a folder that the next one removes.

Event files have the columns of :data:`spark_analysis.schema.TABLE_SCHEMA`: a row for every event, a file row for every history.
A row group holds whole histories, or a piece of a large one that has a whole range of its events; in it rows are ordered by kind,
history and ``seq``. Columns may be added without a new version: those that a file does not have are null.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = [
    "COPY_OF",
    "DATASET_VERSION",
    "DESCRIPTION",
    "SET_ASIDE_SCHEMA",
    "TAKEN_SCHEMA",
    "DataSet",
    "DataSetError",
    "Reason",
    "create_dataset",
    "is_dataset",
    "open_dataset",
]

DESCRIPTION: Final = "bk-dataset.json"
_FORMAT: Final = "bk-dataset"
DATASET_VERSION: Final = 1

_INGEST: Final = "ingest-"
_UNFINISHED: Final = "_unfinished-"
_BUCKETS_MAX: Final = 100_000


#: How the problem of a duplicate begins; after it comes the name of the history with the same bytes.
COPY_OF: Final = "is a copy of "


class Reason:
    """Why a file is set aside; values of the column ``reason``."""

    #: It ends before its footer: somebody writes it still, or was interrupted.
    TORN: Final = "torn"
    #: It is no history.
    FOREIGN: Final = "foreign"
    #: Another version of the format.
    VERSION: Final = "version"
    #: It is a history, and its content is not what it says.
    DAMAGED: Final = "damaged"
    #: The same bytes are in the data set under another name.
    DUPLICATE: Final = "duplicate"
    #: The data set has another history of that name.
    NAME_TAKEN: Final = "name-taken"


#: Of every history: its name, what its file was like when it was taken, and what its header and footer say.
TAKEN_SCHEMA: Final = pa.schema(
    [
        ("history", pa.string()),
        ("size", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("sha256", pa.string()),
        ("scenario", pa.string()),
        ("seed", pa.int64()),
        ("events", pa.int64()),
        ("digest", pa.string()),
    ]
)

#: Of every file that was not taken: its name, what it was like, one of :class:`Reason`, and the reason in words.
SET_ASIDE_SCHEMA: Final = pa.schema(
    [
        ("history", pa.string()),
        ("size", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("reason", pa.string()),
        ("problem", pa.string()),
    ]
)


class DataSetError(Exception):
    """A folder is no data set that this program can work with; the message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set: its folder, an absolute path, and into how many buckets its histories are divided."""

    root: Path
    buckets: int

    @property
    def ingests(self) -> list[Path]:
        """The folders of all ingests that came to their end, the first one first."""
        return sorted(path for path in self.root.glob(f"{_INGEST}*") if path.is_dir())

    def events_glob(self) -> str:
        """All folders of event files, as a pattern in which the characters of the folder's own name mean themselves."""
        literally = re.sub(r"([\\*?\[\]{}])", r"\\\1", str(self.root))
        return f"{literally}/{_INGEST}*/events"

    def event_files(self) -> dict[int, list[tuple[str, int]]]:
        """Every event file with its size in bytes, by bucket, those of one history one after the other in order."""
        found: dict[int, list[tuple[str, int]]] = {}
        for ingest in self.ingests:
            for path in sorted((ingest / "events").glob("*.parquet")):
                found.setdefault(int(path.stem.rpartition("_")[2]), []).append((str(path), path.stat().st_size))
        return found

    def taken(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The histories in it, in the columns of :data:`TAKEN_SCHEMA`."""
        return self._rows("taken.parquet", TAKEN_SCHEMA, columns)

    def set_aside(self) -> pa.Table:
        """The files that are set aside at present, by name, in the columns of :data:`SET_ASIDE_SCHEMA`.

        A file that was torn once and is whole by now was taken by a later ingest, and is not among them.
        """
        rows = self._rows("set_aside.parquet", SET_ASIDE_SCHEMA, None).to_pylist()
        latest = {row["history"]: row for row in rows}  # a later ingest has the last word
        taken = set(self.taken(["history"])["history"].to_pylist())
        left = [row for name, row in sorted(latest.items()) if name not in taken or row["reason"] == Reason.NAME_TAKEN]
        return pa.Table.from_pylist(left, schema=SET_ASIDE_SCHEMA)

    def begin_ingest(self) -> Path:
        """A new folder to write the next ingest to. What an ingest that did not come to its end left is removed."""
        for left in self.root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        ingests = self.ingests
        number = int(ingests[-1].name.removeprefix(_INGEST)) + 1 if ingests else 1
        folder = self.root / f"{_UNFINISHED}{number:06d}"
        (folder / "events").mkdir(parents=True)
        return folder

    def finish_ingest(self, folder: Path) -> None:
        """Make what was written to ``folder`` part of the data set, at once."""
        folder.rename(self.root / folder.name.replace(_UNFINISHED, _INGEST))

    def _rows(self, name: str, schema: pa.Schema, columns: Sequence[str] | None) -> pa.Table:
        parts = [pq.read_table(ingest / name, columns=columns) for ingest in self.ingests]
        wanted = schema if columns is None else pa.schema([schema.field(column) for column in columns])
        return pa.concat_tables(parts) if parts else wanted.empty_table()


def is_dataset(folder: Path | str) -> bool:
    """Whether ``folder`` says of itself that it is a data set."""
    return Path(folder, DESCRIPTION).is_file()


def open_dataset(folder: Path | str) -> DataSet:
    """The data set in ``folder``; :class:`DataSetError` if it is none, or one of another version."""
    path = Path(folder, DESCRIPTION)
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataSetError(f"{folder}: is no data set ({DESCRIPTION} cannot be read: {error.strerror})") from error
    except ValueError as error:
        raise DataSetError(f"{folder}: is no data set ({DESCRIPTION} is not JSON)") from error
    if not isinstance(described, dict) or described.get("format") != _FORMAT:
        raise DataSetError(f"{folder}: is no data set ({DESCRIPTION} does not say that it is one)")
    if described.get("version") != DATASET_VERSION:
        raise DataSetError(
            f"{folder}: is a data set of version {described.get('version')}; this program reads version {DATASET_VERSION}. "
            "Ingest its histories again."
        )
    buckets = described.get("buckets")
    if not isinstance(buckets, int) or not 1 <= buckets <= _BUCKETS_MAX:
        raise DataSetError(f"{folder}: is a damaged data set ({DESCRIPTION} says {buckets} buckets)")
    return DataSet(Path(folder).absolute(), buckets)


def create_dataset(folder: Path | str, buckets: int) -> DataSet:
    """A new, empty data set in ``folder``, which has to be empty or missing; :class:`DataSetError` otherwise."""
    if not 1 <= buckets <= _BUCKETS_MAX:
        raise DataSetError(f"buckets must be in 1..{_BUCKETS_MAX}, got {buckets}")
    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise DataSetError(f"{folder}: is neither empty nor a data set; choose another folder")
        described = {"format": _FORMAT, "version": DATASET_VERSION, "buckets": buckets}
        partial = root / f"{_UNFINISHED}{DESCRIPTION}"
        partial.write_text(json.dumps(described) + "\n", encoding="utf-8")
        partial.rename(root / DESCRIPTION)
    except OSError as error:
        raise DataSetError(f"{folder}: cannot be written ({error.strerror})") from error
    return DataSet(root.absolute(), buckets)
