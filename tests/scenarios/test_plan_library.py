"""Every plan of the library is in its canonical form, in the table, and comes to what it expects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scenarios.determinism import check_determinism
from scenarios.library import SCENARIOS
from scenarios.model import TransportKind
from scenarios.plan import PlanError, parse_plan, print_plan
from scenarios.plan import library as shelf
from scenarios.plan.library import library_names, library_plan, library_text
from scenarios.plan.model import Expected
from scenarios.plan.named import plan_names
from scenarios.runner import run_scenario

NAMES = library_names()
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "scenarios.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d*) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
SCENARIOS_IN_ALL = 75


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_in_its_canonical_form(name: str) -> None:
    text = library_text(name)
    plan = parse_plan(text, f"{name}.scn")
    assert print_plan(plan) == text
    assert plan.summary


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_comes_to_what_it_expects(name: str) -> None:
    result = run_scenario(name, 0)
    assert (result.verdict, result.problem, result.violations) == ("ok", "", ())


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_a_plan_comes_to_what_it_expects_over_bytes(name: str) -> None:
    result = run_scenario(name, 1, transport=TransportKind.BYTES)
    assert (result.verdict, result.problem, result.violations) == ("ok", "", ())


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("transport", TransportKind)
@pytest.mark.parametrize("name", NAMES)
def test_a_plan_comes_to_what_it_expects_with_many_seeds(name: str, transport: TransportKind) -> None:
    found = {
        seed: (result.problem, result.violations)
        for seed in range(50)
        if (result := run_scenario(name, seed, transport=transport)).verdict != "ok"
    }
    assert found == {}


@pytest.mark.deep
def test_plans_come_out_the_same_here_again_and_elsewhere() -> None:
    names = [name for name in NAMES if name.startswith(("r", "z"))][:6]
    assert check_determinism([3], names).diverged == ()
    assert check_determinism([3], names[:3], transport=TransportKind.BYTES).diverged == ()


def test_no_plan_has_the_name_of_a_scenario() -> None:
    """A name stands for a scenario first, so the plan would never be played by its name."""
    assert SCENARIOS.keys().isdisjoint(plan_names())


def test_there_is_no_other_plan() -> None:
    with pytest.raises(KeyError):
        library_plan("tea-party")
    with pytest.raises(KeyError):
        library_plan("../plan/__init__")


def test_a_file_holds_the_plan_it_is_named_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.scn").write_text(library_text(NAMES[0]))
    monkeypatch.setattr(shelf, "_FOLDER", tmp_path)
    shelf.library_names.cache_clear()
    try:
        with pytest.raises(PlanError, match=rf"one.scn: expected plan one, found plan {NAMES[0]}"):
            shelf.library_plan("one")
    finally:
        shelf.library_names.cache_clear()


# The table ---------------------------------------------------------------------------------------------------------


def test_the_table_has_every_number_once_and_every_plan_once() -> None:
    assert [int(number) for number, *_ in ROWS if number] == list(range(1, SCENARIOS_IN_ALL + 1))
    named = [name for _, _, _, plans in ROWS for name in re.findall(r"`([a-z0-9-]+)`", plans)]
    assert sorted(named) == list(NAMES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_a_row_has_the_expectations_of_its_plans_or_a_reason(row: tuple[str, str, str, str]) -> None:
    _, _, expected, plans = row
    names = re.findall(r"`([a-z0-9-]+)`", plans)
    if not names:
        assert plans.startswith("not yet: ")
        return
    found = {library_plan(name).expect.verdict for name in names}
    assert {Expected[word.upper()] for word in expected.split(", ")} == found


def test_the_page_counts_them() -> None:
    there = sum("`" in plans for number, _, _, plans in ROWS if number)
    assert f"{there} of {SCENARIOS_IN_ALL} are there" in PAGE
