"""What faults do: which effects follow which faults, how appends fare under them, and which situations no run came across.

Everything is found by Spark, by history: faults and effects of a history are small arrays, appends meet those of their own
history only. What comes to the driver is a row for each kind of fault, pair of kinds, and situation. Violations and situations
are told by the checker and by what counts situations, in one pass over each history on the executors.

A *fault* is an event FAULT that breaks something; it lasts until what it broke is mended, or the run ends. Of an *effect* it is
known that it came after the fault, not that it came from it: so each is told with its *lift*, how much more often it followed
that fault than it occurs at all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from scenarios.checker import OnlineChecker
from scenarios.history import Event, Kind
from scenarios.situations import SITUATIONS, Situations
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind, join_small
from spark_analysis.jobs.files import REJECTED_MAX, Rejected, counted_files, problem_of, rejected_in
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.planning import planned_for_kept_partitions
from spark_analysis.source import event_rows

__all__ = ["EFFECTS", "NO_FAULT", "Analysis", "FaultEffects", "FaultedAppends", "analyse"]

#: What may follow a fault. A recovery is long if nine of ten take less time.
EFFECTS: Final = ("ensemble change", "long recovery", "violation")
_LONG: Final = 0.9

#: In place of a fault, where appends met none.
NO_FAULT: Final = "none"

#: Causes of FAULT that mend.
_HEAL: Final = "heal"
_RESTART: Final = "restart"
_CRASH: Final = "crash"

_KINDS: Final = (
    *(Kind.FAULT, Kind.META_CAS, Kind.REC_START, Kind.OPEN_RESULT),
    *(Kind.APP_ADD, Kind.APP_ACK, Kind.APP_FAIL, Kind.APP_CANCEL),
)
_COLUMNS: Final = (
    *("history", "kind", "ledger", "seq", "time_us", "actor", "incarnation", "entry", "cause", "outcome", "recovery"),
    *("fault", "phase", "target", "problem"),
)
_TOLD: Final = "history string, problem string, events bigint, met array<string>, violation bigint"


@dataclass(frozen=True, slots=True)
class FaultEffects:
    """What followed a kind of fault, or two of them, in the ``histories`` that have it, or both.

    For each of :data:`EFFECTS`: in how many of these histories it ``followed`` the fault, or the later one of the two, and its
    ``lift``: that share, divided by the share of all histories in which the effect occurs; None where it never occurs.
    """

    faults: tuple[str, ...]
    histories: int
    followed: dict[str, int]
    lift: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class FaultedAppends:
    """Appends that were under way while a kind of fault was, or none (:data:`NO_FAULT`).

    ``acknowledged`` and ``failed`` were told so, the others nothing; ``availability`` is the acknowledged share. ``p50_us`` and
    ``p99_us`` are the time to the acknowledgement in microseconds, None if there is none.
    """

    fault: str
    appends: int
    acknowledged: int
    failed: int
    availability: float
    p50_us: int | None
    p99_us: int | None


@dataclass(frozen=True, slots=True)
class Analysis:
    """What an analysis came to.

    ``base`` counts the histories in which each of :data:`EFFECTS` occurs, ``long_us`` is from when on a recovery is long (None if
    there was none). ``met`` counts, for every situation, the histories that came across it. At most
    :data:`~spark_analysis.jobs.files.REJECTED_MAX` files are named in ``rejected``; counts are complete.
    """

    histories: int
    events: int
    base: dict[str, int]
    long_us: int | None
    effects: tuple[FaultEffects, ...]
    appends: tuple[FaultedAppends, ...]
    met: dict[str, int]
    rejected: tuple[Rejected, ...]
    rejected_files: int
    seconds: float

    @property
    def never_met(self) -> tuple[str, ...]:
        """The situations that no history came across."""
        return tuple(name for name, count in self.met.items() if not count)

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-verify analyse --json`` prints."""
        return asdict(self) | {"never_met": list(self.never_met), "seconds": round(self.seconds, 3)}


def analyse(spark: SparkSession, folder: Path | str) -> Analysis:
    """Analyse the histories below ``folder``, or in the data set there.

    Raises as :func:`~spark_analysis.jobs.inputs.histories_of` does.
    """
    started = time.perf_counter()
    histories = histories_of(folder)
    told = histories.each(spark, _judge, _unjudged, _TOLD).persist(StorageLevel.MEMORY_AND_DISK_DESER)
    kinds = [str(kind) for kind in _KINDS]
    with (
        planned_for_kept_partitions(spark, histories.size, histories.largest_partition),
        histories.table(spark, _COLUMNS, kinds) as rows,
    ):
        events = event_rows(rows).persist(StorageLevel.MEMORY_AND_DISK_DESER)
        try:
            counted = counted_files(told)
            met = {row["name"]: row["count"] for row in _met(told).collect()}
            recoveries = _recoveries(events)
            long_us = _long(recoveries)
            effects = _effects(events, recoveries, told, long_us).persist()
            base = {row["effect"]: row["count"] for row in effects.groupBy("effect").count().collect()}
            faults = _faults(events)
            followed = _followed(faults, effects, base, counted["histories"])
            appends = tuple(FaultedAppends(**row.asDict()) for row in _appends(events, faults).collect())
            rejected = rejected_in(told.filter(sf.col("problem").isNotNull()))
        finally:
            events.unpersist()
            told.unpersist()
    known, known_files = histories.set_aside()
    return Analysis(
        histories=counted["histories"],
        events=counted["events"],
        base={effect: base.get(effect, 0) for effect in EFFECTS},
        long_us=long_us,
        effects=followed,
        appends=appends,
        met={name: met.get(name, 0) for name in SITUATIONS},
        rejected=(*rejected, *known)[:REJECTED_MAX],
        rejected_files=counted["rejected"] + known_files,
        seconds=time.perf_counter() - started,
    )


