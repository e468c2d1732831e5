"""Range arithmetic for striping, against the plain membership rule."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import ArgumentError
from bkclient.protocol.quorum import QuorumSizes
from bkclient.repair.ranges import first_stored, sampled, stored, stored_at_any, stored_count


@st.composite
def questions(draw: st.DrawFn) -> tuple[QuorumSizes, int, int, int]:
    size = draw(st.integers(1, 7))
    write_quorum = draw(st.integers(1, size))
    first = draw(st.integers(0, 30) | st.integers(2**31 - 8, 2**31 + 8))
    last = first - 1 + draw(st.integers(0, 40))
    return QuorumSizes(size, write_quorum, 1), draw(st.integers(0, size - 1)), first, last


def by_membership(sizes: QuorumSizes, position: int, first: int, last: int) -> list[int]:
    return [entry_id for entry_id in range(first, last + 1) if position in sizes.write_set(entry_id)]


@pytest.mark.rule("DS-4")
@pytest.mark.behaviour("T-145")
@given(questions())
def test_the_range_of_a_position_is_what_the_membership_rule_says(question: tuple[QuorumSizes, int, int, int]) -> None:
    expected = by_membership(*question)
    assert list(stored(*question)) == expected
    assert stored_count(*question) == len(expected)
    assert first_stored(*question) == (expected[0] if expected else None)


@given(questions(), st.data())
def test_entries_of_several_positions_are_the_union_of_each(
    question: tuple[QuorumSizes, int, int, int], data: st.DataObject
) -> None:
    sizes, position, first, last = question
    positions = {position, data.draw(st.integers(0, sizes.ensemble_size - 1))}
    expected = sorted({entry_id for p in positions for entry_id in by_membership(sizes, p, first, last)})
    assert list(stored_at_any(sizes, sorted(positions), first, last)) == expected


@pytest.mark.behaviour("T-145")
@pytest.mark.parametrize(("position", "first", "last"), [(-1, 0, 5), (3, 0, 5), (0, -1, 5), (0, 5, 3)])
def test_wrong_arguments_are_refused(position: int, first: int, last: int) -> None:
    for question in (stored_count, first_stored):
        with pytest.raises(ArgumentError):
            question(QuorumSizes(3, 2, 2), position, first, last)


def test_a_huge_range_costs_no_walk() -> None:
    sizes = QuorumSizes(5, 3, 2)
    assert stored_count(sizes, 2, 0, 2**60 - 1) == len(by_membership(sizes, 2, 0, 2**60 % 5 - 1)) + (2**60 // 5) * 3
    assert first_stored(sizes, 2, 2**60, 2**61) in range(2**60, 2**60 + 5)


@pytest.mark.rule("AR-4")
@given(questions(), st.sampled_from((0.0, 3.0, 50.0, 100.0)))
def test_a_sample_has_both_ends_and_ascends_within_what_is_stored(
    question: tuple[QuorumSizes, int, int, int], percentage: float
) -> None:
    expected = by_membership(*question)
    drawn = list(sampled(*question, percentage, Random(1)))
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(expected)
    if expected:
        assert {expected[0], expected[-1]} <= set(drawn)
    if percentage == 0:
        assert len(drawn) == min(2, len(expected))
    if percentage == 100:
        assert drawn == expected


def test_a_sample_leaves_no_long_stretch_out() -> None:
    drawn = list(sampled(QuorumSizes(3, 3, 2), 0, 0, 9999, 10.0, Random(5)))
    assert len(drawn) == 1000 + 2
    assert all(following - previous < 20 for previous, following in itertools.pairwise(drawn))
    assert drawn != list(sampled(QuorumSizes(3, 3, 2), 0, 0, 9999, 10.0, Random(6)))
