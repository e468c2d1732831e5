"""One history of many parts: what came before what holds, whatever the clocks say."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.history import KINDS, Event, Kind
from scenarios.processes.merging import Merged, Part, merge


def event(time_us: int, actor: str, kind: Kind, ledger: int = 1, **fields: Any) -> Event:
    return Event(0, time_us, actor, kind, ledger, dict.fromkeys(KINDS[kind]) | fields)


def sends(time_us: int, entry: int, request: int, bookie: str = "b") -> Event:
    return event(time_us, "w", Kind.ADD_SEND, entry=entry, bookie=bookie, recovery=False, request=request)


def is_told(time_us: int, entry: int, request: int, code: int = 0) -> Event:
    return event(time_us, "w", Kind.ADD_RESP, entry=entry, bookie="b", recovery=False, request=request, code=code)


def takes(time_us: int, entry: int) -> Event:
    return event(time_us, "b", Kind.BK_RECV, source="127.0.1.1", operation="add", entry=entry)


def answers(time_us: int, entry: int) -> Event:
    return event(time_us, "b", Kind.BK_ANSWER, source="127.0.1.1", operation="add", entry=entry, code=0)


def crash(time_us: int) -> Event:
    return event(time_us, "b", Kind.BK_CRASH, -1, clean=False)


def merged(*parts: Part, director: tuple[Event, ...] = ()) -> Merged:
    return merge([Part("director", director), *parts], {"127.0.1.1": "w"})


def kinds(found: Merged) -> list[str]:
    return [one.kind for one in found.events]


def test_a_request_arrives_after_it_was_sent_and_its_answer_after_it_was_given() -> None:
    """The bookie's clock is behind by more than everything took."""
    found = merged(
        Part("w", [sends(100, 0, 1), is_told(110, 0, 1)]),
        Part("b", [takes(5, 0), answers(6, 0)]),
    )
    assert kinds(found) == ["ADD_SEND", "BK_RECV", "BK_ANSWER", "ADD_RESP"]
    assert found.contradicted == 1
    assert [one.seq for one in found.events] == [0, 1, 2, 3]
    assert [one.time_us for one in found.events] == [100, 100, 100, 110], "times never go back"


def test_the_clock_decides_what_nothing_else_does() -> None:
    found = merged(
        Part("w", [event(3, "w", Kind.CLOSE_START)]),
        Part("r", [event(1, "r", Kind.OPEN_START), event(5, "r", Kind.OPEN_START)]),
    )
    assert [one.time_us for one in found.events] == [1, 3, 5]
    assert found.relations == found.contradicted == 0


def test_a_process_lives_between_its_start_and_its_crash() -> None:
    found = merged(
        Part("w", [event(50, "w", Kind.CLOSE_START), event(90, "w", Kind.CLOSE_RESULT)]),
        director=(event(60, "w", Kind.CLIENT_START, -1), event(70, "w", Kind.CLIENT_CRASH, -1)),
    )
    assert kinds(found) == ["CLIENT_START", "CLOSE_START", "CLOSE_RESULT", "CLIENT_CRASH"]


def test_the_next_life_of_a_bookie_begins_after_the_crash() -> None:
    found = merged(
        Part("b", [takes(9, 0)]),
        Part("b", [event(1, "b", Kind.BK_RESTART, -1, incarnation=2)], life=2),
        director=(crash(5),),
    )
    assert kinds(found) == ["BK_RECV", "BK_CRASH", "BK_RESTART"]


def test_a_version_of_metadata_is_stored_before_a_recovery_starts_from_it() -> None:
    found = merged(
        Part("r", [event(1, "r", Kind.REC_START, version=2)]),
        director=(event(5, "r", Kind.META_CAS, outcome="ok", cause="recover", version=2),),
    )
    assert kinds(found) == ["META_CAS", "REC_START"]


def test_a_request_that_can_be_no_other_one_has_its_number() -> None:
    found = merged(Part("w", [sends(1, 0, 7), is_told(4, 0, 7)]), Part("b", [takes(2, 0), answers(3, 0)]))
    assert [one.fields["request"] for one in found.events] == [7, 7, 7, 7]
    assert found.events[1].fields["source"] == "w"


def test_no_number_is_guessed() -> None:
    found = merged(
        Part("w", [sends(1, 0, 7), is_told(2, 0, 7, code=-23), sends(3, 0, 8), is_told(9, 0, 8)]),
        Part("b", [takes(4, 0), answers(5, 0)]),
    )
    assert [one.fields["request"] for one in found.events if one.actor == "b"] == [None, None]


def test_an_answer_that_never_came_is_no_relation() -> None:
    found = merged(Part("w", [sends(1, 0, 7), is_told(2, 0, 7, code=-23)]), Part("b", [takes(3, 0), answers(4, 0)]))
    assert kinds(found) == ["ADD_SEND", "ADD_RESP", "BK_RECV", "BK_ANSWER"]


def test_parts_that_no_run_can_have_are_refused() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        merged(Part("w", [is_told(1, 0, 7), sends(2, 0, 7)]), Part("b", [takes(1, 0), answers(2, 0)]))
