"""The last add confirmed of every ledger: who knew it when, and the proof that no ledger was closed below it.

Four parties know a LAC: the *writer*, which acknowledges entries in order and sends its LAC along with every later entry; the
*bookies*, which keep the highest that they were sent; *readers*, which are told by bookies or open a closed ledger; and the
*metadata*, whose last entry ends a closed ledger. A ledger was not truncated if the last entry it is closed at is not below an
entry that was acknowledged as durable. That takes two events per ledger, so the verdict is a proof and not an estimate, as far
as the histories were not interrupted.

*Lags* tell what piggybacking costs: how many entries a writer had sent beyond its LAC when it sent one more, and the simulated
time from an acknowledgement to the moment when the first bookie, and the first reader, knew a LAC that covers it.

One scan and one shuffle by history; what leaves the executors is a row per scenario, and as many ledgers as are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.invariants.expressions import (
    ENTRY_KEY,
    LEDGER_KEY,
    is_closed,
    is_creation,
    is_deletion,
    is_kind,
    is_stored_metadata,
    is_true,
)
from spark_analysis.jobs.files import REJECTED_MAX, Rejected, rejected_in
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.planning import planned_for_kept_partitions
from spark_analysis.source import event_rows, file_rows

__all__ = ["LacVerdict", "Lag", "LedgerLac", "ScenarioLacs", "analyze_lacs"]

_KINDS: Final = (
    *(Kind.META_CAS, Kind.META_READ),
    *(Kind.APP_ACK, Kind.ADD_SEND, Kind.BK_STORE, Kind.BK_LAC, Kind.LAC_ADV, Kind.READ_RESULT),
)
_COLUMNS: Final = (
    *("history", "scenario", "seed", "kind", "ledger", "seq", "time_us", "entry", "lac", "durable", "recovery"),
    *("cause", "outcome", "state", "last_entry", "problem", "events"),
)
_QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)
#: Of :func:`percentile_approx`: the rank of what it returns is wrong by one part in so many at most.
_ACCURACY: Final = 10_000


@dataclass(frozen=True, slots=True)
class Lag:
    """How far somebody was behind: ``count`` observations, of which ``never`` caught up; quantiles of those that did.

    In entries or in microseconds of simulated time; the quantiles are -1 if there was no observation.
    """

    count: int
    never: int
    p50: int
    p90: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True)
class LedgerLac:
    """One ledger. Entry ids are -1 where there is none.

    ``acknowledged`` is the highest entry acknowledged as durable (in event ``ack_seq``), ``prefix`` the highest up to which
    all were. ``writer_lac``, ``bookie_lac`` and ``reader_lac`` are the highest LAC that each of these had. ``last_entry`` is the
    lowest that the ledger was seen closed at (in event ``close_seq``), and missing while it was open. ``is_recovered`` tells
    whether a recovery closed it, or began to. ``margin`` is how many entries ``last_entry`` is above ``acknowledged``; below 0,
    the ledger was truncated. It is missing where the id was used again after a deletion: events do not say which of the two
    ledgers they are about.
    """

    history: str
    scenario: str
    seed: int
    ledger: int
    acknowledged: int
    ack_seq: int | None
    prefix: int
    writer_lac: int
    bookie_lac: int
    reader_lac: int
    last_entry: int | None
    close_seq: int | None
    is_recovered: bool
    margin: int | None


@dataclass(frozen=True, slots=True)
class ScenarioLacs:
    """All ledgers of a scenario.

    ``least_margin`` is the least :attr:`LedgerLac.margin`; missing if none was closed. ``unconfirmed`` is in entries,
    ``to_bookies_us`` and ``to_readers_us`` are in microseconds.
    """

    scenario: str
    ledgers: int
    closed: int
    recovered: int
    truncated: int
    least_margin: int | None
    unconfirmed: Lag
    to_bookies_us: Lag
    to_readers_us: Lag


@dataclass(frozen=True, slots=True)
class LacVerdict:
    """What came of the analysis of a folder.

    ``ledgers`` are at most as many as were asked for, those with the least margin first; counts are complete.
    """

    histories: int
    scenarios: tuple[ScenarioLacs, ...]
    ledgers: tuple[LedgerLac, ...]
    rejected: tuple[Rejected, ...]
    rejected_files: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether no ledger was truncated."""
        return not any(scenario.truncated for scenario in self.scenarios)

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify lac --json`` prints."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


