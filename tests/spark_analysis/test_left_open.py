"""Three values: what a history leaves open neither holds nor is violated; planted defects that decide it are seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_analysis.invariants import facts, relations, select
from spark_analysis.invariants import left_open as open_ends_module
from spark_analysis.invariants.left_open import open_ends, run_ends
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.jobs.judging import judged_histories
from tests.scenarios.stories import Story
from tests.spark_analysis.plants_of_applications import closed, end
from tests.spark_analysis.recorded import bystander, record, truncating, unfinished

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def completed(story: Story, *, is_over: bool = True) -> Story:
    """``story``, and that its run came to its end, or was ended before."""
    end(story, completed=is_over)
    return story


def lost_close(ledger: int, *, told: bool = False) -> Story:
    """A ledger that may be closed: nobody learned what became of the write; told or not told that it is."""
    story = unfinished(ledger)
    story.close(0, outcome="unknown")
    if told:
        closed(story, 0)
    return story


def lost_replacement(ledger: int) -> Story:
    """A closed ledger of which somebody may have changed the ensemble."""
    story = bystander(ledger)
    story.cas("rereplicate", "auditor", last_entry=1, length=20, outcome="unknown")
    return story


def created_anew(ledger: int) -> Story:
    """A ledger that was closed too low and deleted, and another one of its id."""
    story = truncating(ledger)
    story.cas("delete", "admin", version=story.version)
    story.version = -1
    story.create()
    return story


def unanswered(ledger: int) -> Story:
    """An append of which the application was told nothing."""
    story = unfinished(ledger)
    story.add(1)
    return story


#: What each history leaves open: of each invariant, why its ledger is unknown, or how often it was violated.
LEFT_OPEN: dict[str, tuple[Story, dict[str, str | int]]] = {
    "open": (
        completed(unfinished(1)),
        {"NoLacTruncation": "no premise", "VisibleLacBounded": "no premise", "ClosedAtQuorum": "no premise"},
    ),
    "cut-off": (
        completed(unfinished(1), is_over=False),
        {
            "NoLacTruncation": "cut off",
            "VisibleLacBounded": "cut off",
            "AckedReadable": "cut off",
            "ClosedAtQuorum": "cut off",
        },
    ),
    "no-end": (unanswered(1), {"NoLacTruncation": "cut off", "AddResolves": "cut off"}),
    "unanswered": (
        completed(unanswered(1), is_over=False),
        {"NoLacTruncation": "cut off", "AddResolves": "no outcome"},
    ),
    "never-answered": (completed(unanswered(1)), {"AddResolves": 1, "NoLacTruncation": "no premise"}),
    "lost-close": (
        completed(lost_close(1)),
        {"NoLacTruncation": "lost write", "ClosedAtQuorum": "lost write", "CloseKeepsAcks": "no premise"},
    ),
    "told-close": (completed(lost_close(1, told=True)), {"CloseKeepsAcks": "lost write"}),
    "replaced": (completed(lost_replacement(1)), {"ClosedAtQuorum": "lost write", "AckedReadable": "lost write"}),
    "cut-off-and-broken": (
        completed(truncating(1), is_over=False),
        {"NoLacTruncation": 1, "AddResolves": "holds"},
    ),
    "created-anew": (
        completed(created_anew(1)),
        {"NoLacTruncation": "created anew", "AckedReadable": "created anew", "AddResolves": "created anew"},
    ),
}
OPEN_TO = ("NoLacTruncation", "VisibleLacBounded", "AckedReadable", "ClosedAtQuorum", "AddResolves", "CloseKeepsAcks")


@pytest.fixture(scope="module")
def left_open(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One ledger for each case, all in one folder; each differs from one that is judged by one event."""
    folder = tmp_path_factory.mktemp("left-open")
    for name, (story, _) in LEFT_OPEN.items():
        record(folder / f"{name}.bkh", story)
    return folder


def told(spark: SparkSession, folder: Path) -> dict[tuple[str, str], str | int]:
    """What is said of each case and invariant: why it is unknown, that it holds, or how often it is violated."""
    with judged_histories(spark, histories_of(folder), select(OPEN_TO)) as judged:
        rows = judged.findings.collect()
    found = {(row["history"].removesuffix(".bkh"), row["invariant"]): row for row in rows}
    said: dict[tuple[str, str], str | int] = {}
    for name, (_, expected) in LEFT_OPEN.items():
        for invariant in expected:
            row = found.get((name, invariant))
            said[name, invariant] = (
                "no premise" if row is None else 1 if row["clause"] is not None else row["witness"] or "holds"
            )
    return said


def expected_of_open() -> dict[tuple[str, str], str | int]:
    return {(name, invariant): why for name, (_, expected) in LEFT_OPEN.items() for invariant, why in expected.items()}


def test_what_a_history_leaves_open_neither_holds_nor_is_violated(spark: SparkSession, left_open: Path) -> None:
    assert told(spark, left_open) == expected_of_open()


REAL_LEDGERS = relations.ledgers


def ids_used_once(rare: DataFrame) -> DataFrame:
    """Events of one id are taken for those of one ledger."""
    return REAL_LEDGERS(rare).withColumn("created_anew", sf.lit(None).cast("bigint"))


def ends_forgotten(rare: DataFrame, ledgers: DataFrame) -> DataFrame:
    """Where nobody knows how a ledger ended, nothing is said."""
    return open_ends(rare, ledgers).filter("false")


def lost_writes_forgotten(rare: DataFrame) -> DataFrame:
    """A write without an outcome is taken for one that was never made."""
    nothing = sf.lit(None).cast("bigint")
    return REAL_LEDGERS(rare).withColumn("lost_write", nothing).withColumn("lost_close", nothing)


def runs_always_end(rare: DataFrame) -> DataFrame:
    """Every run is taken for one that came to its end."""
    return run_ends(rare).withColumn("completed", sf.lit(True))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("place", "planted", "misjudged"),
    [
        pytest.param(
            (facts, "open_ends"),
            ends_forgotten,
            {"cut-off", "no-end", "unanswered", "lost-close", "replaced"},
            id="ends",
        ),
        pytest.param((relations, "ledgers"), lost_writes_forgotten, {"lost-close", "replaced"}, id="lost writes"),
        pytest.param((relations, "ledgers"), ids_used_once, {"created-anew"}, id="created anew"),
        pytest.param((open_ends_module, "run_ends"), runs_always_end, {"cut-off", "unanswered"}, id="cut off"),
    ],
)
def test_a_defect_that_takes_open_for_decided_is_seen(
    spark: SparkSession,
    left_open: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[ModuleType, str],
    planted: Callable[..., DataFrame],
    misjudged: set[str],
) -> None:
    """In the cases that it is about, and no other: those are its near misses."""
    monkeypatch.setattr(*place, planted)
    said, expected = told(spark, left_open), expected_of_open()
    wrong = {(name, invariant) for name, invariant in said if said[name, invariant] != expected[name, invariant]}
    assert {name for name, _ in wrong} == misjudged
