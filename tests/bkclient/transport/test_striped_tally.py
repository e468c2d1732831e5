"""Answers to runs with several write sets: which entries wait for which, and that each rule is missed where it is left out.

That writers do what they would do if they heard of each answer is in :mod:`tests.bkclient.transport.test_tally`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bkclient._core import using_core
from bkclient.transport.striped_tally import StripedTally
from bkclient.transport.tally import HeldBack
from tests.bkclient.core.both_cores import with_each_core
from tests.bkclient.transport.test_tally import Channel, play

STRIPED = ((3, 2, 2), "abc")
WIDE = ((5, 3, 2), "abcde")


def answers(channel: Channel, text: str) -> None:
    """``"a3 b1"``: the bookies answer so many of the next adds that each of them got."""
    for answer in text.split():
        channel.stored(sorted(channel.awaited).index(answer[0]), int(answer[1:]))
        channel.check()


def acked(channel: Channel) -> list[int]:
    return [len(owner.writer.acked) for owner in channel.owners]


def told_of_one(channel: Channel) -> int:
    return sum(owner.told_of_one for owner in channel.owners)


@with_each_core
def test_a_striped_writer_hears_of_an_entry_once(core: str) -> None:
    with using_core(core):
        channel = Channel(WIDE)
        channel.run([0] * 20)
        answers(channel, "a12 b12 c12 d12 e12")
        assert (acked(channel), told_of_one(channel)) == ([20], 0)
        assert not channel.held_back
        assert not channel.held_back.lines


@with_each_core
def test_an_entry_waits_for_no_bookie_that_it_does_not_need(core: str) -> None:
    """Entry n goes to bookies n, n + 1 and n + 2 of five: each has two others when one is silent."""
    with using_core(core):
        for silent in "abcde":
            channel = Channel(WIDE)
            channel.run([0] * 20)
            for bookie in "abcde".replace(silent, ""):
                answers(channel, f"{bookie}12")
            assert (acked(channel), told_of_one(channel)) == ([20], 0)


@with_each_core
def test_an_entry_waits_for_those_before_it_and_for_no_other_writers(core: str) -> None:
    with using_core(core):
        channel = Channel(STRIPED, ((3, 2, 2), "cde"), ((2, 2, 2), "de"))
        channel.run([0, 1, 2] * 6)
        answers(channel, "a9 b9")
        assert acked(channel) == [1, 0, 0], "entries 1 and 2 are stored by c, too"
        answers(channel, "d99 e99")
        assert acked(channel) == [1, 0, 6], "entry 0 of the second needs c, and entry 1 waits for it"
        answers(channel, "c99")
        assert (acked(channel), told_of_one(channel)) == ([6, 6, 6], 0)


@with_each_core
def test_a_writer_hears_of_a_later_run_after_an_earlier_one(core: str) -> None:
    """Or it could not complete what it hears of, and nothing would be counted any more."""
    with using_core(core):
        channel = Channel(STRIPED)
        for _ in range(50):
            channel.run([0])
        answers(channel, "b99 c99")
        assert (acked(channel), told_of_one(channel)) == ([0], 0)
        answers(channel, "a1")
        assert (acked(channel), told_of_one(channel)) == ([2], 0)
        answers(channel, "a99")
        assert (acked(channel), told_of_one(channel)) == ([50], 0)
        assert not channel.held_back
        assert not channel.held_back.lines


@with_each_core
def test_what_is_asked_for_goes_on_over_all_runs(core: str) -> None:
    """A bookie that answers out of order ends the counting of all runs that lines go on in."""
    with using_core(core):
        channel = Channel(STRIPED)
        for _ in range(4):
            channel.run([0] * 3)
        answers(channel, "b99 c99")
        channel.stored_early(0, 1)
        channel.check()
        assert not channel.held_back
        answers(channel, "a99")
        assert acked(channel) == [12]


class Noting:
    """A striped writer that asks who stored what it hears of."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, tuple[str, ...]]] = []

    def on_adds_stored_by(self, quorums: Any, entry_ids: Sequence[int]) -> None:
        self.heard += [(entry_id, quorums.bookies_of(place)) for place, entry_id in enumerate(entry_ids)]


