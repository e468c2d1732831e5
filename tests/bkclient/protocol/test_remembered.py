"""What is remembered of bookies: for how long, and of how many."""

from __future__ import annotations

import pytest

from bkclient.protocol.remembered import Remembered


@pytest.mark.rule("RO-7")
def test_a_value_is_kept_for_its_time_since_it_was_last_noted() -> None:
    memory: Remembered[int] = Remembered(60.0)
    memory.put("a", 1, 0.0)
    memory.put("b", 2, 30.0)
    memory.put("a", 3, 50.0)

    assert (memory.get("a", 89.9), memory.get("b", 89.9)) == (3, 2)
    assert (memory.get("a", 90.0), memory.get("b", 90.0)) == (3, None)
    assert memory.knows("a", 109.9)
    assert not memory.knows("a", 110.0)
    assert len(memory) == 0


def test_of_more_bookies_than_the_limit_the_oldest_is_forgotten() -> None:
    memory: Remembered[int] = Remembered(60.0, limit=2)
    for number, bookie_id in enumerate("abac"):
        memory.put(bookie_id, number, float(number))

    assert [memory.get(bookie_id, 4.0) for bookie_id in "abc"] == [2, None, 3]
    assert len(memory) == 2


def test_what_is_forgotten_is_not_known_and_may_be_forgotten_twice() -> None:
    memory: Remembered[int] = Remembered(60.0)
    memory.put("a", 1, 0.0)
    memory.forget("a")
    memory.forget("a")

    assert not memory.knows("a", 0.0)


def test_without_time_nothing_is_remembered() -> None:
    memory: Remembered[int] = Remembered(0.0)
    memory.put("a", 1, 0.0)

    assert len(memory) == 0


def test_what_is_too_old_makes_no_difference_to_being_empty() -> None:
    memory: Remembered[int] = Remembered(60.0)
    assert memory.is_empty(0.0)
    memory.put("a", 1, 0.0)

    assert not memory.is_empty(59.9)
    assert memory.is_empty(60.0)
