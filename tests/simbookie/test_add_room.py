"""How much may wait to be stored: what is counted, who is told when, and what is no count at all."""

from __future__ import annotations

import pytest

from bkclient.wire.messages import AddRequest, ForceLedgerRequest, ReadRequest, WriteLacRequest
from simbookie.add_room import AddRoom


def add(*, high_priority: bool = False) -> AddRequest:
    return AddRequest(1, 0, b"", b"", b"", high_priority=high_priority)


def full(pending_max: int) -> AddRoom:
    room = AddRoom(pending_max)
    room.pending = pending_max
    return room


def test_those_who_wait_are_told_once_when_half_is_answered() -> None:
    room, told = full(4), list[str]()
    room.when_room(lambda: told.append("one"))
    other = lambda: told.append("other")  # noqa: E731 - cancelled by identity
    room.when_room(other)
    room.cancel(other)
    room.cancel(other)
    assert room.waiters == 1
    room.answered()
    assert (told, room.left) == ([], 1)
    room.answered()
    assert (told, room.left, room.waiters) == (["one"], 2, 0)
    room.pending += 1
    room.answered()
    assert told == ["one"], "once"


def test_who_is_told_may_wait_again() -> None:
    room, told = full(1), list[int]()

    def wait_again() -> None:
        told.append(room.pending)
        room.pending += 1
        room.when_room(wait_again)

    room.when_room(wait_again)
    room.answered()
    room.answered()
    assert told == [0, 0]
    assert room.waiters == 1


@pytest.mark.parametrize(
    ("request_", "waits"),
    [
        (add(), True),
        (add(high_priority=True), False),
        (WriteLacRequest(1, 0, b"", b""), True),
        (ForceLedgerRequest(1), True),
        (ReadRequest(1, 0), False),
    ],
)
def test_only_what_would_be_refused_has_to_wait(request_: AddRequest | ReadRequest, waits: bool) -> None:
    assert full(2).must_wait(request_) is waits
    assert AddRoom(2).must_wait(request_) is False
    assert AddRoom(0).must_wait(request_) is False, "nothing is pending whose answer could be waited for"


def test_a_bookie_that_died_owes_nothing() -> None:
    room = full(2)
    room.when_room(pytest.fail)
    room.restart(4)
    assert (room.left, room.waiters) == (4, 0)


def test_what_is_answered_twice_is_noticed() -> None:
    room = AddRoom(2)
    room.pending += 1
    room.answered()
    with pytest.raises(AssertionError, match="what is answered was taken"):
        room.answered()
    with pytest.raises(AssertionError, match="there is room"):
        room.when_room(lambda: None)
