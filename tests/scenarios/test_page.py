"""A run as a web page: which events belong together, what was known when, and that the page holds all of it and nothing else."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import scenarios.page.content
from scenarios.cli.app import app
from scenarios.history import Event, Kind, read_history
from scenarios.model import Violation
from scenarios.page import PageError, content_of, render_page
from scenarios.page.curves import curves_of
from scenarios.page.messages import MessageEvents, messages_of
from tests.scenarios.played import play
from tests.scenarios.stories import DENIED, Story

NO_END: dict[str, Any] = {"scenario": "a story", "seed": 3}


class PageElements(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "elements are nested"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def data_of(page: str) -> Any:
    return json.loads(PageElements(page).scripts[0])


# Messages ----------------------------------------------------------------------------------------------------------


def test_an_add_is_a_request_its_arrival_and_its_answer() -> None:
    story = Story("2/2/2")
    story.create()
    story.send(0, "b0", "b1")
    story.store(0, "b1")
    story.answer(0, "b1")
    sends, stores, answers = (
        [each.seq for each in story.events if each.kind == kind]
        for kind in (Kind.ADD_SEND, Kind.BK_STORE, Kind.ADD_RESP)
    )
    assert messages_of(story.events) == [
        MessageEvents(sends[0], None, None),
        MessageEvents(sends[1], stores[0], answers[0]),
    ]


def test_what_is_sent_again_is_answered_in_order_and_arrives_once() -> None:
    """Bookies record an entry that they store for the first time only."""
    story = Story("2/2/2")
    story.create()
    for _ in range(2):
        story.send(0, "b0")
    story.store(0, "b0")
    for _ in range(2):
        story.answer(0, "b0")
    first, second = messages_of(story.events)
    assert first.request < second.request
    assert first.answer is not None
    assert second.answer is not None
    assert first.answer < second.answer
    assert first.arrival is not None
    assert second.arrival is None


def test_an_arrival_after_the_answer_belongs_to_the_next_request() -> None:
    """A request that was given up is answered at the client; what arrives later was sent later."""
    story = Story("2/2/2")
    story.create()
    story.send(0, "b0")
    story.answer(0, "b0", code=-23)
    story.send(0, "b0")
    story.store(0, "b0")
    first, second = messages_of(story.events)
    assert (first.arrival, second.answer) == (None, None)
    assert second.arrival is not None


def test_a_fence_arrives_with_the_first_request_that_fences() -> None:
    story = Story("2/2/2")
    story.create()
    story.mark()
    story.fence("b1", lac=-1)
    story.ask(0, "b1", "b0")
    story.told(0, "b1", code=DENIED)
    story.told(0, "b0", code=DENIED)
    kinds = {event.seq: event.kind for event in story.events}
    found = [(kinds[one.request], one.answer is not None) for one in messages_of(story.events)]
    assert (Kind.FENCE_SEND, True) in found
    assert found.count((Kind.REC_READ_SEND, True)) == 2
    for one in messages_of(story.events):
        if one.arrival is not None:
            assert kinds[one.arrival] in {Kind.FENCE_SET, Kind.BK_STORE}


@pytest.mark.parametrize(("scenario", "seed"), [("racing-change", 1), ("lost-reads", 0), ("rival-recoveries", 2)])
def test_in_a_run_every_answer_has_its_request_and_time_goes_forward(scenario: str, seed: int) -> None:
    events = play(scenario, seed).events
    messages = messages_of(events)
    by_seq = {event.seq: event for event in events}
    answers = [each.seq for each in events if each.kind.endswith("_RESP")]
    assert sorted(one.answer for one in messages if one.answer is not None) == answers
    ends = [end for one in messages for end in (one.request, one.arrival, one.answer) if end is not None]
    assert len(ends) == len(set(ends))
    for one in messages:
        request = by_seq[one.request]
        if one.answer is not None:
            answer = by_seq[one.answer]
            assert request.seq < answer.seq
            assert (request.actor, request.fields["bookie"]) == (answer.actor, answer.fields["bookie"])
        if one.arrival is not None:
            arrival = by_seq[one.arrival]
            assert one.request < one.arrival
            has_no_answer = one.answer is not None and by_seq[one.answer].fields["code"] in {-23, -8, -19}
            assert one.answer is None or has_no_answer or one.arrival < one.answer
            assert (arrival.actor, arrival.fields["source"]) == (request.fields["bookie"], request.actor)
    arrived = {one.arrival for one in messages}
    copies = Counter((each.fields["source"], each.fields["request"]) for each in events if each.kind == Kind.BK_RECV)
    assert len(arrived - {None}) == len(copies), "every request that arrived, whatever number of times"


# Curves ------------------------------------------------------------------------------------------------------------


def test_curves_rise_with_what_was_appended_acknowledged_and_known() -> None:
    events = play("racing-change", 1).events
    (ledger,) = {event.ledger for event in events if event.ledger >= 0}
    told = curves_of(ledger, events)
    for name, points in told["curves"].items():
        assert points == sorted(points), name
        assert [entry for _, entry in points] == sorted({entry for _, entry in points}), name
    acknowledged = [event.fields["entry"] for event in events if event.kind == Kind.APP_ACK]
    assert told["curves"]["acknowledged"][-1][1] == max(acknowledged)
    closes = [event for event in events if event.kind == Kind.META_CAS and event.fields["state"] == "CLOSED"]
    assert told["closed"] == [
        (each.time_us, each.fields["last_entry"]) for each in closes if each.fields["outcome"] == "ok"
    ]
    assert [each["version"] for each in told["versions"]] == sorted(each["version"] for each in told["versions"])
    assert curves_of(ledger + 1, events) == {"ledger": ledger + 1, "curves": {}, "versions": [], "closed": []}


# Content -----------------------------------------------------------------------------------------------------------


def test_every_event_is_there_with_its_fields_and_in_its_lane() -> None:
    played = play("lost-fence", 0, "recovery-reads-do-not-fence")
    content = content_of(NO_END, played.events, played.result.violations)
    assert content["verdict"] == "violated"
    assert [row[0] for row in content["events"]] == [event.seq for event in played.events]
    lanes = [actor["name"] for actor in content["actors"]]
    for row, event in zip(content["events"], played.events, strict=True):
        assert row[2] == -1 or lanes[row[2]] == event.actor
        assert row[4] in content["groups"]
        assert row[7] == event.kind
        if event.fields.get("bookie"):
            assert ["bookie", event.fields["bookie"]] in row[8]
    assert all(actor["is_bookie"] == actor["name"].startswith("bookie-") for actor in content["actors"])
    assert len({actor["short"] for actor in content["actors"]}) == len(lanes)
    assert [each["name"] for each in content["violations"]] == [each.name for each in played.result.violations]
    assert json.loads(json.dumps(content)) == json.loads(
        json.dumps(content_of(NO_END, played.events, played.result.violations))
    )


def test_faults_last_from_their_beginning_to_their_end() -> None:
    def fault(seq: int, us: int, phase: str, number: int) -> Event:
        fields = {
            "cause": "cut",
            "detail": "",
            "fault": number,
            "phase": phase,
            "target": "a",
            "other": "b",
            "parameters": "",
        }
        return Event(seq, us, "nemesis", Kind.FAULT, -1, fields)

    events = [fault(0, 10, "begin", 1), fault(1, 20, "begin", 2), fault(2, 30, "end", 1), fault(3, 40, "once", 3)]
    found = [(each["from_us"], each["until_us"]) for each in content_of({}, events)["faults"]]
    assert found == [(10, 30), (20, None), (40, 40)]
    assert content_of({}, events)["faults"][0]["where"] == "a b"


def test_one_ledger_can_be_chosen_and_an_unknown_one_is_an_error() -> None:
    events = play("racing-change", 1).events
    (ledger,) = {event.ledger for event in events if event.ledger >= 0}
    violations = [Violation("A1", ledger, "one", (1,)), Violation("A1", ledger + 1, "other", (2,))]
    content = content_of({}, events, violations, ledger=ledger)
    assert [each["witness"] for each in content["violations"]] == ["one"]
    with pytest.raises(PageError, match=f"the history has no event of ledger {ledger + 1}"):
        content_of({}, events, ledger=ledger + 1)


def test_a_page_takes_so_many_events_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    events = play("racing-change", 1).events
    monkeypatch.setattr(scenarios.page.content, "EVENTS_MAX", len(events))
    content_of({}, events)
    monkeypatch.setattr(scenarios.page.content, "EVENTS_MAX", len(events) - 1)
    with pytest.raises(PageError, match=rf"^{len(events)} events are too many for a page, which takes .*--ledger$"):
        content_of({}, events)


def test_a_history_of_nothing_is_a_page_too() -> None:
    content = content_of({}, [])
    assert (content["title"], content["verdict"], content["end_us"]) == ("history", "ok", 0)
    assert data_of(render_page(content))["events"] == []


# Page --------------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_refers_to_nothing_outside() -> None:
    played = play("lost-fence", 0, "recovery-reads-do-not-fence")
    content = content_of(NO_END, played.events, played.result.violations)
    page = render_page(content)
    elements = PageElements(page)
    assert elements.open == []
    assert {tag for tag, _ in elements.found}.isdisjoint({"link", "img", "iframe", "object"})
    assert not any({"src", "href"} & attributes.keys() for _, attributes in elements.found)
    assert "url(" not in page
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert data_of(page) == json.loads(json.dumps(content))
    named = {attributes["id"] for _, attributes in elements.found if "id" in attributes}
    used = set(re.findall(r'(?:\$|getElementById)\("([a-z]+)"\)', elements.scripts[1]))
    assert used <= named
    assert "lang" in dict(elements.found)["html"]


def test_nothing_in_a_run_is_taken_for_a_part_of_the_page() -> None:
    hostile = "</script><script>alert(1)</script><!--/*style*/ & \u2028"
    events = [Event(0, 0, hostile, Kind.CLIENT_START, -1, {"incarnation": 0, "detail": hostile})]
    page = render_page(content_of({"scenario": hostile, "seed": 1}, events, [Violation("A1", 0, hostile, (0,))]))
    elements = PageElements(page)
    assert len(elements.scripts) == 2
    data = data_of(page)
    assert data["actors"][0]["name"] == hostile
    assert data["violations"][0]["witness"] == hostile
    assert page.count("<script") == 2


# Commands ----------------------------------------------------------------------------------------------------------


def bk_chaos(*arguments: object, code: int) -> Any:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result


def test_run_and_show_write_the_same_page(tmp_path: Path) -> None:
    defect = ["--mutant", "recovery-reads-do-not-fence", "--record", tmp_path]
    shown = bk_chaos("run", "lost-fence", *defect, "--html", tmp_path / "run.html", code=1)
    assert f"the run as a page: {tmp_path / 'run.html'}" in shown.stdout
    (history,) = tmp_path.glob("*.bkh")
    shown = bk_chaos("show", history, "--html", tmp_path / "show.html", "--json", code=1)
    assert json.loads(shown.stdout)["verdict"] == "violated"
    made, again = (data_of((tmp_path / name).read_text()) for name in ("run.html", "show.html"))
    assert made == again
    assert len(made["events"]) == len(read_history(history)[1])


def test_a_run_that_is_not_kept_has_a_page_too(tmp_path: Path) -> None:
    bk_chaos("run", "calm-writes", "--html", tmp_path / "run.html", code=0)
    assert data_of((tmp_path / "run.html").read_text())["verdict"] == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]


def test_a_place_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    for place, why in (
        (tmp_path, "it is a folder"),
        (tmp_path / "no" / "x.html", f"there is no folder {tmp_path / 'no'}"),
    ):
        for command in (["run", "calm-writes"], ["show", tmp_path / "x.bkh"]):
            shown = bk_chaos(*command, "--html", place, code=2)
            assert f"{place} cannot be written: {why}" in shown.stderr
            assert shown.stdout == ""


def test_too_much_for_a_page_is_told_after_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios.page.content, "EVENTS_MAX", 10)
    shown = bk_chaos("run", "calm-writes", "--html", tmp_path / "run.html", code=2)
    assert "are too many for a page" in shown.stderr
    assert "calm-writes" in shown.stdout
    assert not (tmp_path / "run.html").exists()
