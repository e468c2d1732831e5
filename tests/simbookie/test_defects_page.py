"""The page of BookKeeper's defects has every switch, and tests that are there and use it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import cast

import pytest

from simbookie.config import BookieConfig
from simbookie.crashes.hunts import SHOWN_BY_CHANCE, SWITCHES, Switch, name_of
from simbookie.crashes.recipes import RECIPES
from simbookie.storage.quirks import Quirk

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "bookie-defects.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| defect", "| ---"))
]
#: The one that is no quirk of a storage.
SETTING = "error_waits_for_fence=False"


def test_every_switch_has_one_row() -> None:
    switches = [row[2].strip("`") for row in ROWS]
    assert sorted(switches) == sorted([SETTING, *(quirk.value for quirk in Quirk)])
    assert len({row[0] for row in ROWS}) == len(ROWS)
    assert BookieConfig().error_waits_for_fence, "the default is what is right"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_the_test_of_a_row_is_there_and_uses_the_switch(row: list[str]) -> None:
    defect, issue, switch, _, shown = row
    assert defect
    assert re.fullmatch(r"(\d{4}(, \d{4})*( \(of the default logger\))?)?", issue)
    path, name = re.fullmatch(r"`(tests/[\w/.]+\.py): (test_\w+)`", shown).groups()  # type: ignore[union-attr]
    source = (ROOT / path).read_text(encoding="utf-8")
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    (test,) = [node for node in functions if node.name == name]
    first = min(node.lineno for node in (test, *test.decorator_list))
    text = "\n".join(source.splitlines()[first - 1 : test.end_lineno])
    used = switch.strip("`")
    wanted = used if used == SETTING else f"Quirk.{Quirk(used).name}"
    assert wanted in text, f"{name} does not use {wanted}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_a_row_says_how_crash_runs_show_the_defect(row: list[str]) -> None:
    switch, in_runs = row[2].strip("`"), row[3]
    assert in_runs == how_runs_show(next(each for each in SWITCHES if name_of(each) == switch))


def how_runs_show(switch: Switch) -> str:
    """What the cell of a defect has to say."""
    if switch in SHOWN_BY_CHANCE:
        shown = SHOWN_BY_CHANCE[switch]
        return f"{shown.kind}, {shown.runs} runs: {', '.join(sorted(shown.invariants, key=lambda name: int(name[1:])))}"
    recipe = RECIPES[cast("Quirk", switch)]
    told = ", ".join(recipe.violates) if recipe.answers is None else "{} ({})".format(*recipe.answers)
    return f"{recipe.kind}, recipe: {told}"


def test_what_is_shown_on_bookies_of_bookkeepers_is_a_switch_and_a_test() -> None:
    section = PAGE.partition("## On BookKeeper's own bookies")[2]
    switches = re.findall(r"`([a-z-]+)`", section)
    assert len(switches) >= 14
    assert set(switches) <= {quirk.value for quirk in Quirk}
    for path in re.findall(r"`(tests/interop/\w+\.py)`", section):
        assert (ROOT / path).is_file()


def test_what_was_planted_instead_is_there() -> None:
    table = (ROOT / "tests" / "tools" / "storage_defect_table.py").read_text(encoding="utf-8")
    assert '"an older checkpoint moves the mark back"' in table
    path, name = re.findall(r"`(tests/[\w/.]+\.py): (test_\w+)`", PAGE)[-1]
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
