"""What was tried against real peers: from marks and outcomes of tests to the table of docs/reference/interop.md.

A test fills the row that its mark ``matrix("operation")`` names, in the section of its module. Its column is the version of
Apache BookKeeper and, where the test has one, that of the wire protocol. Several tests may fill one cell: one that failed
fills it with a failure. A test that shows that something is refused says so through the fixture ``note``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import pytest

__all__ = ["RESULTS", "SECTIONS", "Matrix", "Run", "load_run", "render"]

RESULTS: Final = Path(__file__).resolve().parents[2] / "build" / "interop" / "results.json"

#: Sections of the table, by the modules that fill them.
SECTIONS: Final[Mapping[str, str]] = {
    "test_python_client": "The Python client on real bookies",
    "test_python_features": "The Python client on real bookies",
    "test_python_reads": "The Python client on real bookies",
    "test_python_read_options": "The Python client on real bookies",
    "test_python_administration": "Watching and administration, on real bookies",
    "test_failures": "Real bookies that fail",
    "test_both_clients": "Both clients on one ledger, on real bookies",
    "test_tools": "BookKeeper's tools on ledgers that Python wrote",
    "test_our_tools": "Our command line on real bookies and Java's ledgers",
    "test_java_client": "The Java client on simulated bookies",
    "test_repair": "Repair by either side",
    "test_layouts": "What lies in ZooKeeper",
    "test_znodes": "What lies in ZooKeeper",
    "test_security": "TLS and authentication",
    "test_golden": "Golden captures",
    "test_hostile": "A hostile proxy before a real bookie",
}

#: Section, operation, version, wire protocol ("" where it plays no part) and what came of it.
Outcome = tuple[str, str, str, str, str]

PASSED: Final = "yes"
FAILED: Final = "NO"
SECOND: Final = "yes, at the second attempt"


class Matrix:
    """Collects outcomes in the course of a test session."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.tests: dict[str, bool] = {}

    def add(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Note what came of one phase of one test."""
        self.tests[item.nodeid] = report.passed and self.tests.get(item.nodeid, True)
        mark = item.get_closest_marker("matrix")
        if mark is None or (report.when != "call" and report.passed):
            return
        callspec = getattr(item, "callspec", None)
        parameters: Mapping[str, object] = {} if callspec is None else callspec.params
        build, wire = parameters.get("build"), parameters.get("wire")
        version = getattr(build, "version", str(build))
        notes = [str(value) for name, value in report.user_properties if name == "note"]
        came_of_it = (notes[0] if notes else PASSED) if report.passed else FAILED
        module = item.path.stem
        self.outcomes.append((SECTIONS[module], mark.args[0], version, f"v{wire}" if wire else "", came_of_it))

    def save(self) -> None:
        """Write them where the page is made from."""
        if self.outcomes:
            RESULTS.parent.mkdir(parents=True, exist_ok=True)
            RESULTS.write_text(json.dumps(self.outcomes, indent=0))
            _save_run(Run(len(self.tests), len(self.tests) - sum(self.tests.values()), 0))

    def save_second_attempt(self) -> None:
        """Put what came of the tests that had failed in the place of their failures; the page tells which they were."""
        outcomes: list[Outcome] = [tuple(each) for each in json.loads(RESULTS.read_text())]
        for *cell, came_of_it in self.outcomes:
            failure = (cell[0], cell[1], cell[2], cell[3], FAILED)
            if failure in outcomes:
                again = FAILED if came_of_it == FAILED else SECOND
                outcomes[outcomes.index(failure)] = (cell[0], cell[1], cell[2], cell[3], again)
        RESULTS.write_text(json.dumps(outcomes, indent=0))
        first = load_run()
        if first is not None:
            _save_run(replace(first, passed_later=first.passed_later + sum(self.tests.values())))


@dataclass(frozen=True, slots=True)
class Run:
    """How many tests a run had, how many of them failed at first, and how many of these passed when they were tried again."""

    tests: int
    failed: int
    passed_later: int

    @property
    def sentence(self) -> str:
        """What the page says of it."""
        if self.failed == 0:
            return f"It had {self.tests} tests, all of which passed at the first attempt."
        left = self.failed - self.passed_later
        end = f" {left} failed." if left else ""
        return f"It had {self.tests} tests. {self.passed_later} of them passed at the second attempt only.{end}"


def _run_file() -> Path:
    return RESULTS.with_name("run.json")


def _save_run(run: Run) -> None:
    _run_file().write_text(json.dumps(asdict(run)))


def load_run() -> Run | None:
    """The last whole run, if it was counted."""
    return Run(**json.loads(_run_file().read_text())) if _run_file().is_file() else None


def render(outcomes: Iterable[Outcome]) -> str:
    """The tables, one for each section, in Markdown."""
    cells: dict[str, dict[str, dict[tuple[str, str], str]]] = {}
    for section, operation, version, wire, came_of_it in outcomes:
        row = cells.setdefault(section, {}).setdefault(operation, {})
        for each in (wire,) if wire else ("v3", "v2"):
            before = row.get((version, each), PASSED)
            row[version, each] = before if came_of_it == PASSED or before == FAILED else came_of_it
    versions = sorted({version for rows in cells.values() for row in rows.values() for version, _ in row})
    columns = [(version, wire) for version in versions for wire in ("v3", "v2")]
    lines = []
    for section in dict.fromkeys(SECTIONS.values()):
        if section not in cells:
            continue
        lines += [f"### {section}", ""]
        lines += ["| operation | " + " | ".join(f"{version} {wire}" for version, wire in columns) + " |"]
        lines += ["|---|" + "---|" * len(columns)]
        for operation, row in cells[section].items():
            lines.append(f"| {operation} | " + " | ".join(row.get(column, "") for column in columns) + " |")
        lines.append("")
    return "\n".join(lines)