def analyze_lacs(spark: SparkSession, folder: Path | str, *, max_ledgers: int = MAX_WITNESSES_DEFAULT) -> LacVerdict:
    """Follow the LAC of every ledger of every history below ``folder``, or in the data set there.

    Raises as :func:`~spark_analysis.jobs.inputs.histories_of` does. Files that are no usable histories are named in
    the verdict.
    """
    started = time.perf_counter()
    histories = histories_of(folder)
    with (
        planned_for_kept_partitions(spark, histories.size, histories.largest_partition),
        histories.table(spark, _COLUMNS, [str(kind) for kind in _KINDS]) as rows,
    ):
        table = rows.persist(StorageLevel.MEMORY_AND_DISK_DESER)
        try:
            bad = file_rows(table).filter(sf.col("problem").isNotNull())
            usable, unusable = file_rows(table).filter(sf.col("problem").isNull()).count(), bad.count()
            ledgers = ledger_lacs(event_rows(table)).persist(StorageLevel.MEMORY_AND_DISK_DESER)
            shown = ledgers.orderBy(sf.asc_nulls_last("margin"), *LEDGER_KEY).limit(max_ledgers).collect()
            scenarios = _scenarios(ledgers, entry_lags(event_rows(table)))
            ledgers.unpersist()
            rejected = rejected_in(bad) if unusable else ()
        finally:
            table.unpersist()
    known, known_files = histories.set_aside()
    return LacVerdict(
        histories=usable,
        scenarios=scenarios,
        ledgers=tuple(LedgerLac(**row.asDict()) for row in shown),
        rejected=(*rejected, *known)[:REJECTED_MAX],
        rejected_files=unusable + known_files,
        seconds=time.perf_counter() - started,
    )


def ledger_lacs(events: DataFrame) -> DataFrame:
    """One row per ledger of which anything is known, with the columns of :class:`LedgerLac`."""
    is_durable_ack = is_kind(Kind.APP_ACK) & sf.col("durable")
    is_end = is_stored_metadata() & is_closed()
    entry, lac = sf.col("entry"), sf.col("lac")
    upwards = Window.partitionBy(*LEDGER_KEY).orderBy("entry")
    whole = (
        events.filter(is_durable_ack)
        .select(*ENTRY_KEY)
        .distinct()
        .withColumn("below", sf.row_number().over(upwards) - 1)
        .groupBy(*LEDGER_KEY)
        .agg(sf.max(sf.when(entry == sf.col("below"), entry)).alias("prefix"))
    )
    none = sf.lit(-1).cast("bigint")
    known = events.filter(sf.col("ledger") >= 0).groupBy(*LEDGER_KEY)
    lacs = known.agg(
        sf.first("scenario").alias("scenario"),
        sf.first("seed").alias("seed"),
        sf.max(sf.when(is_durable_ack, sf.struct(entry, (-sf.col("seq")).alias("minus_seq")))).alias("ack"),
        sf.max(sf.when(is_kind(Kind.ADD_SEND) & ~sf.col("recovery"), lac)).alias("writer_lac"),
        sf.max(sf.when(is_kind(Kind.BK_STORE, Kind.BK_LAC), lac)).alias("bookie_lac"),
        sf.max(sf.when(is_kind(Kind.LAC_ADV, Kind.READ_RESULT), lac)).alias("reader_lac"),
        sf.min(sf.when(is_end, sf.struct("last_entry", "seq"))).alias("end"),
        sf.max(is_kind(Kind.META_CAS) & (sf.col("cause") == "recover") & (sf.col("outcome") == "ok")).alias(
            "recovered"
        ),
        sf.min(sf.when(is_deletion(), sf.col("seq"))).alias("deleted"),
        sf.max(sf.when(is_creation(), sf.col("seq"))).alias("created"),
    )
    joined = lacs.join(whole.hint("shuffle_hash"), on=list(LEDGER_KEY), how="left")
    return joined.select(
        "history",
        "scenario",
        "seed",
        "ledger",
        sf.coalesce(sf.col("ack.entry"), none).alias("acknowledged"),
        (-sf.col("ack.minus_seq")).alias("ack_seq"),
        sf.coalesce("prefix", none).alias("prefix"),
        *(sf.coalesce(name, none).alias(name) for name in ("writer_lac", "bookie_lac", "reader_lac")),
        sf.col("end.last_entry").alias("last_entry"),
        sf.col("end.seq").alias("close_seq"),
        sf.coalesce("recovered", sf.lit(False)).alias("is_recovered"),  # noqa: FBT003
        sf.when(
            ~is_true(sf.col("created") > sf.col("deleted")),
            sf.col("end.last_entry") - sf.coalesce(sf.col("ack.entry"), none),
        ).alias("margin"),
    )


