"""``bk-verify stream``: the job as Spark runs it. What it is made of is in ``test_growing.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scenarios.history import read_history
from spark_analysis.jobs.check import Broken, check
from spark_analysis.jobs.stream import OtherStreamError, StreamVerdict, stream
from tests.spark_analysis.recorded import bystander, record, truncated, truncating

pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(600)]


def write_beginning(path: Path, data: bytes, share: float) -> None:
    """What a recorder that is under way has written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data[: int(len(data) * share)])


def test_violations_are_told_while_a_run_still_writes(spark: SparkSession, tmp_path: Path) -> None:
    """One start of the job: each step below waits for what the one before made it tell."""
    folder = tmp_path / "in"
    data = record(tmp_path / "made" / "bad.bkh", truncating(3), bystander(), bystander(9)).read_bytes()
    late = record(tmp_path / "made" / "late.bkh", truncating(4)).read_bytes()
    write_beginning(folder / "bad.bkh", data, 0.8)
    (folder / "foreign.bkh").write_text("no history")
    told: list[tuple[str, int]] = []

    def hear(found: tuple[Broken, ...]) -> None:
        told.extend((broken.history, broken.ledger) for broken in found)
        if told == [("bad.bkh", 3)]:
            (folder / "bad.bkh").write_bytes(data)
            (folder / "sub").mkdir()
            (folder / "sub" / "late.bkh").write_bytes(late)

    found = stream(
        spark,
        folder,
        tmp_path / "kept",
        every_s=0.05,
        tell=hear,
        is_over=lambda: len(told) >= 2 and all_judged(tmp_path),
    )
    assert told == [("bad.bkh", 3), ("sub/late.bkh", 4)]
    assert (found.histories, found.open, found.duplicates) == (2, 0, 0)
    assert [file.problem for file in found.rejected] == ["is not a history (it does not start with a history header)"]


def all_judged(folder: Path) -> bool:
    """Whether the second micro-batch has ended, of which Spark keeps a note."""
    return (folder / "kept" / "checkpoint" / "commits" / "1").exists()


def test_a_stream_goes_on_where_it_was_ended(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    data = record(tmp_path / "made" / "bad.bkh", bystander(), truncating(3)).read_bytes()
    told: list[tuple[str, int]] = []

    def start() -> StreamVerdict:
        return stream(
            spark,
            folder,
            tmp_path / "kept",
            every_s=0.05,
            idle_s=0,
            tell=lambda found: told.extend((broken.history, broken.ledger) for broken in found),
        )

    nothing = start()
    assert (nothing.histories, nothing.open, nothing.is_clean) == (0, 0, True)
    record(folder / "good.bkh", bystander())
    record(folder / "copy.bkh", bystander())
    write_beginning(folder / "bad.bkh", data, 0.4)
    truncated(folder / "torn.bkh")
    first = start()
    assert (first.histories, first.open, first.duplicates, first.is_clean) == (2, 2, 1, True)
    (folder / "bad.bkh").write_bytes(data)
    second = start()
    assert (second.histories, second.open) == (3, 1)
    assert told == [("bad.bkh", 3)]
    record(folder / "torn.bkh", bystander())
    third = start()
    assert (third.histories, third.open, third.duplicates) == (4, 0, 2)
    assert told == [("bad.bkh", 3)], "what was told is not told again"
    # A stream judges copies too, a check does not.
    copies = [read_history(folder / name)[1] for name in ("copy.bkh", "torn.bkh")]
    checked = check(spark, folder)
    assert third.events == checked.events + sum(map(len, copies))
    assert third.violations == checked.violations
    assert [(each.name, each.violated_histories) for each in third.invariants] == [
        (each.name, each.violated_histories) for each in checked.invariants
    ]
    with pytest.raises(OtherStreamError, match="choose another folder"):
        stream(spark, tmp_path / "other", tmp_path / "kept")
    with pytest.raises(OtherStreamError, match="neither empty nor of a stream"):
        stream(spark, folder, folder)