def _judge(name: str, _scenario: str | None, _seed: int | None, events: Iterator[Event]) -> tuple[Any, ...]:
    """On an executor: what the checker and the situations say of a history; ``violation`` is the event of the last one."""
    checker, situations = OnlineChecker(), Situations()
    for event in events:
        checker.feed(event)
        situations.feed(event)
    seqs = [max(found.seqs, default=0) for found in checker.finish()]
    return name, None, checker.events, list(situations.met), max(seqs, default=None)


def _unjudged(name: str, error: Exception) -> tuple[Any, ...]:
    return name, problem_of(error), None, [], None


def _met(told: DataFrame) -> DataFrame:
    return told.select(sf.explode("met").alias("name")).groupBy("name").count()


# Faults and effects -------------------------------------------------------------------------------------------------


def _faults(events: DataFrame) -> DataFrame:
    """Per history: ``faults``, each with ``seq``, ``time_us``, ``cause``, and ``mended_us``, null if it lasts to the end."""
    fault = sf.struct("seq", "time_us", "cause", "fault", "target", "phase")
    does_mend = sf.col("cause").isin(_HEAL, _RESTART) | (sf.col("phase") == "end")
    does_mend = sf.coalesce(does_mend, sf.lit(False))  # noqa: FBT003

    def is_mended_by(broken: Column, mend: Column) -> Column:
        is_restart = (
            (mend["cause"] == _RESTART) & (broken["cause"] == _CRASH) & mend["target"].eqNullSafe(broken["target"])
        )
        is_heal = (mend["cause"] == _HEAL) & (broken["cause"] != _CRASH)
        is_end = (mend["phase"] == "end") & (mend["fault"] == broken["fault"])
        return (mend["seq"] > broken["seq"]) & (is_restart | is_heal | is_end)

    def lasting(broken: Column) -> Column:
        mends = sf.filter("mends", lambda mend: is_mended_by(broken, mend))
        mended = sf.array_min(sf.transform(mends, lambda mend: mend["time_us"]))
        return sf.struct(*(broken[name].alias(name) for name in ("seq", "time_us", "cause")), mended.alias("mended_us"))

    return (
        events.filter(is_kind(Kind.FAULT))
        .groupBy("history")
        .agg(
            sf.collect_list(sf.when(~does_mend, fault)).alias("broken"),
            sf.collect_list(sf.when(does_mend, fault)).alias("mends"),
        )
        .select("history", sf.transform("broken", lasting).alias("faults"))
    )


def _recoveries(events: DataFrame) -> DataFrame:
    """One row per recovery that came to its result: ``history``, ``seq`` of the result, and ``took_us``."""
    start, result = is_kind(Kind.REC_START), is_kind(Kind.OPEN_RESULT) & sf.col("recovery")
    moment = sf.struct("seq", "time_us")
    of_client = (
        events.filter(start | result)
        .groupBy(*LEDGER_KEY, "actor")
        .agg(
            sf.collect_list(sf.when(start, moment)).alias("starts"),
            sf.collect_list(sf.when(result, moment)).alias("results"),
        )
        .select("history", "starts", sf.explode("results").alias("result"))
    )
    begun = sf.array_max(sf.filter("starts", lambda one: one["seq"] < sf.col("result")["seq"]))
    took = sf.col("result")["time_us"] - begun["time_us"]
    return of_client.select("history", sf.col("result")["seq"].alias("seq"), took.alias("took_us")).filter(
        "took_us IS NOT NULL"
    )


def _long(recoveries: DataFrame) -> int | None:
    row = recoveries.agg(sf.percentile_approx("took_us", _LONG).alias("long_us")).first()
    found: int | None = row["long_us"] if row is not None else None
    return found


def _effects(events: DataFrame, recoveries: DataFrame, told: DataFrame, long_us: int | None) -> DataFrame:
    """Per history and effect: ``last``, the event in which it was there last."""
    is_change = is_kind(Kind.META_CAS) & (sf.col("cause") == "ensemble") & (sf.col("outcome") == "ok")
    changes = events.filter(is_change).select("history", "seq")
    long = recoveries.filter(sf.col("took_us") > (long_us or 0)).select("history", "seq")
    violations = told.filter(sf.col("violation").isNotNull()).select("history", sf.col("violation").alias("seq"))
    found = zip(EFFECTS, (changes, long, violations), strict=True)
    parts = [rows.select("history", "seq", sf.lit(effect).alias("effect")) for effect, rows in found]
    return parts[0].union(parts[1]).union(parts[2]).groupBy("history", "effect").agg(sf.max("seq").alias("last"))


