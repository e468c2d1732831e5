"""The pages of rules and behaviours and the tests that name them belong together; each way to fall apart is found."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from tests.tools.conformance import (
    BEHAVIOUR_ROW,
    HAZARD_ROW,
    RULE_ROW,
    Coverage,
    Page,
    as_json,
    as_text,
    main,
    marked,
    read_coverage,
    read_page,
)

#: How many numbered rules of each kind the protocol has, and how many behaviours and hazards are known.
NUMBERED = {
    "API": 19,
    "DS": 15,
    "RO": 8,
    "W": 60,
    "LAC": 15,
    "R": 45,
    "REC": 44,
    "NR": 10,
    "DEL": 6,
    "MD": 3,
    "PL": 27,
    "AR": 25,
    "ERR": 4,
    "CR": 23,
}
BEHAVIOURS = 267
HAZARDS = 47


@pytest.fixture(scope="module")
def here() -> Coverage:
    return read_coverage()


RULES_PAGE = """## Writing
| rule | statement | status |
|---|---|---|
| W-1 | Kept. | pinned |
| W-2 | Not yet kept. | planned |
| W-3 | Never. | declined |
"""
BEHAVIOURS_PAGE = """## Appending
| T-1 | One is shown. |
| T-2 | Another is not. |
| T-3 | There is none. | declined: it has no counterpart |
"""
HAZARDS_PAGE = """| H-1 | It does this. | We do that. | W-1, T-1 |
| H-2 | It does this. | not yet | not yet |
"""


def judged(
    rules: str = RULES_PAGE,
    behaviours: str = BEHAVIOURS_PAGE,
    hazards: str = HAZARDS_PAGE,
    rules_named: tuple[str, ...] = ("W-1",),
    behaviours_named: tuple[str, ...] = ("T-1",),
) -> Coverage:
    """A small world of pages and tests, in which all is well unless an argument spoils it."""
    return Coverage(
        read_page(rules, RULE_ROW),
        read_page(behaviours, BEHAVIOUR_ROW),
        read_page(hazards, HAZARD_ROW),
        dict.fromkeys(rules_named, ("test_it.py",)),
        dict.fromkeys(behaviours_named, ("test_it.py",)),
    )


def test_pages_and_tests_of_this_repository_agree(here: Coverage) -> None:
    assert here.problems() == []


def numbers(page: Page, kind: str) -> list[int]:
    return [int(row.name.removeprefix(f"{kind}-")) for row in page.rows if re.fullmatch(rf"{kind}-\d+", row.name)]


@pytest.mark.parametrize("kind", NUMBERED)
def test_every_rule_of_the_protocol_is_listed_in_order(kind: str, here: Coverage) -> None:
    assert numbers(here.rules, kind) == list(range(1, NUMBERED[kind] + 1))


def test_every_invariant_of_a_storage_is_listed_in_order(here: Coverage) -> None:
    listed = [row.name for row in here.rules.rows if re.fullmatch(r"I\d+", row.name)]
    assert listed == [f"I{number}" for number in range(1, 20)]


def test_every_behaviour_is_listed(here: Coverage) -> None:
    assert sorted(numbers(here.behaviours, "T")) == list(range(1, BEHAVIOURS + 1))


def test_few_behaviours_are_declined(here: Coverage) -> None:
    assert len([row for row in here.behaviours.rows if row.status == "declined"]) < 12


def test_every_hazard_is_listed_in_order(here: Coverage) -> None:
    assert numbers(here.hazards, "H") == list(range(1, HAZARDS + 1))


def test_nothing_is_wrong_with_pages_that_agree() -> None:
    assert judged().problems() == []


@pytest.mark.parametrize(
    ("coverage", "problem"),
    [
        (judged(hazards="", rules_named=()), "W-1 is listed as pinned, and no test names it"),
        (judged(rules_named=("W-1", "W-9")), "W-9 is named by test_it.py, and no page lists it"),
        (judged(rules_named=("W-1", "W-2")), "W-2 is named by test_it.py, and listed as planned"),
        (judged(rules_named=("W-1", "W-3")), "W-3 is named by test_it.py, and listed as declined"),
        (judged(rules=RULES_PAGE + "| W-4 | Kept. | pinnd |"), "W-4 has the status 'pinnd'"),
        (judged(rules=RULES_PAGE + "| W-4 | Kept. |pinned|"), "malformed row: | W-4"),
        (judged(rules=RULES_PAGE + "|W-4 | Kept. | pinned |"), "malformed row: |W-4"),
        (judged(rules=RULES_PAGE + "| W-4 |  | pinned |"), "malformed row: | W-4"),
        (judged(rules=RULES_PAGE + "| W-2 | Again. | planned |"), "W-2 is listed twice"),
        (judged(behaviours_named=("T-1", "T-9")), "T-9 is named by test_it.py, and no page lists it"),
        (judged(behaviours_named=("T-1", "T-3")), "T-3 is named by test_it.py, and listed as declined"),
        (judged(behaviours=BEHAVIOURS_PAGE + "| T-4 | None. | declined |"), "malformed row: | T-4"),
        (judged(behaviours=BEHAVIOURS_PAGE + "| T-4 | None. | declined: |"), "malformed row: | T-4"),
        (judged(behaviours=BEHAVIOURS_PAGE + "| T-2 | Again. |"), "T-2 is listed twice"),
        (judged(behaviours=BEHAVIOURS_PAGE + "| W-2 | Again. |"), "malformed row: | W-2"),
        (judged(hazards=HAZARDS_PAGE + "| H-3 | This. | That. | W-2 |"), "H-3 is said to be shown by W-2"),
        (judged(hazards=HAZARDS_PAGE + "| H-3 | This. | That. | T-2 |"), "H-3 is said to be shown by T-2"),
        (judged(hazards=HAZARDS_PAGE + "| H-3 | This. | not yet | - |"), "H-3 says 'not yet' in one"),
        (judged(hazards=HAZARDS_PAGE + "| H-3 | This. | That. | not yet |"), "H-3 says 'not yet' in one"),
        (judged(hazards=HAZARDS_PAGE + "| H-3 | This. | That. |"), "malformed row: | H-3"),
        (judged(hazards=HAZARDS_PAGE + "| H-2 | This. | That. | W-1 |"), "H-2 is listed twice"),
    ],
)
def test_each_kind_of_discrepancy_is_found(coverage: Coverage, problem: str) -> None:
    problems = coverage.problems()

    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_a_test_may_name_a_hazard_and_a_hazard_the_tests_that_name_it() -> None:
    hazards = HAZARDS_PAGE + "| H-3 | It does this. | We do that. | H-3 |"

    assert judged(hazards=hazards, rules_named=("W-1", "H-3")).problems() == []
    assert judged(hazards=hazards).problems() == ["H-3 is said to be shown by H-3, which no test shows"]


def test_what_is_not_covered_is_told_by_area() -> None:
    assert judged().missing() == {"rules": {"Writing": ["W-2"]}, "behaviours": {"Appending": ["T-2"]}}


def test_the_report_counts_what_is_covered_and_leaves_out_what_is_declined() -> None:
    text = as_text(judged())

    assert text.splitlines()[0] == "rules covered 1 of 2, behaviours covered 1 of 2"
    assert "Writing: W-2" in text
    assert "Appending: T-2" in text
    assert "disagree" not in text


def test_the_report_names_what_disagrees() -> None:
    assert "W-1 is listed as pinned, and no test names it" in as_text(judged(rules_named=()))


def test_the_report_in_json_says_the_same() -> None:
    assert as_json(judged()) == {
        "rules": {"covered": 1, "of": 2, "missing": {"Writing": ["W-2"]}},
        "behaviours": {"covered": 1, "of": 2, "missing": {"Appending": ["T-2"]}},
        "problems": [],
    }


def test_the_command_prints_one_json_object(capsys: pytest.CaptureFixture[str], here: Coverage) -> None:
    assert main(["--json"]) == (1 if here.problems() else 0)
    assert json.loads(capsys.readouterr().out) == as_json(here)


def test_the_command_ends_with_1_where_pages_and_tests_disagree(
    monkeypatch: pytest.MonkeyPatch, here: Coverage
) -> None:
    spoiled = dataclasses.replace(here, rules_named={})
    monkeypatch.setattr("tests.tools.conformance.read_coverage", lambda: spoiled)

    assert main([]) == 1


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.rule("X-1")\ndef test_it(): ...',
        'pytestmark = [pytest.mark.rule("X-1"), pytest.mark.timeout(3)]',
        'case = pytest.param(1, marks=pytest.mark.rule("X-1"))',
        'class Tests:\n    @pytest.mark.rule("X-1")\n    async def test_it(self): ...',
    ],
)
def test_names_are_found_wherever_a_test_may_carry_them(source: str) -> None:
    assert marked(source, "rule") == ("X-1",)


@pytest.mark.parametrize(
    "source",
    [
        '"""See pytest.mark.rule("X-1")."""',
        'rule("X-1")',
        '# @pytest.mark.rule("X-1")',
        "pytest.mark.rule(name)",
        'pytest.mark.behaviour("X-1")',
    ],
)
def test_words_that_only_look_like_it_name_nothing(source: str) -> None:
    assert marked(source, "rule") == ()
