"""Judging histories while runs still write them: a Structured Streaming job over a folder.

Its source hands out what came to the folder and has it judged on executors (:mod:`spark_analysis.streaming.source`); what each
micro-batch found is a file below ``verdicts``, named by the batch, so a batch that is repeated replaces what it wrote before.
``checkpoint`` is Spark's own memory of where the job stands. Ended in whatever way, the job goes on there when it is started
again: no event of a history is judged twice, and what was told is not told again.

What it all came to is summed up by Spark from these files; the driver holds nothing that grows with the number of histories but
their names, sizes and times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from bkclient import __version__
from spark_analysis.commands import replay_command
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.check import Broken, Checked, counted_invariants, first_broken
from spark_analysis.jobs.files import rejected_in
from spark_analysis.streaming.arrivals import write_whole
from spark_analysis.streaming.growing import HistoryState
from spark_analysis.streaming.source import FORMAT, STREAMED_SCHEMA, register

__all__ = ["OtherStreamError", "StreamVerdict", "stream", "verdict_of"]

_DESCRIPTION: Final = "stream.json"
_VERDICTS: Final = "verdicts"
#: What Spark says if a process of Python did not start in time, and how often it may.
_TOO_SLOW: Final = "failed to connect back"
_STARTS_MAX: Final = 3
#: How often the job looks whether it has to end.
_LOOK_S: Final = 0.1


class OtherStreamError(Exception):
    """The folder for results belongs to another stream; the message says how that differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVerdict(Checked):
    """What a stream came to, with all that earlier starts of it had found.

    ``histories`` were judged to their end, ``open`` ones have none yet; ``events`` are those of both. ``duplicates`` of the
    histories have the events of another one.
    """

    open: int
    duplicates: int


def stream(
    spark: SparkSession,
    folder: Path | str,
    kept: Path | str,
    *,
    every_s: float = 1.0,
    idle_s: float | None = None,
    max_witnesses: int = MAX_WITNESSES_DEFAULT,
    tell: Callable[[tuple[Broken, ...]], None] = lambda _: None,
    is_over: Callable[[], bool] = lambda: False,
) -> StreamVerdict:
    """Judge what is in ``folder`` and what comes to it, until ``is_over``, or nothing has come for ``idle_s`` seconds.

    ``kept`` is a folder for the results and the state of the stream, which has to be empty, or of an earlier start of the same
    stream. The folder is looked at every ``every_s`` seconds. ``tell`` gets the violations of each micro-batch when they are
    found, at most ``max_witnesses`` of each invariant. An interrupt (Ctrl-C) ends it as ``is_over`` does.

    :class:`OtherStreamError` if ``kept`` is that of another stream, ``OSError`` if it cannot be written.
    """
    started = time.perf_counter()
    root = _kept_for(folder, Path(kept))
    register(spark)
    came = [time.monotonic()]

    def judged(batch: DataFrame, number: int) -> None:
        found = root / _VERDICTS / f"batch={number}"
        batch.coalesce(1).write.mode("overwrite").parquet(str(found))
        written = spark.read.schema(STREAMED_SCHEMA).parquet(str(found))
        broken = first_broken(written, max_witnesses)
        if broken:
            tell(broken)
        came[0] = time.monotonic()

    def start() -> StreamingQuery:
        return (
            spark.readStream.format(FORMAT)
            .option("kept", str(root))
            .load(str(Path(folder).absolute()))
            .writeStream.foreachBatch(judged)
            .option("checkpointLocation", str(root / "checkpoint"))
            .trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
            .start()
        )

    _run(start, is_over, lambda: time.monotonic() - came[0], idle_s)
    return verdict_of(spark, root, folder, max_witnesses=max_witnesses, seconds=time.perf_counter() - started)


