"""Faults that set one thing, begun and ended in any order."""

from __future__ import annotations

import itertools

import pytest

from scenarios.playing.in_force import InForce


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_what_several_faults_set_is_as_before_when_all_have_ended(order: tuple[int, ...]) -> None:
    in_force, told, others = InForce(), list[float](), list[float]()
    ends = [in_force.begin(("clock", "a"), told.append, rate, 1.0) for rate in (2.0, 3.0, 4.0)]
    in_force.begin(("clock", "b"), others.append, 5.0, 1.0)
    assert (told, others) == ([2.0, 3.0, 4.0], [5.0])
    left = dict(enumerate((2.0, 3.0, 4.0)))
    for number in order:
        ends[number]()
        del left[number]
        assert told[-1] == (left[max(left)] if left else 1.0)
    assert others == [5.0]
