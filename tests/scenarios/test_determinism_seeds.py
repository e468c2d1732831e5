"""A hundred seeds, each run twice in this process and once in another one under another hash seed: the same histories."""

from __future__ import annotations

import pytest

from scenarios.determinism import check_determinism
from scenarios.library import SCENARIOS

SEEDS = 100


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_equal_seeds_give_equal_histories_in_any_process(scenario: str) -> None:
    """The seeds are dealt out to the scenarios; ``make determinism`` runs every scenario with all of them."""
    first = list(SCENARIOS).index(scenario)
    seeds = range(first, SEEDS, len(SCENARIOS))
    result = check_determinism(seeds, [scenario])
    assert result.runs == 3 * len(seeds)
    assert result.diverged == ()
