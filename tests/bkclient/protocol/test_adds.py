"""Pending adds on their own: what each answer means, in runs and one by one, also from bookies that have no say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import Code
from bkclient.protocol.adds import Effect, PendingAdds
from bkclient.protocol.quorum import QuorumSizes

TIMEOUT = int(Code.TIMEOUT)


def adds_of(sizes: tuple[int, int, int], ensemble: str, entries: int = 1) -> PendingAdds:
    adds = PendingAdds(QuorumSizes(*sizes), tuple(ensemble))
    for _ in range(entries):
        adds.push(b"x", adds.last_add_confirmed)
    return adds


def stored(adds: PendingAdds) -> list[str]:
    """For each pending entry, who stored it, by position."""
    return [
        "".join(bookie if add.acknowledged >> p & 1 else "-" for p, bookie in enumerate(adds.ensemble))
        for add in adds.in_id_order()
    ]


@pytest.mark.rule("W-14")
def test_a_bookie_has_no_say_about_entries_of_other_write_sets() -> None:
    adds = adds_of((3, 2, 2), "abc", entries=3)

    assert not adds.acknowledge_all("a", [0, 1, 2])  # 1 is for b and c
    assert stored(adds) == ["a--", "---", "a--"]
    assert adds.acknowledge_all("c", [0, 1, 2])
    assert stored(adds) == ["a--", "--c", "a-c"]
    assert [add.has_quorum for add in adds.in_id_order()] == [False, False, True]


@pytest.mark.rule("W-14")
def test_and_none_about_entries_that_are_done_or_if_it_is_no_member() -> None:
    adds = adds_of((3, 3, 2), "abc", entries=2)
    adds.acknowledge_all("a", [0])
    assert adds.acknowledge_all("b", [0])
    assert [entry.entry_id for entry in adds.complete()] == [0]

    assert not adds.acknowledge_all("c", [0])
    assert not adds.acknowledge_all("z", [0, 1])
    assert stored(adds) == ["---"]
    assert adds.fail("z", 1, TIMEOUT)[:2] == (Effect.NONE, -1)


@pytest.mark.parametrize("places", ["abcb", "bacb", "abbc"])
def test_a_bookie_that_old_metadata_names_twice_answers_for_each_place_in_turn(places: str) -> None:
    adds = adds_of((4, 4, 3), places)
    first, second = (position for position, bookie in enumerate(places) if bookie == "b")

    assert not adds.acknowledge_all("b", [0])
    assert adds.pending[0].acknowledged == 1 << first
    assert adds.fail("b", 0, TIMEOUT)[:2] == (Effect.NEEDED, second), "the other place has not answered yet"
    assert adds.failures_of(adds.pending[0]) == {second: "b"}
    assert not adds.acknowledge_all("b", [0])
    assert adds.pending[0].acknowledged == 1 << first | 1 << second
    assert adds.failures_of(adds.pending[0]) == {}, "who fails one sending and stores another stores it"
    assert not adds.acknowledge_all("b", [0]), "there is no third place"
    assert adds.acknowledge_all("c", [0])


@pytest.mark.rule("DS-7")
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_bookie_that_says_both_is_not_relied_upon(position: int) -> None:
    adds = adds_of((3, 3, 3), "abc")
    bookie = "abc"[position]
    adds.acknowledge_all("a", [0])
    adds.acknowledge_all(bookie, [0])

    assert adds.fail(bookie, 0, TIMEOUT)[:2] == (Effect.NEEDED, position)
    assert adds.pending[0].acknowledged == (0 if position == 0 else 1)
    assert adds.failures_of(adds.pending[0]) == {position: bookie}
    assert adds.is_stuck(adds.pending[0])


@pytest.mark.rule("W-16")
def test_failures_after_the_quorum_are_late_wherever_they_come_from_and_all_are_remembered() -> None:
    adds = adds_of((4, 4, 2), "abcd", entries=2)
    adds.acknowledge_all("c", [0, 1])
    adds.acknowledge_all("d", [0, 1])

    add = adds.pending[1]
    assert adds.fail("a", 1, TIMEOUT) == (Effect.LATE, 0, add)
    assert adds.fail("b", 1, TIMEOUT) == (Effect.LATE, 1, add)
    assert adds.failures_of(add) == {0: "a", 1: "b"}
    assert len(adds.complete()) == 2
    assert adds.fail("a", 0, TIMEOUT) == (Effect.LATE, 0, None)
    assert adds.fail("b", 0, TIMEOUT) == (Effect.LATE, 1, None)
    assert adds.fail("z", 0, TIMEOUT) == (Effect.NONE, -1, None)


def test_failures_of_what_was_taken_back_mean_nothing() -> None:
    adds = adds_of((3, 3, 2), "abc", entries=2)
    adds.drain()
    assert adds.fail("b", 1, TIMEOUT) == (Effect.NONE, -1, None)
    assert adds.failure_codes == {"b": TIMEOUT}


Answers = list[tuple[str, list[int], bool]]


@st.composite
def answered(draw: st.DrawFn) -> tuple[PendingAdds, Answers]:
    """Adds of any ensemble, also one that names bookies twice, and answers of anybody about anything."""
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    ack = draw(st.integers(1, write))
    ensemble = "".join(draw(st.lists(st.sampled_from("abcde"), min_size=size, max_size=size)))
    adds = adds_of((size, write, ack), ensemble, draw(st.integers(1, 6)))
    ids = st.lists(st.integers(0, 7), max_size=6)
    return adds, draw(st.lists(st.tuples(st.sampled_from("abcdef"), ids, st.booleans()), max_size=12))


@given(answered())
def test_a_run_of_acknowledgements_means_what_each_of_them_does(given_: tuple[PendingAdds, Answers]) -> None:
    adds, answers = given_
    others = adds.copy()
    for bookie, entry_ids, is_stored in answers:
        if is_stored:
            assert adds.acknowledge_all(bookie, entry_ids) == others.acknowledge_each(bookie, entry_ids)
        else:
            for entry_id in entry_ids:
                assert adds.fail(bookie, entry_id, TIMEOUT)[:2] == others.fail(bookie, entry_id, TIMEOUT)[:2]
        assert adds.complete() == others.complete()
        assert adds == others
