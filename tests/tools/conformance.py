"""What of the protocol is covered: holds the pages of rules and behaviours and the tests that name them together.

Pages list: ``docs/reference/conformance.md``, ``docs/reference/bookie-rules.md`` and ``docs/reference/crash-matrix.md`` rules,
``docs/reference/behaviours.md`` behaviours, and
``docs/reference/better-than-java.md`` hazards. Tests name: ``@pytest.mark.rule("W-33")``,
``@pytest.mark.behaviour("T-86")``. This module compares. It reads test modules as syntax, without importing them, so that
what needs Java or takes minutes is seen as well.

A rule is *covered* when its page calls it pinned and a test names it; a behaviour when a test names it. That a test shows what it
names is beyond any program: it is for who reads the test.

Run as ``make conformance``: prints how much is covered and what is not, by area; ends with 1 if page and tests disagree.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.tools.syntax import parsed

ROOT = Path(__file__).resolve().parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
RULE_PAGES = tuple(REFERENCE / name for name in ("conformance.md", "bookie-rules.md", "crash-matrix.md"))
BEHAVIOUR_PAGE = ROOT / "docs" / "reference" / "behaviours.md"
HAZARD_PAGE = ROOT / "docs" / "reference" / "better-than-java.md"
STATUSES = ("pinned", "planned", "declined")
NOT_YET = "not yet"

NAME = r"[A-Z]+-?\d+[a-z]?"
RULE_ROW = re.compile(rf"\| (?P<name>{NAME}) \| (?P<statement>[^|]+?) \|(?: (?P<status>\w+) \|)?")
BEHAVIOUR_ROW = re.compile(r"\| (?P<name>T-\d+) \| (?P<statement>[^|]+?) \|(?: declined: (?P<reason>[^|]+?) \|)?")
HAZARD_ROW = re.compile(r"\| (?P<name>H-\d+) \| (?P<java>[^|]+?) \| (?P<here>[^|]+?) \| (?P<shown>[^|]+?) \|")
LOOKS_LIKE_A_ROW = re.compile(rf"\|\s*{NAME}\b")


@dataclass(frozen=True)
class Row:
    """One line of a page: what it is about, under which heading, and ``pinned``, ``planned``, ``declined`` or ``listed``."""

    name: str
    statement: str
    status: str
    area: str


@dataclass(frozen=True)
class Page:
    """The rows of a page, and the lines that look like rows and are none."""

    rows: tuple[Row, ...]
    malformed: tuple[str, ...]


def read_page(text: str, pattern: re.Pattern[str]) -> Page:
    """The rows of ``text`` that match ``pattern`` as a whole line; every other line that begins with a name is malformed."""
    rows: list[Row] = []
    malformed: list[str] = []
    area = ""
    for line in text.splitlines():
        if line.startswith("## "):
            area = line.removeprefix("## ")
        elif match := pattern.fullmatch(line):
            rows.append(_row(match.groupdict(), area))
        elif LOOKS_LIKE_A_ROW.match(line):
            malformed.append(line)
    return Page(tuple(rows), tuple(malformed))


def _row(fields: Mapping[str, str | None], area: str) -> Row:
    name, statement = fields["name"] or "", fields.get("statement") or fields.get("here") or ""
    if "status" in fields:
        # A page without a column of statuses lists what is kept, all of it.
        return Row(name, statement, fields["status"] or "pinned", area)
    if "reason" in fields:
        return Row(name, statement, "declined" if fields["reason"] else "listed", area)
    return Row(name, statement, fields["shown"] or "", area)


def marked(source: str, mark: str) -> tuple[str, ...]:
    """What a test module names in ``pytest.mark.<mark>("...")``, wherever in the module that is, once each, sorted."""
    if f".{mark}(" not in source:
        return ()
    names = {
        argument.value
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == mark
        and ast.unparse(node.func) == f"pytest.mark.{mark}"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    return tuple(sorted(names))


def named_by_tests(mark: str, root: Path = ROOT / "tests") -> dict[str, tuple[str, ...]]:
    """Each name that some test carries under ``mark``, and the modules that do."""
    modules: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.py")):
        for name in marked(path.read_text(encoding="utf-8"), mark):
            modules.setdefault(name, []).append(str(path.relative_to(root)))
    return {name: tuple(where) for name, where in modules.items()}


@dataclass(frozen=True)
class Coverage:
    """Pages and tests beside each other; every question is answered from these five values."""

    rules: Page
    behaviours: Page
    hazards: Page
    rules_named: Mapping[str, Sequence[str]]
    behaviours_named: Mapping[str, Sequence[str]]

    def covered_rules(self) -> list[Row]:
        """Rules that are pinned and that some test names."""
        return [row for row in self.rules.rows if row.status == "pinned" and row.name in self.rules_named]

    def covered_behaviours(self) -> list[Row]:
        """Behaviours that some test names."""
        return [row for row in self.behaviours.rows if row.name in self.behaviours_named]

    def missing(self) -> dict[str, dict[str, list[str]]]:
        """What is neither covered nor declined: ``rules`` and ``behaviours``, then areas, then names."""
        covered = {row.name for row in (*self.covered_rules(), *self.covered_behaviours())}
        kinds: dict[str, dict[str, list[str]]] = {"rules": {}, "behaviours": {}}
        for kind, page in (("rules", self.rules), ("behaviours", self.behaviours)):
            for row in page.rows:
                if row.status != "declined" and row.name not in covered:
                    kinds[kind].setdefault(row.area, []).append(row.name)
        return kinds

    def problems(self) -> list[str]:
        """Where pages and tests disagree, in sentences; none if all is well."""
        return [
            *(f"malformed row: {line}" for page in self._pages() for line in page.malformed),
            *(f"{name} is listed twice" for name in _repeated(row.name for page in self._pages() for row in page.rows)),
            *self._rule_problems(),
            *self._behaviour_problems(),
            *self._hazard_problems(),
        ]

    def _pages(self) -> tuple[Page, Page]:
        # Hazards that have a rule of their own are listed twice on purpose; their page is read for itself.
        return self.rules, self.behaviours

    def _rule_problems(self) -> Iterator[str]:
        # A hazard may be named as if it were a rule: what this client does about it is one.
        statuses = {row.name: "pinned" for row in self.hazards.rows} | {row.name: row.status for row in self.rules.rows}
        for row in self.rules.rows:
            if row.status not in STATUSES:
                yield f"{row.name} has the status {row.status!r}, which is none of {', '.join(STATUSES)}"
            if row.status == "pinned" and row.name not in self.rules_named:
                yield f"{row.name} is listed as pinned, and no test names it"
        for name, modules in self.rules_named.items():
            if name not in statuses:
                yield f"{name} is named by {', '.join(modules)}, and no page lists it"
            elif statuses[name] != "pinned":
                yield f"{name} is named by {', '.join(modules)}, and listed as {statuses[name]}"

    def _behaviour_problems(self) -> Iterator[str]:
        statuses = {row.name: row.status for row in self.behaviours.rows}
        for name, modules in self.behaviours_named.items():
            if name not in statuses:
                yield f"{name} is named by {', '.join(modules)}, and no page lists it"
            elif statuses[name] == "declined":
                yield f"{name} is named by {', '.join(modules)}, and listed as declined"

    def _hazard_problems(self) -> Iterator[str]:
        covered = {row.name for row in (*self.covered_rules(), *self.covered_behaviours())} | {*self.rules_named}
        yield from (f"malformed row: {line}" for line in self.hazards.malformed)
        yield from (f"{name} is listed twice" for name in _repeated(row.name for row in self.hazards.rows))
        for row in self.hazards.rows:
            shown = [] if row.status in (NOT_YET, "-") else row.status.split(", ")
            if (row.status == NOT_YET) != (row.statement == NOT_YET):
                yield f"{row.name} says {NOT_YET!r} in one of its columns only"
            for name in shown:
                if name not in covered:
                    yield f"{row.name} is said to be shown by {name}, which no test shows"


def _repeated(names: Iterable[str]) -> list[str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [name for name, count in counts.items() if count > 1]


def read_coverage() -> Coverage:
    """The pages and tests of this repository."""
    rules = [read_page(page.read_text(encoding="utf-8"), RULE_ROW) for page in RULE_PAGES]
    return Coverage(
        Page(
            tuple(row for page in rules for row in page.rows), tuple(line for page in rules for line in page.malformed)
        ),
        read_page(BEHAVIOUR_PAGE.read_text(encoding="utf-8"), BEHAVIOUR_ROW),
        read_page(HAZARD_PAGE.read_text(encoding="utf-8"), HAZARD_ROW),
        named_by_tests("rule"),
        named_by_tests("behaviour"),
    )


def as_json(coverage: Coverage) -> dict[str, object]:
    """The report as one object: per kind ``covered``, ``of`` and ``missing`` by area, and the ``problems``."""
    missing = coverage.missing()
    kinds = {"rules": len(coverage.covered_rules()), "behaviours": len(coverage.covered_behaviours())}
    return {
        **{
            kind: {"covered": count, "of": count + sum(map(len, missing[kind].values())), "missing": missing[kind]}
            for kind, count in kinds.items()
        },
        "problems": coverage.problems(),
    }


def as_text(coverage: Coverage) -> str:
    """The report for people."""
    missing = coverage.missing()
    counts = []
    lines = []
    for kind, covered in (("rules", coverage.covered_rules()), ("behaviours", coverage.covered_behaviours())):
        counts.append(f"{kind} covered {len(covered)} of {len(covered) + sum(map(len, missing[kind].values()))}")
        if missing[kind]:
            lines += ["", f"{kind} not covered"]
            lines += [f"  {area}: {', '.join(names)}" for area, names in missing[kind].items()]
    problems = coverage.problems()
    if problems:
        lines += ["", "pages and tests disagree", *(f"  {problem}" for problem in problems)]
    return "\n".join([", ".join(counts), *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; 1 if pages and tests disagree, 0 otherwise, whatever is covered."""
    parser = argparse.ArgumentParser(prog="make conformance", description="How much of the protocol tests cover.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    coverage = read_coverage()
    sys.stdout.write((json.dumps(as_json(coverage)) if options.json else as_text(coverage)) + "\n")
    return 1 if coverage.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
