"""The pages of rules and the tests that name them belong together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "conformance.md", ROOT / "docs" / "bookie-rules.md")
STATUSES = ("pinned", "planned", "declined")

RULE = r"[A-Z]+-?\d+[a-z]?"
ROW = re.compile(rf"\| (?P<rule>{RULE}) \| (?P<statement>[^|]+?) \|(?: (?P<status>\w+) \|)?")


def rows(page: str) -> Iterator[tuple[str, str, str]]:
    """Rule, statement and status of every row that begins with a rule; pages without statuses list what is pinned."""
    for line in page.splitlines():
        match = ROW.fullmatch(line)
        if match:
            yield match["rule"], match["statement"], match["status"] or "pinned"


def rules_named_in(source: str) -> set[str]:
    """The rules that a test module names in ``pytest.mark.rule("...")``, wherever in the module that is."""
    return {
        node.args[0].value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"pytest.mark.rule", "pytest.mark.behaviour"}
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }


def named_by_tests() -> dict[str, list[str]]:
    """Each rule that some test names, and the modules that do."""
    modules: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for rule in rules_named_in(path.read_text(encoding="utf-8")):
            modules.setdefault(rule, []).append(str(path.relative_to(ROOT)))
    return modules


LISTED = [row for page in PAGES for row in rows(page.read_text(encoding="utf-8"))]
NAMED = named_by_tests()


def test_every_rule_is_listed_once_with_a_status() -> None:
    rules = [rule for rule, _, _ in LISTED]

    assert sorted({rule for rule in rules if rules.count(rule) > 1}) == []
    assert sorted({status for _, _, status in LISTED} - set(STATUSES)) == []
    assert len(rules) > 300


def test_no_test_names_a_rule_that_is_not_listed_as_pinned() -> None:
    pinned = {rule for rule, _, status in LISTED if status == "pinned"}

    assert {rule: modules for rule, modules in NAMED.items() if rule not in pinned} == {}


def test_every_pinned_rule_is_named_by_a_test() -> None:
    assert [rule for rule, _, status in LISTED if status == "pinned" and rule not in NAMED] == []


def test_a_table_row_that_looks_like_a_rule_is_read_as_one() -> None:
    overlooked = [
        line
        for page in PAGES
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(rf"\|\s*{RULE}\b", line) and not ROW.fullmatch(line)
    ]

    assert overlooked == []


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.rule("X-1")\ndef test_it(): ...',
        'pytestmark = [pytest.mark.rule("X-1"), pytest.mark.timeout(3)]',
        'case = pytest.param(1, marks=pytest.mark.rule("X-1"))',
        'class Tests:\n    @pytest.mark.rule("X-1")\n    async def test_it(self): ...',
    ],
)
def test_rules_are_found_wherever_a_test_may_name_them(source: str) -> None:
    assert rules_named_in(source) == {"X-1"}


@pytest.mark.parametrize(
    "source",
    ['"""See pytest.mark.rule("X-1")."""', 'rule("X-1")', '# @pytest.mark.rule("X-1")', "pytest.mark.rule(name)"],
)
def test_words_that_only_look_like_it_name_no_rule(source: str) -> None:
    assert rules_named_in(source) == set()
