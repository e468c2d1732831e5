"""Where two histories part: the last events they share, how each goes on, and what they came from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from scenarios.cli.app import app
from scenarios.history import Event, HistoryError, HistoryWriter
from scenarios.parting import where_they_part
from scenarios.plan.library import library_plan
from scenarios.runner import run_plan
from tests.scenarios.stories import Story

MUTANT = "recovery-reads-do-not-fence"


def told(path: Path, events: list[Event], **header: Any) -> Path:
    now = 0
    writer = HistoryWriter({"scenario": "told", **header}, lambda: now, path)
    for event in events:
        now = event.time_us
        writer.record(event.kind, event.actor, event.ledger, **event.fields)
    writer.close()
    return path


@pytest.fixture
def story() -> Story:
    story = Story()
    story.create()
    story.write_all(0, 2)
    return story


def test_histories_with_the_same_events_do_not_part(tmp_path: Path, story: Story) -> None:
    one, other = told(tmp_path / "one.bkh", story.events), told(tmp_path / "other.bkh", story.events)
    found = where_they_part(one, other, context=2)
    assert found.is_same
    assert (found.shared, found.headers, len(found.before)) == (len(story.events), (), 2)


def test_the_first_event_that_differs_is_shown_with_those_around_it(tmp_path: Path, story: Story) -> None:
    one = told(tmp_path / "one.bkh", story.events)
    changed = [replace(event, actor="b9") if event.seq == 9 else event for event in story.events]
    found = where_they_part(one, told(tmp_path / "other.bkh", changed), context=3)
    assert not found.is_same
    assert found.shared == 9
    assert [event.seq for event in found.before] == [6, 7, 8]
    assert [event.seq for event in found.one] == [event.seq for event in found.other] == [9, 10, 11]
    assert (found.one[0].actor, found.other[0].actor) == (story.events[9].actor, "b9")


def test_a_history_that_ends_before_the_other_parts_there(tmp_path: Path, story: Story) -> None:
    one, other = told(tmp_path / "one.bkh", story.events), told(tmp_path / "other.bkh", story.events[:-2])
    found = where_they_part(one, other)
    assert (found.shared, len(found.one), found.other) == (len(story.events) - 2, 2, ())


def test_times_are_compared_unless_told_otherwise(tmp_path: Path, story: Story) -> None:
    one = told(tmp_path / "one.bkh", story.events)
    later = [replace(event, time_us=event.time_us + event.seq // 5) for event in story.events]
    other = told(tmp_path / "other.bkh", later)
    assert where_they_part(one, other).shared == 5
    assert where_they_part(one, other, times=False).is_same


def test_what_the_runs_came_from_is_compared_value_by_value_and_line_by_line(tmp_path: Path, story: Story) -> None:
    one = told(
        tmp_path / "one.bkh", story.events, seed=1, client={"a": {"b": 1, "c": 2}}, plan="plan p\ncluster 1 1/1/1\n"
    )
    other = told(
        tmp_path / "other.bkh", story.events, seed=2, client={"a": {"b": 3, "c": 2}}, plan="plan p\ncluster 2 1/1/1\n"
    )
    assert where_they_part(one, other).headers == (
        "seed: 1 and 2",
        "client.a.b: 1 and 3",
        "plan: - cluster 1 1/1/1",
        "plan: + cluster 2 1/1/1",
    )


def test_a_file_that_is_no_history_is_refused(tmp_path: Path, story: Story) -> None:
    one, other = told(tmp_path / "one.bkh", story.events), tmp_path / "other.bkh"
    other.write_bytes(b"no")
    with pytest.raises(HistoryError, match=r"other.bkh: is not a history"):
        where_they_part(one, other)


# The command -------------------------------------------------------------------------------------------------------


def bk_chaos(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_shows_where_a_defect_makes_the_difference(tmp_path: Path) -> None:
    plan = library_plan("fence-lost-late-add")
    one, other = (run_plan(plan, 0, mutant=mutant, record=tmp_path).path for mutant in (None, MUTANT))
    result = bk_chaos("diff", one, other, "--context", 1)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"mutant: '' and '{MUTANT}'"
    assert lines[1].endswith("events are the same")
    sent, unfenced = lines[-2:]
    assert sent.startswith("- ")
    assert "REC_READ_SEND" in sent
    assert " fence=True " in sent
    assert unfenced == "+" + sent[1:].replace("fence=True", "fence=False")
    shown = json.loads(bk_chaos("diff", one, other, "--json").stdout)
    assert shown["headers"] == [lines[0]]
    assert (shown["same"], shown["shared"]) == (False, int(lines[1].split()[0]))
    assert [event["seq"] for event in shown["before"]] == list(range(shown["shared"] - 5, shown["shared"]))
    assert shown["one"][0]["fence"] is not shown["other"][0]["fence"]


def test_the_command_ends_well_if_the_events_are_the_same(tmp_path: Path, story: Story) -> None:
    one, other = told(tmp_path / "one.bkh", story.events), told(tmp_path / "other.bkh", story.events[:-1])
    assert bk_chaos("diff", one, one).stdout == f"the same {len(story.events)} events\n"
    assert bk_chaos("diff", one, one).exit_code == 0
    assert bk_chaos("diff", one, other).stdout.splitlines()[-1] == "+ no such event, the history has ended"
    refused = bk_chaos("diff", one, tmp_path / "none.bkh")
    assert refused.exit_code == 2
    assert len(refused.stderr.splitlines()) == 1
