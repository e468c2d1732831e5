"""The parts of ``make mutation`` name modules and tests that are there, and no machine, shell or transport is in none."""

from __future__ import annotations

import pytest

from tests.tools.mutation import PARTS, ROOT

#: What the parts are to cover between them.
COVERED = ("bkclient/protocol", "bkclient/_client/reading", "bkclient/_client/writing", "bkclient/transport")


@pytest.mark.parametrize("name", PARTS)
def test_every_pattern_of_a_part_is_of_something(name: str) -> None:
    part = PARTS[name]
    for pattern in part.modules:
        assert list(ROOT.glob(pattern)), f"{pattern} matches no module"
    for test in part.tests:
        assert (ROOT / test.removeprefix("--ignore=")).exists(), f"{test} is not there"


@pytest.mark.parametrize("package", COVERED)
def test_every_module_that_was_promised_is_in_a_part(package: str) -> None:
    held = {path for part in PARTS.values() for pattern in part.modules for path in ROOT.glob(pattern)}
    assert set((ROOT / package).glob("*.py")) <= held
