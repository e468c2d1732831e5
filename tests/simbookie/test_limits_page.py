"""The page of limits and of the garbage collector's states names tests that are there, and statuses that clients know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bkclient.wire.messages import Status

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "bookie-limits.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| place", "| state", "| ---"))
]


def test_there_are_limits_and_states() -> None:
    assert sorted({len(row) for row in ROWS}) == [4, 5]
    assert sum(len(row) == 5 for row in ROWS) >= 18
    assert sum(len(row) == 4 for row in ROWS) >= 14
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_test_of_a_row_is_there(row: list[str]) -> None:
    found = re.fullmatch(r"`(tests/[\w/.]+\.py): (test_\w+)`", row[-1])
    assert found is not None
    assert f"def {found[2]}(" in (ROOT / found[1]).read_text(encoding="utf-8")


@pytest.mark.parametrize("row", [row for row in ROWS if len(row) == 5], ids=lambda row: row[0])
def test_statuses_are_those_of_the_protocol(row: list[str]) -> None:
    for name in re.findall(r"`([A-Z_]+)`", row[3]):
        assert name in Status.__members__
