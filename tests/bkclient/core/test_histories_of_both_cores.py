"""Runs of scenarios with the compiled core: their histories are, event by event, those of the core in Python."""

from __future__ import annotations

import pytest

from scenarios.library import SCENARIOS
from scenarios.model import TransportKind
from scenarios.runner import run_scenario
from tests.bkclient.core.both_cores import needs_compiled_core, same_in_both

pytestmark = needs_compiled_core


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_histories_over_bytes(scenario: str) -> None:
    digest = same_in_both(lambda: run_scenario(scenario, 3, transport=TransportKind.BYTES).digest)
    assert isinstance(digest, str)


@pytest.mark.sweep
@pytest.mark.parametrize("transport", TransportKind)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_many_histories(scenario: str, transport: TransportKind) -> None:
    for seed in range(40):
        same_in_both(lambda: run_scenario(scenario, seed, transport=transport).digest)  # noqa: B023 - called at once