def entry_lags(events: DataFrame) -> DataFrame:
    """Observations of lags: ``scenario``, ``lag`` (a field of :class:`ScenarioLacs`) and ``value``, null for never.

    Of every entry that its writer sent, how many before it were not confirmed then; of every entry that was acknowledged, the
    time until the first bookie and the first reader had a LAC not below it.
    """
    sent = (
        events.filter(is_kind(Kind.ADD_SEND) & ~sf.col("recovery") & sf.col("lac").isNotNull())
        .groupBy("scenario", *ENTRY_KEY)
        .agg((sf.col("entry") - 1 - sf.min("lac")).alias("value"))
        .select("scenario", sf.lit("unconfirmed").alias("lag"), "value")
    )
    is_bookie, is_reader = is_kind(Kind.BK_STORE, Kind.BK_LAC), is_kind(Kind.LAC_ADV, Kind.READ_RESULT)
    facts = events.select(
        "scenario",
        *LEDGER_KEY,
        sf.when(is_kind(Kind.APP_ACK), sf.col("entry")).when(is_bookie | is_reader, sf.col("lac")).alias("level"),
        sf.when(is_kind(Kind.APP_ACK), sf.col("time_us")).alias("acked"),
        sf.when(is_bookie, sf.col("time_us")).alias("to_bookies_us"),
        sf.when(is_reader, sf.col("time_us")).alias("to_readers_us"),
    )
    by_level = (
        facts.filter(sf.col("level") >= 0)
        .groupBy("scenario", *LEDGER_KEY, "level")
        .agg(*(sf.min(name).alias(name) for name in ("acked", "to_bookies_us", "to_readers_us")))
    )
    from_above = Window.partitionBy(*LEDGER_KEY).orderBy(sf.desc("level"))
    covered = [sf.min(name).over(from_above).alias(name) for name in ("to_bookies_us", "to_readers_us")]
    known = by_level.select("scenario", "acked", *covered).filter(sf.col("acked").isNotNull())
    late = [
        sf.struct(sf.lit(name).alias("lag"), sf.greatest(sf.col(name) - sf.col("acked"), _or_null(name)).alias("value"))
        for name in ("to_bookies_us", "to_readers_us")
    ]
    return sent.union(known.select("scenario", sf.inline(sf.array(*late))))


def _or_null(name: str) -> Column:
    """0, or null where ``name`` is null: a lag is not negative, as the client acknowledges before the application hears of it."""
    return sf.when(sf.col(name).isNotNull(), sf.lit(0))


def _scenarios(ledgers: DataFrame, lags: DataFrame) -> tuple[ScenarioLacs, ...]:
    is_closed_ledger = sf.col("last_entry").isNotNull()
    counted = (
        ledgers.groupBy("scenario")
        .agg(
            sf.count(sf.lit(1)).alias("ledgers"),
            sf.count_if(is_closed_ledger).alias("closed"),
            sf.count_if(sf.col("is_recovered")).alias("recovered"),
            sf.count_if(sf.col("margin") < 0).alias("truncated"),
            sf.min("margin").alias("least_margin"),
        )
        .orderBy("scenario")
        .collect()
    )
    measured = (
        lags.groupBy("scenario", "lag")
        .agg(
            sf.count(sf.lit(1)).alias("count"),
            sf.count_if(sf.col("value").isNull()).alias("never"),
            sf.percentile_approx("value", list(_QUANTILES), _ACCURACY).alias("quantiles"),
        )
        .collect()
    )
    by_name = {(row["scenario"], row["lag"]): row for row in measured}
    return tuple(
        ScenarioLacs(
            **row.asDict(),
            unconfirmed=_lag(by_name.get((row["scenario"], "unconfirmed"))),
            to_bookies_us=_lag(by_name.get((row["scenario"], "to_bookies_us"))),
            to_readers_us=_lag(by_name.get((row["scenario"], "to_readers_us"))),
        )
        for row in counted
    )


def _lag(row: Row | None) -> Lag:
    if row is None:
        return Lag(0, 0, -1, -1, -1, -1)
    quantiles: Sequence[int] = row["quantiles"] or (-1,) * len(_QUANTILES)
    return Lag(row["count"], row["never"], *quantiles)
