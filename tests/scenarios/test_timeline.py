"""The timeline: a counterexample at a glance, whatever is in the history."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.history import Event, Kind
from scenarios.timeline import render
from tests.scenarios.stories import DENIED, Story

_HEADER: dict[str, Any] = {
    "scenario": "lost-fence",
    "seed": 3,
    "mutant": "recovery-reads-do-not-fence",
    "cluster": {"bookies": 2, "ensemble_size": 2, "write_quorum_size": 2, "ack_quorum_size": 2},
}


def lost_fence() -> Story:
    """The fence to b0 is lost, the recovery read does not fence either, and a late add completes the ack quorum."""
    story = Story("2/2/2")
    story.create()
    story.write_all(0, 20)
    story.event(Kind.FAULT, "nemesis", ledger=-1, cause="hold", detail="writer > b0")
    story.send(21, "b1", "b0", lac=20)
    story.store(21, "b1")
    story.answer(21, "b1")
    story.mark()
    story.fence("b1", lac=20)
    story.ask(21, "b1", "b0", fence=False)
    story.told(21, "b0", code=DENIED, fence=False)
    story.decide(21, "negative", "b0")
    story.store(21, "b0")
    story.close(20, actor="r0")
    story.answer(21, "b0")
    story.ack(21)
    story.read(3)
    return story


def told(story: Story, **options: Any) -> str:
    violations = [found for found in story.checked().finish() if found.invariant == "NoLacTruncation"]
    return render(_HEADER, story.events, focus=violations[0] if violations else None, color=False, **options)


GOLDEN = """\
lost-fence, seed 3, ledger 7, 2/2/2 of 2 bookies, with the defect recovery-reads-do-not-fence
NoLacTruncation (A1): entry 21 was acknowledged to the application of writer although the ledger had been closed by r0 at entry 20

w = writer  n = nemesis
         ms  w  n  r0 b0 b1
       0.00  ●  │  │  │  │  CAS v0 creates the ledger on b0, b1 ok
             ... 21 entries (e0 to e20) acknowledged, 210 events ...
     211.00  │  ●  │  │  │  hold: writer > b0
     212.00  ●───────────▶  add e21 -> b1 LAC 20
     213.00  ●────────▶  │  add e21 -> b0 LAC 20
     214.00  │  │  │  │  ●  stores e21 of writer
     216.00  ◀───────────○  add e21 at b1: ok
     217.00  │  │  ●  │  │  opens the ledger with recovery
     219.00  │  │  ●  │  │  CAS v1 IN_RECOVERY ok
     220.00  │  │  ●  │  │  recovers v1: last fragment from e0 on b0, b1
     221.00  │  │  ●─────▶  fences b1
     222.00  │  │  │  │  ●  fenced by r0
     224.00  │  │  ◀─────○  fence answered by b1: LAC 20
     225.00  │  │  ●─────▶  recovery read e21 from b1, not fencing
     226.00  │  │  ●──▶  │  recovery read e21 from b0, not fencing
     227.00  │  │  ◀──○  │  recovery read e21 from b0: no such entry
     228.00  │  │  ●  │  │  e21 is ruled out by b0
     229.00  │  │  │  ●  │  stores e21 of writer
!    231.00  │  │  ●  │  │  CAS v2 CLOSED at e20 ok
     232.00  ◀────────○  │  add e21 at b0: ok
!    233.00  ●  │  │  │  │  acked e21
             ... e3 read, 7 events ...