@with_each_core
def test_who_stored_an_entry_is_told_as_it_is_then(core: str) -> None:
    with using_core(core):
        writer = Noting()
        places = {"a": (0, 1), "b": (0, 1, 2), "c": (0, 1, 2), "d": (2,)}
        sets = [("a", "b", "c"), ("b", "c", "d")]
        tally = StripedTally(HeldBack(), 2, sets, bytes([0, 0, 1]), places, [7, 8, 9], [(0, writer, True)])
        tally.on_adds_stored("c", [0, 1, 2])
        tally.on_adds_stored("d", [2])
        tally.on_adds_stored("b", [0])
        assert writer.heard == [(7, ("b", "c"))]
        tally.on_adds_stored("b", [1, 2])
        assert writer.heard[1:] == [(8, ("b", "c")), (9, ("b", "c", "d"))]


# Where a rule is left out ----------------------------------------------------------------------------------------------

_begin, _lines_of, _tell = (getattr(StripedTally, name) for name in ("_begin", "_lines_of", "tell"))


def one_line(self: Any, _: object) -> list[int]:
    """The defect: entries wait for those of other writers."""
    self._waiting[self._stripes[0]].append(0)
    return list(range(1, len(self._entry_ids) + 1))


def any_order(self: Any, place: int, _: object) -> None:
    """The defect: a line does not wait for its writer's earlier runs."""
    _begin(self, place, None)


def line_for_each_set(self: Any, parts: Any) -> Any:
    """The defect: a striped writer hears of each write set by itself."""
    return _lines_of(self, [(first, owner, False) for first, owner, _ in parts])


def of_fewer(bookies: Any) -> list[Any]:
    """The defect: one bookie less than an ack quorum counts as one."""
    return [*sorted(bookies), max(bookies)]


def of_more(bookies: Any) -> list[Any]:
    """The defect: an entry waits for one bookie more than an ack quorum has."""
    return sorted(bookies)[:-1] if len(sorted(bookies)) > 2 else sorted(bookies)


def tells_little(self: Any) -> None:
    """The defect: what is stored and waits for entries before it is not told when it is asked for."""
    for place, stripe in enumerate(self._stripes):
        if self._stored[stripe] > place:
            self._after[place] = -1
    _tell(self)


def names_all(self: Any, place: int) -> tuple[str, ...]:
    """The defect: bookies are named that have not stored an entry."""
    return tuple(self._sets[self._stripes[self._dealt[self._first + place]]])


def tells_itself(self: Any) -> None:
    """The defect: a run that is told of leaves those behind in which its lines go on."""
    for tally in list(self)[:1]:
        tally.tell()


def spoil_quorum(sorting: Callable[[Any], list[Any]]) -> Callable[[pytest.MonkeyPatch], None]:
    def spoil(patch: pytest.MonkeyPatch) -> None:
        patch.setattr("bkclient.transport.striped_tally.sorted", lambda marks: sorting(list(marks)), raising=False)

    return spoil


def replace(owner: type, name: str, defect: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, defect)


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(replace(StripedTally, "_lines_of", one_line), id="one line for all writers"),
        pytest.param(spoil_quorum(of_fewer), id="fewer than a quorum"),
        pytest.param(spoil_quorum(of_more), id="more than a quorum"),
        pytest.param(replace(StripedTally, "tell", tells_little), id="what waits is not told"),
        pytest.param(replace(StripedTally, "bookies_of", names_all), id="bookies that stored nothing"),
        pytest.param(replace(HeldBack, "tell", tells_itself), id="later runs are left behind"),
    ],
)
def test_the_property_finds_a_rule_that_is_left_out(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    def played() -> None:
        for seed in range(400):
            play(seed)

    with using_core("python"), pytest.raises(AssertionError):
        played()


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(replace(StripedTally, "_begin", any_order), id="runs in any order"),
        pytest.param(replace(StripedTally, "_lines_of", line_for_each_set), id="write sets in any order"),
    ],
)
def test_where_order_is_not_kept_writers_hear_of_each_answer(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do what they should then, and it costs what counting was made to save."""

    def heard() -> int:
        rng = random.Random(3)
        channel = Channel(STRIPED)
        for _ in range(200):
            channel.run([0] * rng.randrange(1, 4))
            for bookie in range(3):
                channel.stored(bookie, rng.randrange(4))
            channel.check()
        return told_of_one(channel)

    with using_core("python"):
        assert heard() == 0
        plant(monkeypatch)
        assert heard() > 50