def _followed(faults: DataFrame, effects: DataFrame, base: dict[str, int], histories: int) -> tuple[FaultEffects, ...]:
    """What followed each kind of fault, and each two of them, the most frequent first."""
    first = (
        faults.select("history", sf.inline("faults"))
        .groupBy("history", "cause")
        .agg(sf.min("seq").alias("seq"))
        .groupBy("history")
        .agg(sf.sort_array(sf.collect_list(sf.struct("cause", "seq"))).alias("firsts"))
    )
    one = first.select("history", sf.explode("firsts").alias("one"), "firsts")
    singles = one.select("history", sf.array("one.cause").alias("faults"), sf.col("one.seq").alias("seq"))
    pairs = one.select("history", "one", sf.explode("firsts").alias("other")).filter(
        sf.col("one.cause") < sf.col("other.cause")
    )
    both = pairs.select(
        "history",
        sf.array("one.cause", "other.cause").alias("faults"),
        sf.greatest("one.seq", "other.seq").alias("seq"),
    )
    by_history = effects.groupBy("history").agg(
        sf.map_from_entries(sf.collect_list(sf.struct("effect", "last"))).alias("lasts")
    )
    counted = (
        join_small(singles.union(both), by_history, on=("history",), how="left")
        .groupBy("faults")
        .agg(
            sf.count(sf.lit(1)).alias("histories"),
            *(
                sf.count_if(sf.try_element_at("lasts", sf.lit(effect)) > sf.col("seq")).alias(effect)
                for effect in EFFECTS
            ),
        )
        .orderBy(sf.desc("histories"), "faults")
    )
    return tuple(
        FaultEffects(
            faults=tuple(row["faults"]),
            histories=row["histories"],
            followed={effect: row[effect] for effect in EFFECTS},
            lift={effect: _lift(row[effect], row["histories"], base.get(effect, 0), histories) for effect in EFFECTS},
        )
        for row in counted.collect()
    )


def _lift(followed: int, having: int, base: int, histories: int) -> float | None:
    return round(followed / having / (base / histories), 3) if base else None


# Appends ------------------------------------------------------------------------------------------------------------


def _appends(events: DataFrame, faults: DataFrame) -> DataFrame:
    """The columns of :class:`FaultedAppends`; an append that meets several kinds of fault counts for each."""
    when = sf.col("time_us")
    appends = (
        events.filter(is_kind(Kind.APP_ADD, Kind.APP_ACK, Kind.APP_FAIL, Kind.APP_CANCEL))
        .groupBy(*LEDGER_KEY, "actor", "incarnation", "entry")
        .agg(
            sf.min(sf.when(is_kind(Kind.APP_ADD), when)).alias("added"),
            sf.min(sf.when(is_kind(Kind.APP_ACK), when)).alias("acked"),
            sf.min(sf.when(is_kind(Kind.APP_FAIL), when)).alias("refused"),
            sf.max(is_kind(Kind.APP_CANCEL)).alias("is_cancelled"),
        )
        .filter(sf.col("added").isNotNull() & ~sf.col("is_cancelled"))
        .transform(join_small, faults, on=("history",), how="left")
    )
    over = sf.coalesce("acked", "refused")

    def is_met(fault: Column) -> Column:
        has_begun = sf.coalesce(fault["time_us"] <= over, sf.lit(True))  # noqa: FBT003
        return has_begun & sf.coalesce(fault["mended_us"] >= sf.col("added"), sf.lit(True))  # noqa: FBT003

    causes = sf.array_distinct(sf.transform(sf.filter("faults", is_met), lambda fault: fault["cause"]))
    is_alone = sf.coalesce(sf.size(causes), sf.lit(0)) <= 0  # of a history without faults there is no array
    took = sf.col("acked") - sf.col("added")
    is_acked = sf.col("acked").isNotNull()
    return (
        appends.withColumn("fault", sf.explode(sf.when(is_alone, sf.array(sf.lit(NO_FAULT))).otherwise(causes)))
        .groupBy("fault")
        .agg(
            sf.count(sf.lit(1)).alias("appends"),
            sf.count_if(is_acked).alias("acknowledged"),
            sf.count_if(~is_acked & sf.col("refused").isNotNull()).alias("failed"),
            sf.round(sf.avg(is_acked.cast("double")), 6).alias("availability"),
            sf.percentile_approx(took, 0.5).alias("p50_us"),
            sf.percentile_approx(took, 0.99).alias("p99_us"),
        )
        .orderBy(sf.col("fault") != NO_FAULT, sf.desc("appends"), "fault")
    )
