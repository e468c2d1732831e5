"""``bk-verify analyse``: what followed which faults, and how appends fared, in histories of which both are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from scenarios.history import Kind
from scenarios.situations import SITUATIONS
from spark_analysis.cli.app import app
from spark_analysis.jobs.analyse import EFFECTS, Analysis, FaultedAppends, analyse
from tests.scenarios.stories import Story
from tests.spark_analysis.recorded import record, truncated, truncating

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def fault(story: Story, cause: str, target: str = "", *, name: str = "", phase: str = "once") -> None:
    story.event(Kind.FAULT, "faults", ledger=-1, cause=cause, target=target, fault=name or cause, phase=phase)


#: What lies between an append and its acknowledgement: three requests, three copies made and made durable, three answers.
STEPS = 13


def append(story: Story, entry: int, *, waits: int = 0, is_told: bool = True) -> None:
    """An append of one entry that is acknowledged :data:`STEPS` and ``waits`` ms later, or fails ``waits`` and 1 ms later."""
    story.add(entry)
    for _ in range(waits):
        story.event(Kind.CLIENT_RESUME, "somebody", ledger=-1)
    if not is_told:
        story.event(Kind.APP_FAIL, "writer", incarnation=1, entry=entry, code=-23)
        return
    story.send(entry, *story.write_set(entry), lac=entry - 1)
    story.store(entry, *story.write_set(entry))
    story.answer(entry, *story.write_set(entry))
    story.ack(entry)


def recovery(story: Story, takes: int) -> None:
    """A recovery that fails after ``takes`` ms."""
    story.event(Kind.OPEN_START, "other", recovery=True)
    story.event(Kind.REC_START, "other", version=story.version, first_entry=0, bookies="b0,b1,b2")
    for _ in range(takes - 1):
        story.event(Kind.CLIENT_RESUME, "somebody", ledger=-1)
    story.event(Kind.OPEN_RESULT, "other", recovery=True, code=-23, handle=1)


def changed() -> Story:
    """A crash, and then an ensemble change; the crash is mended, and another one is not."""
    story = Story()
    story.create()
    append(story, 0)
    fault(story, "crash", "b0")
    append(story, 1, waits=4)
    story.change(2, "b3", "b1", "b2")
    fault(story, "restart", "b1")  # somebody else
    append(story, 2)
    fault(story, "restart", "b0")
    append(story, 3)
    return story


def changed_before() -> Story:
    """An ensemble change, and then a crash, which is not what it followed."""
    story = Story()
    story.create()
    story.change(0, "b3", "b1", "b2")
    fault(story, "crash", "b0")
    recovery(story, 3)
    return story


def slow() -> Story:
    """A fault of a plan, that begins and ends, and a crash; a long recovery after the one, before the other."""
    story = Story()
    story.create()
    fault(story, "slow-disk", name="disk-1", phase="begin")
    append(story, 0, waits=9, is_told=False)
    recovery(story, 50)
    fault(story, "slow-disk", name="disk-1", phase="end")
    append(story, 1, is_told=False)
    fault(story, "crash", "b0")
    return story


def calm() -> Story:
    """No fault; nothing happens."""
    story = Story()
    story.create()
    append(story, 0)
    recovery(story, 2)
    return story


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analysed")
    for story in (changed, changed_before, slow, calm):
        record(folder / f"{story.__name__}.bkh", story())
    for number in range(8):
        record(folder / f"calm{number}.bkh", calm(), seed=1 + number)
    broken = truncating(3)
    fault(broken, "heal")
    record(folder / "broken.bkh", broken)
    truncated(folder / "torn.bkh")
    return folder


@pytest.fixture(scope="module")
def found(spark: SparkSession, folder: Path) -> Analysis:
    return analyse(spark, folder)


def test_an_effect_follows_a_fault_if_it_comes_after_it(found: Analysis) -> None:
    assert found.histories == 13
    assert found.base == {"ensemble change": 2, "long recovery": 1, "violation": 1}
    told = {one.faults: (one.histories, tuple(one.followed[effect] for effect in EFFECTS)) for one in found.effects}
    assert told == {
        ("crash",): (3, (1, 0, 0)),
        ("slow-disk",): (1, (0, 1, 0)),
        ("crash", "slow-disk"): (1, (0, 0, 0)),
    }, "a mend is no fault, and two faults are followed by what comes after both"


def test_the_lift_is_the_share_against_that_of_all(found: Analysis) -> None:
    lifts = {one.faults: one.lift for one in found.effects}
    assert lifts["crash",]["ensemble change"] == pytest.approx((1 / 3) / (2 / 13), abs=0.001)
    assert lifts["slow-disk",]["long recovery"] == pytest.approx(13, abs=0.001)
    assert lifts["crash",]["violation"] == 0


def test_an_append_counts_for_the_faults_that_last_while_it_is_under_way(found: Analysis) -> None:
    crash, slow_disk = (next(one for one in found.appends if one.fault == name) for name in ("crash", "slow-disk"))
    assert crash == FaultedAppends("crash", 2, 2, 0, 1.0, 1000 * STEPS, 1000 * (STEPS + 4)), (
        "mended by its own restart alone"
    )
    assert slow_disk == FaultedAppends("slow-disk", 1, 0, 1, 0.0, None, None), "which lasts until it ends"
    assert found.appends[0].fault == "none"
    told = sum(1 for event in truncating(3).events if event.kind == Kind.APP_ADD)
    assert found.appends[0].appends == 3 + 9 + told, "nearly all in histories without a fault"


def test_situations_are_counted_in_histories(found: Analysis) -> None:
    assert list(found.met) == list(SITUATIONS)
    assert found.never_met
    assert all(count <= found.histories for count in found.met.values())
    assert set(found.never_met) == {name for name, count in found.met.items() if not count}


def test_the_command_prints_it_and_names_what_it_could_not_use(found: Analysis, folder: Path) -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["analyse", str(folder), "--json"])
    assert result.exit_code == 2
    shown = json.loads(result.stdout)
    expected = json.loads(json.dumps(found.as_json()))
    assert {name: shown[name] for name in shown if name != "seconds"} == {
        name: expected[name] for name in expected if name != "seconds"
    }
    assert [file["file"] for file in shown["rejected"]] == ["torn.bkh"]
