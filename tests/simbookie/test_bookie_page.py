"""The page of mechanisms has every mechanism of the list, and names modules and tests that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "bookie.md").read_text(encoding="utf-8")
LIST = (Path(__file__).parent / "mechanisms.txt").read_text(encoding="utf-8").splitlines()
HEADS = ("| mechanism", "| ---")
ELSEWHERE = "Not of a bookie"


def sections() -> dict[str, list[list[str]]]:
    """By title, the rows of the section's table."""
    found = {}
    for text in PAGE.split("\n## ")[1:]:
        title, _, rest = text.partition("\n")
        lines = [line for line in rest.splitlines() if line.startswith("|") and not line.startswith(HEADS)]
        found[title] = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return found


SECTIONS = sections()
ROWS = [row for title, rows in SECTIONS.items() if title != ELSEWHERE for row in rows]


@cache
def functions(path: str) -> frozenset[str]:
    """The names of all functions in a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def test_page_and_list_have_the_same_mechanisms_in_the_same_places() -> None:
    on_page = [line for title, rows in SECTIONS.items() for line in (f"# {title}", *(row[0] for row in rows))]
    assert on_page == LIST
    names = [line for line in LIST if not line.startswith("#")]
    assert len(set(names)) == len(names) > 130


def test_no_row_is_empty() -> None:
    assert {len(row) for row in ROWS} == {4}
    assert {len(row) for row in SECTIONS[ELSEWHERE]} == {2}
    assert all(cell not in ("", "-", "not yet") for rows in SECTIONS.values() for row in rows for cell in row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_module_and_test_of_a_row_are_there(row: list[str]) -> None:
    (module,) = re.findall(r"^`((?:simbookie|bkclient)/[\w/]+\.py)`$", row[2])
    assert (ROOT / module).is_file()
    ((path, name),) = re.findall(r"^`(tests/[\w/]+\.py): (test_\w+)`$", row[3])
    assert name in functions(path), f"{path} has no {name}"


def test_the_number_of_invariants_is_right() -> None:
    from simbookie.crashes.invariants import INVARIANTS  # noqa: PLC0415

    assert len(INVARIANTS) == 19
    assert "Nineteen invariants" in PAGE
