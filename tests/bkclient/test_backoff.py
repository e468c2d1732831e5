"""Delays grow from the first to the largest, by steps or by number."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient._backoff import Backoff

DELAYS = st.builds(
    lambda first_s, more, factor: Backoff(first_s, first_s * more, factor),
    st.floats(0.001, 100.0),
    st.floats(1.0, 1e6),
    st.sampled_from([1.0, 1.5, 2.0, 10.0]),
)


@pytest.mark.rule("R-11")
def test_delays_grow_up_to_the_largest() -> None:
    backoff = Backoff(1.5, 5.0)

    delays = [backoff.first_s]
    for _ in range(3):
        delays.append(backoff.after(delays[-1]))
    assert delays == [1.5, 3.0, 5.0, 5.0]


@given(DELAYS)
def test_steps_and_numbers_tell_the_same_delays_and_none_shrinks_or_exceeds_the_limit(backoff: Backoff) -> None:
    delay_s = backoff.first_s
    delays = [backoff.nth(number) for number in range(40)]
    for by_number in delays:
        assert math.isclose(by_number, delay_s)
        delay_s = backoff.after(delay_s)
    assert all(one <= other <= backoff.max_s for one, other in pairwise(delays))


@given(DELAYS, st.integers(0, 2**70))
def test_any_number_of_attempts_has_a_finite_delay(backoff: Backoff, number: int) -> None:
    assert backoff.first_s <= backoff.nth(number) <= backoff.max_s
