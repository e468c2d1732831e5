"""The plugin that has properties try more examples."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.more_examples import with_more_examples


def test_a_property_tries_so_many_times_its_examples_and_others_each_time() -> None:
    """As the plugin says it to Hypothesis, in a place without a public name."""
    tried: list[int] = []

    @settings(max_examples=5, derandomize=True, database=None)
    @given(st.integers())
    def holds(value: int) -> None:
        tried.append(value)

    holds()
    holds()
    assert len(tried) == 10
    assert tried[:5] == tried[5:]
    with_more_examples(holds, 20)
    tried.clear()
    holds()
    holds()
    assert len(tried) == 200
    assert tried[:100] != tried[100:]