"""


def test_a_counterexample_reads_like_this() -> None:
    assert told(lost_fence()) == GOLDEN


def test_colours_change_nothing_but_colours() -> None:
    violation = next(found for found in lost_fence().checked().finish() if found.invariant == "NoLacTruncation")
    coloured = render(_HEADER, lost_fence().events, focus=violation)
    assert "\x1b[" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == GOLDEN.splitlines()


def test_without_a_violation_the_end_of_the_ledger_is_told() -> None:
    story = Story("2/2/2")
    story.create()
    story.write_all(0, 9)
    story.close(9)
    text = told(story)
    assert "9 entries (e0 to e8) acknowledged" in text
    assert "acked e9" in text
    assert "CLOSED at e9 ok" in text
    assert "!" not in text


def test_messages_to_several_bookies_at_once_are_one_line() -> None:
    story = Story("3/3/2")
    story.create()
    story.write(0)
    story.close(0)
    story.events = [Event(e.seq, 5000, e.actor, e.kind, e.ledger, e.fields) for e in story.events]
    assert told(story).count("add e0 -> b0, b1, b2 LAC -1") == 1


def test_acknowledgements_one_after_the_other_at_one_time_are_one_line() -> None:
    story = Story("1/1/1")
    story.create()
    for entry in (0, 1):
        story.send(entry, "b0")
        story.store(entry, "b0")
        story.answer(entry, "b0")
    story.ack(0)
    story.ack(1)
    story.close(-1)
    story.events = [Event(e.seq, 5000, e.actor, e.kind, e.ledger, e.fields) for e in story.events]
    assert "!      5.00  ●  │  acked e0 to e1" in told(story)


def test_it_fits_into_the_lines_and_columns_it_is_given_and_keeps_the_witness() -> None:
    story = lost_fence()
    text = told(story, rows_max=8, width=60)
    lines = text.splitlines()
    rows = [line for line in lines if re.match(r"[! ] +\d+\.\d\d ", line)]
    assert len(rows) == 8
    assert sum(line.startswith("!") for line in rows) == 2
    assert all(len(line) <= 60 for line in rows)


def test_the_ledger_with_most_events_is_told_unless_another_is_asked_for() -> None:
    long, short = Story("1/1/1", ledger=1), Story("1/1/1", ledger=2)
    long.create()
    long.write_all(0, 3)
    short.create()
    events = [*long.events, *short.events]
    assert "ledger 1" in render({}, events, color=False)
    assert "ledger 2" in render({}, events, ledger=2, color=False)


def test_labels_are_short_and_tell_actors_apart() -> None:
    story = Story("1/1/1")
    story.fragments = [(0, ("bookie-0",))]
    story.create("recoverer")
    story.send(0, "bookie-0", actor="recoverer")
    story.store(0, "bookie-0")
    story.event(Kind.CLIENT_PAUSE, "reader", ledger=-1)
    story.event(Kind.CLIENT_PAUSE, "restorer-1", ledger=-1)
    text = told(story)
    assert "r = recoverer  re = reader  r1 = restorer-1" in text


def test_many_actors_leave_room_for_words() -> None:
    story = Story("1/1/1")
    story.create()
    for i in range(40):
        story.event(Kind.CLIENT_PAUSE, f"client-{i}", ledger=-1)
    text = told(story, width=120)
    assert "client-39: is paused" in text


def test_an_empty_history_is_told_in_a_line() -> None:
    assert "ledger -1" in render({}, [], color=False)


def test_a_close_of_which_nothing_else_is_known_is_told() -> None:
    story = lost_fence()
    for number, event in enumerate(story.events):
        if event.kind == Kind.META_CAS and event.fields["state"] == "CLOSED":
            blanked = {**event.fields, "last_entry": None, "length": None}
            story.events[number] = Event(event.seq, event.time_us, event.actor, event.kind, event.ledger, blanked)
    assert "CLOSED ok" in render(_HEADER, story.events, color=False)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_unknown_fields_upset_nothing(data: st.DataObject) -> None:
    story = lost_fence()
    index = data.draw(st.integers(0, len(story.events) - 1))
    event = story.events[index]
    blanked = {name: None for name in event.fields if data.draw(st.booleans())}
    story.events[index] = Event(
        event.seq, event.time_us, event.actor, event.kind, event.ledger, {**event.fields, **blanked}
    )
    assert render(_HEADER, story.events, color=False)
