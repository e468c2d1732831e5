"""The benchmark of simulated runs compares a run with the same run unwatched; both have to take the same course."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulator import unjudged, unrecorded
from scenarios.runner import run_scenario


@pytest.mark.parametrize("name", ["dead-writer", "swarm"])
def test_a_run_takes_the_same_course_watched_or_not(name: str) -> None:
    watched = run_scenario(name, 3)
    swept = run_scenario(name, 3, with_digest=False)
    with unjudged():
        alone = run_scenario(name, 3)
    with unrecorded():
        bare = run_scenario(name, 3)

    assert watched.verdict == "ok"
    assert alone.digest == watched.digest, "witnesses change nothing of what is recorded"
    assert swept == replace(watched, digest="", wall_seconds=swept.wall_seconds)
    assert bare.events == alone.events == watched.events, "who goes by events is told of them without a recorder, too"
    assert bare.simulated_seconds == alone.simulated_seconds == watched.simulated_seconds
