"""The vocabulary of all witnesses: every clause has a number, one invariant, words and a formula over events that exist."""

from __future__ import annotations

import re

import pytest

from scenarios.clauses import CLAUSES, INVARIANTS, STATEMENTS, invariants_of
from scenarios.history import KINDS
from tests.scenarios.test_history_format_page import needs


@pytest.mark.parametrize("number", CLAUSES)
def test_a_clause_has_a_number_an_invariant_and_words(number: str) -> None:
    clause = CLAUSES[number]
    assert re.fullmatch(r"[A-HLM][1-9][0-9]?", number)
    assert number in INVARIANTS[clause.invariant]
    assert clause.statement[-1] not in ".;"


def test_an_invariant_is_a_sentence() -> None:
    assert STATEMENTS.keys() == INVARIANTS.keys()
    for name, statement in STATEMENTS.items():
        assert re.fullmatch(r"(?:[A-Z][a-z0-9]+)+", name)
        assert statement.endswith(".")


@pytest.mark.parametrize("number", CLAUSES)
def test_a_formula_speaks_of_events_and_fields_that_exist(number: str) -> None:
    formula = CLAUSES[number].formula
    kinds = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+", formula)) - {"IN_RECOVERY"}
    assert kinds <= set(KINDS)
    for kind, arguments in re.findall(r"\b([A-Z]+_[A-Z_]+?)s?\(([^()]*)\)", formula):
        named = {name.strip() for name in re.findall(r"(\w+) =", arguments)}
        assert named <= set(KINDS[kind]), f"{kind} has no such field"


@pytest.mark.parametrize("number", CLAUSES)
def test_the_brackets_of_a_formula_close(number: str) -> None:
    depth: list[str] = []
    for character in CLAUSES[number].formula:
        if character in "({":
            depth.append(")}"["({".index(character)])
        elif character in ")}":
            assert depth.pop() == character
    assert not depth


@pytest.mark.parametrize(("clauses", "kinds"), needs(), ids=lambda value: "-".join(sorted(value))[:20])
def test_a_formula_needs_no_other_events_than_its_check(clauses: set[str], kinds: set[str]) -> None:
    """Which docs/reference/history-format.md lists, and another test holds to what the online checker listens to."""
    for number in clauses:
        spoken_of = {kind for kind in KINDS if re.search(rf"\b{kind}s?\b", CLAUSES[number].formula)}
        assert spoken_of <= kinds, number


def test_clauses_make_up_invariants() -> None:
    assert invariants_of(["D1", "A4", "A9"]) == {"AckedReadable": ("A4", "A9"), "FencedStaysFenced": ("D1",)}
    assert dict(invariants_of(CLAUSES)) == dict(INVARIANTS)
    with pytest.raises(KeyError, match="Z9"):
        invariants_of(["A1", "Z9"])
