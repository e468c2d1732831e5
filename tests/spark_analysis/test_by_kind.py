"""The events apart by kinds: nothing is lost, nothing is there twice, and only messages that may be wrong are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from unittest.mock import Mock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from scenarios.history import KINDS, Kind
from spark_analysis.invariants import by_kind
from spark_analysis.invariants.by_kind import KIND_SETS, RARE, EventsByKind
from spark_analysis.invariants.expressions import is_kind
from spark_analysis.invariants.messages import MESSAGE_KINDS, doubtful_requests
from spark_analysis.invariants.relations import ENTRY_KINDS
from spark_analysis.jobs.planning import planned_for_kept_partitions
from spark_analysis.schema import EVENT_SCHEMA
from spark_analysis.source import event_rows, read_histories
from tests.spark_analysis.plants import honest_life
from tests.spark_analysis.recorded import bystander, record

_ROW = "history string, ledger bigint, seq bigint, kind string, actor string, bookie string, source string, operation string, "
_MESSAGE = f"{_ROW}entry bigint, recovery boolean, request bigint, code bigint"


def test_every_kind_is_in_a_set() -> None:
    assert frozenset().union(*KIND_SETS) == frozenset(Kind)


def test_a_relation_of_a_set_is_made_once_whichever_threads_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_kind, "is_kind", Mock())
    begun, kept = Barrier(2), Mock(side_effect=lambda _: Mock())
    apart = EventsByKind(Mock(columns=["history", "kind"]), kept)

    def ask(_: int) -> DataFrame:
        begun.wait(10)
        return apart.of_set(RARE)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ask, range(2))
    assert first is second
    assert kept.call_count == 1


@pytest.mark.spark
@pytest.mark.parametrize(
    "kinds", [[Kind.ADD_SEND], [Kind.APP_ACK], [Kind.META_CAS, Kind.APP_FAIL], ENTRY_KINDS, MESSAGE_KINDS]
)
def test_what_was_put_apart_is_all_there_is_of_it(spark: SparkSession, tmp_path: Path, kinds: Sequence[Kind]) -> None:
    """And a column that one of the kinds has is there, with its values."""
    record(tmp_path / "life.bkh", honest_life(), bystander())
    with planned_for_kept_partitions(spark, input_bytes=0, partition_bytes=0):
        events = event_rows(read_histories(spark, tmp_path))
        apart = EventsByKind(events, lambda rows: rows).of(kinds)
        columns = [name for name in EVENT_SCHEMA.names if name in apart.columns]
        expected = events.filter(is_kind(*kinds)).select(*columns)
        assert apart.select(*columns).exceptAll(expected).isEmpty()
        assert expected.exceptAll(apart.select(*columns)).isEmpty()
        assert not expected.isEmpty()
    assert {name for kind in kinds for name in KINDS[kind]} <= set(columns)


def conversation(request: int, *messages: tuple[str, str, int | None]) -> list[tuple[object, ...]]:
    """Messages about a request of c: the kind, the bookie that is asked or answers, and the code."""
    rows = []
    for place, (kind, bookie, code) in enumerate(messages):
        seq = 100 * request + place
        if kind == "BK_ANSWER":
            told: tuple[object, ...] = (bookie, None, "c", "add")
        else:
            told = ("c", bookie, None, None)
        rows.append(("h", 1, seq, kind, *told, 7, False, request, code))
    return rows


@pytest.mark.spark
def test_only_plain_requests_are_passed_over(spark: SparkSession) -> None:
    sent, said, heard = ("ADD_SEND", "b", None), ("BK_ANSWER", "b", 0), ("ADD_RESP", "b", 0)
    refused, lost = ("BK_ANSWER", "b", -101), ("ADD_RESP", "b", None)
    other = (("ADD_SEND", "d", None), ("BK_ANSWER", "d", 0), ("ADD_RESP", "d", 0))
    doubtful = [
        (sent, heard),
        (sent, said),
        (said, heard),
        (sent, heard, said),
        (said, sent, heard),
        (sent, said, heard, heard),
        (sent, said, said, heard),
        (sent, sent, said, heard),
        (sent, refused, heard),
        (sent, said, lost),
        (sent, said, heard, *other),
        (sent, said, other[2]),
        (sent, other[1], heard),
    ]
    rows = conversation(0, sent, said, heard)
    for request, messages in enumerate(doubtful, 1):
        rows += conversation(request, *messages)
    rows += [("h", 2, 5, "ADD_SEND", "c", "b", None, None, 7, False, None, None)]
    with planned_for_kept_partitions(spark, input_bytes=0, partition_bytes=0):
        found = doubtful_requests(spark.createDataFrame(rows, _MESSAGE)).collect()
    assert [(row["ledger"], row["has_plain"]) for row in found] == [(1, True)]
    assert {row["request"] for row in found[0]["doubtful"]} == set(range(1, len(doubtful) + 1))
    with planned_for_kept_partitions(spark, input_bytes=0, partition_bytes=0):
        found = doubtful_requests(spark.createDataFrame(rows, _MESSAGE).filter(sf.col("request") > 0)).collect()
    assert [row["has_plain"] for row in found] == [False]
