"""Three questions about a data set, as DuckDB and Polars answer them: what Spark's formulas are measured beside.

Each is an invariant of ``spark_analysis``, asked for counts alone: in how many ledgers there was something to judge, and how many
of them break it. Both engines read the Parquet files of a data set as they lie, in this process. They come from
``benchmarks/requirements.txt``; without them there is nothing to measure, and the report says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from spark_analysis.invariants.relations import ENTRY_KINDS

__all__ = ["ENGINES", "QUESTIONS", "Answers", "duckdb_answers", "polars_answers"]

#: The invariants that are asked for: one join of aggregates, one aggregate over all that was stored, one window.
QUESTIONS: Final = ("NoLacTruncation", "ReplicasAgree", "BookieLacMonotonic")

#: By invariant: ledgers that were checked, and those that are violated.
Answers = Mapping[str, tuple[int, int]]

_ENTRY_KINDS: Final = [str(kind) for kind in ENTRY_KINDS]
_WRITTEN: Final = ["BK_STORE", "ADD_SEND"]

_TRUNCATION: Final = """
WITH closed AS (
    SELECT history, ledger, min(last_entry) AS last_entry FROM events
    WHERE kind IN ('META_CAS', 'META_READ') AND outcome = 'ok' AND state = 'CLOSED'
        AND NOT (kind = 'META_CAS' AND cause = 'delete')
    GROUP BY history, ledger
), acked AS (
    SELECT history, ledger, max(entry) AS entry FROM events WHERE kind = 'APP_ACK' AND durable GROUP BY history, ledger
)
SELECT count(*), count(*) FILTER (entry > last_entry) FROM closed LEFT JOIN acked USING (history, ledger) WHERE ledger >= 0
"""

_AGREEMENT: Final = f"""
WITH entries AS (
    SELECT history, ledger, entry,
        min(content) FILTER (kind IN ('BK_STORE', 'ADD_SEND')) <> max(content) FILTER (kind IN ('BK_STORE', 'ADD_SEND'))
        OR min(length) FILTER (kind IN ('BK_STORE', 'ADD_SEND')) <> max(length) FILTER (kind IN ('BK_STORE', 'ADD_SEND'))
        AS differ
    FROM events WHERE kind IN ({", ".join(f"'{kind}'" for kind in _ENTRY_KINDS)}) AND ledger >= 0
    GROUP BY history, ledger, entry
), ledgers AS (SELECT history, ledger, bool_or(differ) AS is_broken FROM entries GROUP BY history, ledger)
SELECT count(*), count(*) FILTER (is_broken) FROM ledgers
"""

_MONOTONY: Final = """
WITH lacs AS (
    SELECT history, ledger, actor, seq, lac, lag(lac) OVER bookie AS known, lag(seq) OVER bookie AS known_seq
    FROM events WHERE kind = 'BK_LAC' AND lac IS NOT NULL AND ledger >= 0
    WINDOW bookie AS (PARTITION BY history, ledger, actor ORDER BY seq)
), fallen AS (
    SELECT DISTINCT history, ledger FROM lacs WHERE lac < known AND NOT EXISTS (
        SELECT 1 FROM events crash WHERE crash.kind = 'BK_CRASH' AND crash.history = lacs.history
        AND crash.actor = lacs.actor AND crash.seq > lacs.known_seq AND crash.seq < lacs.seq
    )
)
SELECT (SELECT count(*) FROM (SELECT DISTINCT history, ledger FROM lacs)), (SELECT count(*) FROM fallen)
"""


def duckdb_answers(files: str, threads: int) -> Answers:
    """The answers of DuckDB over the Parquet ``files``, a pattern."""
    duckdb: Any = import_module("duckdb")
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}")
        connection.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{files}')")
        asked = zip(QUESTIONS, (_TRUNCATION, _AGREEMENT, _MONOTONY), strict=True)
        return {name: connection.execute(question).fetchone() for name, question in asked}


def polars_answers(files: str, threads: int) -> Answers:
    """The answers of Polars over the Parquet ``files``, a pattern, by its streaming engine.

    It takes the number of its threads from the environment when it is first imported.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", str(threads))
    pl: Any = import_module("polars")
    events = pl.scan_parquet(files)
    questions: tuple[Callable[[Any, Any], Any], ...] = (_polars_truncation, _polars_agreement, _polars_monotony)
    asked = zip(QUESTIONS, questions, strict=True)
    return {name: question(pl, events).collect(engine="streaming").row(0) for name, question in asked}


def _polars_truncation(pl: Any, events: Any) -> Any:
    ledger, kind = ["history", "ledger"], pl.col("kind")
    is_stored = kind.is_in(["META_CAS", "META_READ"]) & (pl.col("outcome") == "ok") & (pl.col("state") == "CLOSED")
    is_delete = (kind == "META_CAS") & (pl.col("cause") == "delete")
    closed = (
        events.filter(is_stored & ~is_delete & (pl.col("ledger") >= 0)).group_by(ledger).agg(pl.col("last_entry").min())
    )
    acked = events.filter((kind == "APP_ACK") & pl.col("durable")).group_by(ledger).agg(pl.col("entry").max())
    return closed.join(acked, on=ledger, how="left").select(
        pl.len().alias("checked"), (pl.col("entry") > pl.col("last_entry")).sum().alias("violated")
    )


def _polars_agreement(pl: Any, events: Any) -> Any:
    is_written = pl.col("kind").is_in(_WRITTEN)
    content, length = (pl.col(name).filter(is_written) for name in ("content", "length"))
    return (
        events.filter(pl.col("kind").is_in(_ENTRY_KINDS) & (pl.col("ledger") >= 0))
        .group_by("history", "ledger", "entry")
        .agg(((content.min() != content.max()) | (length.min() != length.max())).alias("differ"))
        .group_by("history", "ledger")
        .agg(pl.col("differ").any())
        .select(pl.len().alias("checked"), pl.col("differ").sum().alias("violated"))
    )


def _polars_monotony(pl: Any, events: Any) -> Any:
    bookie = ["history", "ledger", "actor"]
    lacs = (
        events.filter((pl.col("kind") == "BK_LAC") & pl.col("lac").is_not_null() & (pl.col("ledger") >= 0))
        .select(*bookie, "seq", "lac")
        .sort("seq")
        .with_columns(
            pl.col("lac").shift(1).over(bookie).alias("known"), pl.col("seq").shift(1).over(bookie).alias("known_seq")
        )
    )
    crashes = events.filter(pl.col("kind") == "BK_CRASH").select("history", "actor", pl.col("seq").alias("crash"))
    fallen = lacs.filter(pl.col("lac") < pl.col("known"))
    excused = (
        fallen.join(crashes, on=["history", "actor"])
        .filter((pl.col("crash") > pl.col("known_seq")) & (pl.col("crash") < pl.col("seq")))
        .select(*bookie, "seq")
    )
    broken = fallen.join(excused, on=[*bookie, "seq"], how="anti").select("history", "ledger").unique()
    return pl.concat(
        [
            lacs.select("history", "ledger").unique().select(pl.len().alias("checked")),
            broken.select(pl.len().alias("violated")),
        ],
        how="horizontal",
    )


#: The engines that are there.
ENGINES: Final[Mapping[str, Callable[[str, int], Answers]]] = {
    name: answers
    for name, answers in {"DuckDB": duckdb_answers, "Polars": polars_answers}.items()
    if find_spec(name.lower()) is not None
}
