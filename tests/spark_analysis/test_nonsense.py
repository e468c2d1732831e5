"""What must not end, or slow down, the judgement of all other histories: nonsense in one, and a shuffle per question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from scenarios.history import FIELDS, Event, FieldType, Kind
from spark_analysis.invariants import INVARIANTS, Invariant, judge, select
from spark_analysis.invariants.expressions import join_small
from spark_analysis.invariants.facts import Facts
from spark_analysis.jobs import judging
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.keeping import keep
from spark_analysis.jobs.planning import INTERPRETED, PLANNING, SORTED_BYTES, planned_for_kept_partitions
from spark_analysis.jobs.verify import verify
from spark_analysis.source import event_rows, read_histories
from tests.spark_analysis.plan_text import plan_text
from tests.spark_analysis.plants import honest_life
from tests.spark_analysis.plants_of_applications import closed, end
from tests.spark_analysis.recorded import bystander, record, truncating

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TRUNCATION = next(invariant for invariant in INVARIANTS if invariant.name == "NoLacTruncation")

NONSENSE: dict[FieldType, tuple[Any, ...]] = {
    FieldType.LONG: (None, -(2**63), 2**63 - 1, 2**31, 0, -1),
    FieldType.STRING: (None, "", ",", "CLOSED", "ok"),
    FieldType.BOOLEAN: (None, True, False),
    FieldType.FRAGMENTS: (
        None,
        [],
        [[None, ["b0"]]],
        [[0, []]],
        [[0, ["b0", None]]],
        [[2**63 - 1, ["b0"]], [0, ["b0"]]],
    ),
}


def twisted(field: str, turn: int) -> list[Event]:
    """An honest life in which no value of ``field`` makes sense."""
    values = NONSENSE[FIELDS[field]]
    return [
        Event(
            event.seq,
            event.time_us,
            event.actor,
            event.kind,
            -1 if (event.seq + turn) % 97 == 0 else event.ledger,
            {**event.fields, field: values[(event.seq + turn) % len(values)]}
            if field in event.fields
            else event.fields,
        )
        for event in honest_life().events
    ]


@pytest.mark.deep
def test_nonsense_in_a_history_is_judged_somehow_and_the_others_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    for field in FIELDS:
        for turn in range(6):
            record(tmp_path / f"{field}-{turn}.bkh", events=twisted(field, turn))
    record(tmp_path / "empty.bkh")
    ended = honest_life()
    closed(ended, 3)
    end(ended)
    record(tmp_path / "good.bkh", ended, bystander())
    record(tmp_path / "bad.bkh", truncating(1))
    verdict = verify(spark, tmp_path, max_witnesses=10_000)
    # Some twists make the same bytes; copies are counted once.
    files = list(tmp_path.glob("*.bkh"))
    assert len(files) == 6 * len(FIELDS) + 3
    assert verdict.histories == len({file.read_bytes() for file in files}) > 3 * len(FIELDS)
    assert verdict.rejected_files == 0
    of_logs = {invariant.name for invariant in verdict.invariants if invariant.name.startswith("Log")}
    assert of_logs, "which an honest life of a ledger gives nothing to judge"
    seldom = {"CookieGate", "RecoveryResolves"}  # about restarts on disks of others, and recoveries that give up
    assert {one.name for one in verdict.invariants if not 0 < one.checked <= verdict.ledgers} == of_logs | seldom
    assert all(invariant.unknown >= 0 for invariant in verdict.invariants)
    found = {violation.history: violation.invariant for violation in verdict.violations}
    assert "good.bkh" not in found
    assert found["bad.bkh"] == "NoLacTruncation"


def test_the_events_that_show_a_violation_are_told(spark: SparkSession, tmp_path: Path) -> None:
    path = record(tmp_path / "bad.bkh", bystander(), truncating(1))
    (violation,) = verify(spark, path, invariants=[TRUNCATION]).violations
    assert [line.split()[1] for line in violation.evidence] == ["APP_ACK", "META_CAS"]
    assert "entry=1" in violation.evidence[0]
    assert "fragments=0: b0, b1, b2" in violation.evidence[1]
    assert violation.evidence[0].startswith(f"{violation.witness.split('event ')[1].split(')')[0]} ")


def test_settings_of_the_session_are_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    def settings() -> list[str | None]:
        sites = [spark.sparkContext.getLocalProperty(f"callSite.{form}") for form in ("short", "long")]
        return [*(spark.conf.get(name, None) for name in (*PLANNING, *INTERPRETED)), *sites]

    before = settings()
    verify(spark, record(tmp_path / "good.bkh", bystander()), invariants=INVARIANTS[:1])
    assert settings() == before


def test_what_is_about_nothing_that_occurs_is_not_asked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def judge_and_note(facts: Facts, invariants: Sequence[Invariant]) -> DataFrame:
        asked.extend(invariant.name for invariant in invariants)
        return judge(facts, invariants)

    monkeypatch.setattr(judging, "judge", judge_and_note)
    record(tmp_path / "bad.bkh", truncating(1))
    verdict = verify(spark, tmp_path, invariants=select(["LogListed", "GcOnlyDead"]))
    assert asked == []
    assert {(one.name, one.checked, one.unknown) for one in verdict.invariants} == {
        ("LogListed", 0, 1),
        ("GcOnlyDead", 0, 1),
    }
    verify(spark, tmp_path, invariants=select(["LogListed", "NoLacTruncation"]))
    assert asked == ["NoLacTruncation"]


@pytest.mark.deep
def test_without_its_premise_an_invariant_observes_nothing(spark: SparkSession, whole_corpus: Path) -> None:
    """Of all that is planted anywhere, whatever else occurs."""
    with planned_for_kept_partitions(spark, input_bytes=0, partition_bytes=0):
        events = keep(event_rows(read_histories(spark, whole_corpus)).repartition(2, "history"))
        for premise in {invariant.premise for invariant in INVARIANTS if invariant.premise}:
            facts = Facts(events.filter(~sf.col("kind").isin(*premise)), keep)
            assert judge(facts, [one for one in INVARIANTS if one.premise == premise]).count() == 0, premise


@pytest.mark.parametrize(("input_bytes", "compiles"), [(0, False), (4 << 20, False), ((4 << 20) + 1, True)])
def test_little_is_interpreted_and_much_is_compiled(spark: SparkSession, input_bytes: int, compiles: bool) -> None:
    with planned_for_kept_partitions(spark, input_bytes, partition_bytes=0):
        plan = spark.range(10).filter("id > 3").groupBy("id").count()
        assert ("*(1)" in plan_text(plan)) == compiles


@pytest.mark.parametrize(("partition_bytes", "join"), [(SORTED_BYTES, "ShuffledHash"), (SORTED_BYTES + 1, "SortMerge")])
def test_large_partitions_are_sorted(spark: SparkSession, partition_bytes: int, join: str) -> None:
    """A hash table has to fit into memory; what is sorted goes to disk."""
    with planned_for_kept_partitions(spark, 1 << 40, partition_bytes):
        rows = keep(spark.range(1 << 20).withColumnRenamed("id", "history").repartition(2, "history"))
        plan = plan_text(join_small(rows, rows.groupBy("history").count(), on=("history",), how="left"))
    assert f"{join}Join" in plan
    assert "Exchange" not in plan


def test_events_are_moved_once(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However often they are read: what was moved is there when the files are gone."""
    record(tmp_path / "good.bkh", honest_life())
    with (
        planned_for_kept_partitions(spark, input_bytes=0, partition_bytes=0),
        histories_of(tmp_path).table(spark, ("history", "kind", "ledger"), [Kind.META_CAS]) as rows,
    ):
        rows.groupBy("history", "ledger").count().explain()
        first = rows.count()
        (tmp_path / "good.bkh").unlink()
        assert rows.count() == first > 1
    assert "Exchange" not in capsys.readouterr().out


@pytest.mark.usefixtures("verdict")
def test_no_question_moves_the_events_again(planned: list[str]) -> None:
    """All that follows the one shuffle by history stays where it is; this is what makes so many questions cheap."""
    assert planned
    plans = "".join(planned)
    assert "Exchange" not in plans
    assert "SortMergeJoin" not in plans
    assert all(invariant.name in plans for invariant in INVARIANTS)
