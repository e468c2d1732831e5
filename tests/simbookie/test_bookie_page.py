"""The page of mechanisms names modules and tests that are there, for every mechanism."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "bookie.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| mechanism", "| ---"))
]


def test_every_line_of_the_tables_is_a_row() -> None:
    assert len(ROWS) > 40
    assert all(len(row) == 4 for row in ROWS)
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_module_and_test_of_a_row_are_there(row: list[str]) -> None:
    for cell in row[2:]:
        (path,) = re.findall(r"^`([\w/.]+\.py)`$", cell)
        assert (ROOT / path).is_file()
    assert row[3].startswith("`tests/")


def test_no_row_is_empty() -> None:
    assert all(cell not in ("", "-", "not yet") for row in ROWS for cell in row)
