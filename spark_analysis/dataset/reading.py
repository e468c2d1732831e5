"""Reading a data set: as a table that Spark knows to be partitioned by history, and as the events of one history after the other.

Spark takes the placement of bucketed tables for granted, so nothing that groups or joins by history moves a row. A table has to
be in a catalog to be bucketed; it is put there for as long as the rows are looked at, and Spark's defaults leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, repeat, starmap
from operator import attrgetter
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from scenarios.history import KINDS, Event
from spark_analysis.dataset.layout import DataSet
from spark_analysis.schema import TABLE_SCHEMA

__all__ = ["StoredHistory", "bucketed_table", "stored_histories"]

_SEQ: Final = attrgetter("seq")


@contextmanager
def bucketed_table(
    spark: SparkSession,
    dataset: DataSet,
    columns: Sequence[str],
    kinds: Sequence[str],
) -> Iterator[DataFrame]:
    """The rows of ``dataset``: file rows and the events of ``kinds``, in ``columns``, one history in one partition.

    Inside the block the table may be planned and read; what was planned of it stays readable.
    """
    name = f"bkdataset_{uuid4().hex}"
    types = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in TABLE_SCHEMA.fields)
    location = dataset.events_glob().replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(
        f"CREATE TABLE {name} ({types}) USING parquet CLUSTERED BY (history) INTO {dataset.buckets} BUCKETS LOCATION '{location}'"
    )
    try:
        rows = _without_name(spark, spark.table(name))
        if kinds:
            rows = rows.filter(sf.col("kind").isNull() | sf.col("kind").isin(*kinds))
        yield rows.select(*columns)
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def _without_name(spark: SparkSession, table: DataFrame) -> DataFrame:
    """``table``, its columns no longer being those of a named table.

    A kept relation whose columns belong to a name is not recognised as partitioned when it is joined with itself: Spark compares
    its columns, names and all, with those that it is partitioned by, which have none.
    """
    jvm: Any = spark._jvm  # noqa: SLF001  there is no public way to take a plan over
    plan = table._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001


class StoredHistory:
    """A history of a data set: its name and what its header says, and its events, once."""

    def __init__(self, name: str, scenario: str | None, seed: int | None, pieces: Iterator[Sequence[Event]]) -> None:
        self.name = name
        self.scenario = scenario
        self.seed = seed
        self._pieces = pieces

    def events(self) -> Iterator[Event]:
        """All events in order."""
        for piece in self._pieces:
            yield from piece


def stored_histories(files: Sequence[str]) -> Iterator[StoredHistory]:
    """The histories in the event files of one bucket, one after the other.

    A row group holds whole histories or a piece of one, so no more than a row group is in memory.
    """
    groups = _groups(files)
    ahead = next(groups, None)
    while ahead is not None:
        group, ahead = ahead, None
        unfinished = [name for name in group if not group[name].has_ended]
        for name in group:
            if name not in unfinished:
                yield StoredHistory(name, group[name].scenario, group[name].seed, iter([group[name].events]))
        if not unfinished:
            ahead = next(groups, None)
            continue
        (name,) = unfinished  # the pieces of a large history are alone in their row groups
        first = group[name]
        large = _large(name, first.events, groups)
        yield StoredHistory(name, first.scenario, first.seed, large)
        for _ in large:
            pass  # whatever the caller did not look at
        ahead = next(groups, None)


def _large(name: str, first: Sequence[Event], groups: Iterator[dict[str, _Part]]) -> Iterator[Sequence[Event]]:
    """The pieces of a history that several row groups hold, up to the one that ends it."""
    yield first
    for group in groups:
        yield group[name].events
        if group[name].has_ended:
            return


class _Part:
    """What a row group has of a history."""

    __slots__ = ("events", "has_ended", "scenario", "seed")

    def __init__(self, scenario: str | None, seed: int | None) -> None:
        self.scenario = scenario
        self.seed = seed
        self.events: list[Event] = []
        self.has_ended = False


def _groups(files: Sequence[str]) -> Iterator[dict[str, _Part]]:
    for path in files:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                yield _group(file.read_row_group(number))


def _group(rows: pa.Table) -> dict[str, _Part]:
    """The events of a row group by history, in order."""
    found: dict[str, _Part] = {}
    kinds = pc.run_end_encode(rows["kind"].combine_chunks())
    start = 0
    runs: Iterator[tuple[str | None, int]] = zip(kinds.values.to_pylist(), kinds.run_ends.to_pylist(), strict=True)
    for kind, end in runs:
        part = rows.slice(start, end - start)
        start = end
        histories = part["history"].to_pylist()
        if kind is None:
            _begin(found, part)
            for name in histories:
                found[name].has_ended = True
            continue
        if not found.keys() >= set(histories):
            _begin(found, part)
        events = _events(kind, part)
        begin = 0
        for name, run in groupby(histories):  # rows of a kind are ordered by history
            stop = begin + sum(1 for _ in run)
            found[name].events += events[begin:stop]
            begin = stop
    for one in found.values():
        one.events.sort(key=_SEQ)
    return found


def _events(kind: str, rows: pa.Table) -> list[Event]:
    names = [name for name in KINDS.get(kind, ()) if name in rows.column_names]
    common = (rows[name].to_pylist() for name in ("seq", "time_us", "actor"))
    told = zip(*(_values(rows, name) for name in names), strict=True) if names else repeat((), rows.num_rows)
    fields = [dict(zip(names, values, strict=False)) for values in told]  # as many as names
    return list(starmap(Event, zip(*common, repeat(kind), rows["ledger"].to_pylist(), fields, strict=False)))


def _begin(found: dict[str, _Part], rows: pa.Table) -> None:
    """Have a part for every history in ``rows``."""
    told = zip(rows["history"].to_pylist(), rows["scenario"].to_pylist(), rows["seed"].to_pylist(), strict=True)
    for name, scenario, seed in told:
        if name not in found:
            found[name] = _Part(scenario, seed)


def _values(rows: pa.Table, name: str) -> list[Any]:
    values: list[Any] = rows[name].to_pylist()
    if name == "fragments":
        return [None if value is None else [_pair(fragment) for fragment in value] for value in values]
    return values


def _pair(fragment: Mapping[str, Any] | None) -> Any:
    return None if fragment is None else [fragment["first_entry"], fragment["bookies"]]
