"""The page of mechanisms names modules and tests that are there, and what is missing becomes less only."""

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
#: How many mechanisms are not there yet; to be lowered with each that comes, and never raised.
MISSING = 2


def test_every_line_of_the_tables_is_a_row() -> None:
    assert len(ROWS) > 40
    assert all(len(row) == 4 for row in ROWS)
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row[1] != "not yet"], ids=lambda row: row[0])
def test_module_and_test_of_a_row_are_there(row: list[str]) -> None:
    for cell in row[2:]:
        (path,) = re.findall(r"^`([\w/.]+\.py)`$", cell)
        assert (ROOT / path).is_file()
    assert row[3].startswith("`tests/")


def test_what_is_not_there_yet_says_so_and_becomes_less() -> None:
    missing = [row for row in ROWS if row[1] == "not yet"]
    assert all(row[2:] == ["-", "-"] for row in missing)
    assert len(missing) == MISSING