def verdict_of(
    spark: SparkSession, kept: Path, folder: Path | str, *, max_witnesses: int, seconds: float = 0.0
) -> StreamVerdict:
    """What the micro-batches below ``kept`` came to, of histories in ``folder``.

    Of a file that was written anew, what was found since.
    """
    folders = sorted(str(path) for path in (kept / _VERDICTS).glob("batch=*/"))
    looks = spark.createDataFrame([], STREAMED_SCHEMA)
    if folders:
        looks = spark.read.schema(STREAMED_SCHEMA).parquet(*folders)
    last = sf.max(sf.struct("scan", "started", "state", "problem", "events", "digest", "checked")).alias("last")
    newest = looks.groupBy("history").agg(last).select("history", "last.*").persist()
    try:
        counted = _count(newest)
        found = looks.join(newest, on=["history", "started"], how="left_semi")
        invariants = counted_invariants(newest, found)
        is_broken = any(invariant.violated_histories for invariant in invariants)
        violations = first_broken(found, max_witnesses) if is_broken else ()
        rejected = rejected_in(newest.filter(sf.col("state") == str(HistoryState.UNUSABLE)))
    finally:
        newest.unpersist()
    return StreamVerdict(
        histories=counted["histories"],
        open=counted["open"],
        duplicates=counted["with_events"] - counted["different"],
        events=counted["events"] or 0,
        invariants=invariants,
        violations=tuple(replace(found, replay=replay_command(folder, found.history)) for found in violations),
        rejected=rejected,
        rejected_files=counted["rejected"],
        seconds=seconds,
    )


def _count(newest: DataFrame) -> Row:
    """Histories by state, their events, and how many have events, and different ones."""
    is_judged, is_open = sf.col("state") == str(HistoryState.JUDGED), sf.col("state") == str(HistoryState.OPEN)
    has_events = is_judged & (sf.col("events") > 0)
    counted = newest.agg(
        sf.count_if(is_judged).alias("histories"),
        sf.count_if(is_open).alias("open"),
        sf.count_if(~is_judged & ~is_open).alias("rejected"),
        sf.sum(sf.when(is_judged | is_open, sf.col("events"))).alias("events"),
        sf.count_if(has_events).alias("with_events"),
        sf.count_distinct(sf.when(has_events, sf.col("digest"))).alias("different"),
    ).first()
    assert counted is not None, "an aggregate without groups has one row"
    return counted


def _run(
    start: Callable[[], StreamingQuery],
    is_over: Callable[[], bool],
    idle_for: Callable[[], float],
    idle_s: float | None,
) -> None:
    """Run the query to its end.

    The source looks from a process of its own, for which Spark waits 10 seconds. On a busy machine that may be too short, and the
    query, which goes on where it was, is started again.
    """
    for attempt in range(1, _STARTS_MAX + 1):
        query = start()
        try:
            _watch(query, is_over, idle_for, idle_s)
        except KeyboardInterrupt:
            pass  # who interrupts it wants to know what there is
        except StreamingQueryException as error:
            if _TOO_SLOW in str(error) and attempt < _STARTS_MAX:
                continue
            raise
        finally:
            query.stop()
        return


def _watch(
    query: StreamingQuery, is_over: Callable[[], bool], idle_for: Callable[[], float], idle_s: float | None
) -> None:
    """Wait until ``is_over`` or the query has been idle for ``idle_s``, or raise what ended it."""
    while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
        if is_over():
            return
        if idle_s is not None:
            query.processAllAvailable()  # a look found nothing that is not judged
            if idle_for() >= idle_s:
                return


def _kept_for(folder: Path | str, kept: Path) -> Path:
    """The folder for results and state, as an absolute path, which says what is streamed and by which version."""
    kept.mkdir(parents=True, exist_ok=True)
    wanted = {"folder": str(Path(folder).absolute()), "version": __version__}
    description = kept / _DESCRIPTION
    if description.exists():
        there = json.loads(description.read_bytes())
        if there != wanted:
            raise OtherStreamError(
                f"{kept}: is of a stream of {there.get('folder')} by version {there.get('version')}, not of "
                f"{wanted['folder']} by version {wanted['version']}; choose another folder"
            )
    elif any(kept.iterdir()):
        raise OtherStreamError(f"{kept}: is neither empty nor of a stream; choose another folder")
    else:
        write_whole(description, json.dumps(wanted).encode())
    return kept.absolute()
