"""How long examples take says how busy the machine is, and fails no property test."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings


@pytest.mark.parametrize("name", ["patient", "repeatable"])
def test_no_example_is_too_slow(name: str) -> None:
    profile = settings.get_profile(name)
    assert profile.deadline is None
    assert HealthCheck.too_slow in profile.suppress_health_check
