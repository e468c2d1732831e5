"""The courses of some ledgers' LACs over time, to be drawn: who knew it when, and where the ledger ended.

Of every ledger and party a bounded number of points: time is cut into slots, and what counts of a slot is its highest LAC and
when it was first known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import LEDGER_KEY, is_closed, is_kind, is_stored_metadata
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.planning import planned_for_kept_partitions
from spark_analysis.source import event_rows

__all__ = ["PARTIES", "LacCourse", "lac_courses"]

#: Who has a LAC, in the order of drawing: the application's acknowledgements, and who learns of them.
PARTIES: Final = ("acknowledged", "writer", "bookies", "readers", "metadata")

_KINDS: Final = (
    *(Kind.META_CAS, Kind.META_READ, Kind.APP_ACK, Kind.ADD_SEND),
    *(Kind.BK_STORE, Kind.BK_LAC, Kind.LAC_ADV, Kind.READ_RESULT),
)
_COLUMNS: Final = (
    *("history", "kind", "ledger", "seq", "time_us", "entry", "lac", "durable", "recovery"),
    *("cause", "outcome", "state", "last_entry"),
)
_SLOTS: Final = 200


@dataclass(frozen=True, slots=True)
class LacCourse:
    """A ledger's course: for each of :data:`PARTIES` points of time in microseconds and entry id, both rising."""

    history: str
    ledger: int
    lines: Mapping[str, tuple[tuple[int, int], ...]]


def lac_courses(spark: SparkSession, folder: Path | str, ledgers: Sequence[tuple[str, int]]) -> tuple[LacCourse, ...]:
    """The courses of these ``ledgers``, pairs of history and ledger id, in their order; few, for all come to the driver."""
    if not ledgers:
        return ()
    histories = histories_of(folder)
    with (
        planned_for_kept_partitions(spark, histories.size, histories.largest_partition),
        histories.table(spark, _COLUMNS, [str(kind) for kind in _KINDS]) as rows,
    ):
        found = _points(event_rows(rows), ledgers).collect()
    lines: dict[tuple[str, int], dict[str, list[tuple[int, int]]]] = {}
    for row in sorted(found, key=lambda row: (row["time_us"], row["level"])):
        line = lines.setdefault((row["history"], row["ledger"]), {}).setdefault(row["party"], [])
        if not line or row["level"] > line[-1][1]:
            line.append((row["time_us"], row["level"]))
    return tuple(
        LacCourse(*key, {party: tuple(lines.get(key, {}).get(party, ())) for party in PARTIES}) for key in ledgers
    )


def _points(events: DataFrame, ledgers: Sequence[tuple[str, int]]) -> DataFrame:
    """``history``, ``ledger``, ``party``, ``level`` and ``time_us``, of each slot of time the highest level."""
    is_wanted: Column = reduce(
        Column.__or__, ((sf.col("history") == history) & (sf.col("ledger") == ledger) for history, ledger in ledgers)
    )
    level = sf.when(is_kind(Kind.APP_ACK), sf.col("entry")).when(
        is_kind(Kind.META_CAS, Kind.META_READ), sf.col("last_entry")
    )
    party = (
        sf.when(is_kind(Kind.APP_ACK) & sf.col("durable"), "acknowledged")
        .when(is_kind(Kind.ADD_SEND) & ~sf.col("recovery"), "writer")
        .when(is_kind(Kind.BK_STORE, Kind.BK_LAC), "bookies")
        .when(is_kind(Kind.LAC_ADV, Kind.READ_RESULT), "readers")
        .when(is_stored_metadata() & is_closed(), "metadata")
    )
    known = (
        events.filter(is_wanted)
        .select(*LEDGER_KEY, party.alias("party"), sf.coalesce(level, "lac").alias("level"), "time_us")
        .filter(sf.col("party").isNotNull() & sf.col("level").isNotNull())
    )
    spans = known.groupBy(*LEDGER_KEY).agg(
        sf.min("time_us").alias("begin"), (sf.max("time_us") - sf.min("time_us") + 1).alias("span")
    )
    slot = sf.floor((sf.col("time_us") - sf.col("begin")) * _SLOTS / sf.col("span"))
    highest = sf.max(sf.struct("level", (-sf.col("time_us")).alias("minus_time"))).alias("highest")
    return (
        known.join(spans.hint("shuffle_hash"), on=list(LEDGER_KEY))
        .groupBy(*LEDGER_KEY, "party", slot.alias("slot"))
        .agg(highest)
        .select(*LEDGER_KEY, "party", "highest.level", (-sf.col("highest.minus_time")).alias("time_us"))
    )
