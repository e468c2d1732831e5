"""docs/reference/invariants.md says what the vocabulary, the witnesses and the mutants say.

``python -m tests.tools.invariants_page`` writes it.
"""

from __future__ import annotations

import re

import pytest

from scenarios.clauses import CLAUSES
from spark_analysis.invariants import INVARIANTS
from tests.tools.conformance import ROOT
from tests.tools.interop_page import between
from tests.tools.invariants_page import COMMAND, PAGE, tables, witnesses

SPARK = frozenset(number for invariant in INVARIANTS for number in invariant.clauses)


def judges() -> dict[str, frozenset[str]]:
    found = witnesses()
    return {"online": found["online"], "Spark": SPARK, "machines": found["machines"], "stage": found["stage"]}


@pytest.mark.parametrize("name", ["clauses", "mutants", "unexercised"])
def test_the_page_has_the_tables_of_the_code(name: str) -> None:
    written = between(PAGE.read_text(encoding="utf-8"), name, by=COMMAND).strip()
    assert written == tables(judges())[name].strip(), f"run {COMMAND}"


def test_spark_judges_no_clause_that_the_online_checker_does_not() -> None:
    assert witnesses()["online"] >= SPARK


def test_the_page_of_rules_says_of_a_clause_what_the_vocabulary_says() -> None:
    page = (ROOT / "docs" / "reference" / "conformance.md").read_text(encoding="utf-8")
    section = page.partition("## Invariants over histories\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([A-Z]\d+) \| ([^|]+) \|", section, re.MULTILINE))
    assert len(rows) > 50
    for number in rows.keys() & CLAUSES.keys():
        statement = CLAUSES[number].statement
        assert rows[number] == f"{statement[0].upper()}{statement[1:]}."
    assert rows.keys() - CLAUSES.keys() == {"G3"}, "rules that no witness judges, only tests"
