"""Puts the outcome of ``make interop`` into ``docs/reference/interop.md``, between markers.

A run that left a hole, or that met other versions than the golden captures were made with, changes nothing and fails: the page
tells of one whole run, or of the one before. So does a run with a failure.

Run at the end of ``make interop``, as ``python -m tests.tools.interop_page``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.bkclient.wire import heard
from tests.bkclient.wire.golden_files import golden_files
from tests.interop.matrix import FAILED, RESULTS, SECTIONS, Outcome, render
from tests.tools.conformance import ROOT, marked

__all__ = ["PAGE", "between", "main", "marked_rows", "problems_of", "replaced", "rows_of"]

MADE_BY: Final = "make interop"
PAGE: Final = ROOT / "docs" / "reference" / "interop.md"
_TESTS: Final = ROOT / "tests" / "interop"
_SECTION: Final = re.compile(r"### (.+)")
_ROW: Final = re.compile(r"\| (?!operation \|)([^|-][^|]*) \|(.*)\|")

Row = tuple[str, str]


def marked_rows(folder: Path = _TESTS) -> dict[Row, str]:
    """Sections and operations that tests are marked with, and the module of each."""
    rows: dict[Row, str] = {}
    for path in sorted(folder.glob("test_*.py")):
        for operation in marked(path.read_text(encoding="utf-8"), "matrix"):
            rows[SECTIONS[path.stem], operation] = path.name
    return rows


def rows_of(tables: str) -> dict[Row, list[str]]:
    """The cells of rendered tables, by section and operation."""
    rows: dict[Row, list[str]] = {}
    section = ""
    for line in tables.splitlines():
        if match := _SECTION.fullmatch(line):
            section = match[1]
        elif match := _ROW.fullmatch(line):
            rows[section, match[1]] = [cell.strip() for cell in match[2].split("|")]
    return rows


def problems_of(outcomes: Iterable[Outcome], marks: Iterable[Row], versions: Iterable[str]) -> Iterator[str]:
    """Why a run is none that the page could tell of, in sentences."""
    outcomes, marks = list(outcomes), list(marks)
    met = sorted({version for _, _, version, _, _ in outcomes})
    if met != sorted(versions):
        yield f"the run met {', '.join(met) or 'nobody'}, and the page is about {', '.join(sorted(versions))}"
    rows = rows_of(render(outcomes))
    for section, operation in marks:
        if (section, operation) not in rows:
            yield f"no test of '{operation}' ({section}) was run"
    for (section, operation), cells in rows.items():
        if (section, operation) not in marks:
            yield f"no test is marked with '{operation}' ({section})"
        if "" in cells:
            yield f"'{operation}' ({section}) has a hole"
        if FAILED in cells:
            yield f"'{operation}' ({section}) failed"


def between(page: str, name: str, *, by: str = MADE_BY) -> str:
    """What stands between the markers of ``name``; :class:`ValueError` if they are not there once, in order."""
    _, content, _ = _parts(page, name, by)
    return content


def replaced(page: str, name: str, content: str, *, by: str = MADE_BY) -> str:
    """The page with other content between the markers of ``name``, which say that the target ``by`` writes it."""
    before, _, after = _parts(page, name, by)
    return f"{before}\n{content.strip()}\n{after}"


def _parts(page: str, name: str, by: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {name}: written by {by} -->", f"<!-- end of {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page has to hold {begin!r} and {end!r} once each, in this order")
    before, _, rest = page.partition(begin)
    content, _, after = rest.partition(end)
    return before + begin, content.strip() + "\n", end + after


def main() -> int:
    """Write the page; 1, and nothing written, if the run was not whole."""
    try:
        outcomes: list[Outcome] = [tuple(each) for each in json.loads(RESULTS.read_text())]
    except FileNotFoundError:
        sys.stderr.write("there are no results: 'make interop' makes them\n")
        return 1
    problems = list(problems_of(outcomes, marked_rows(), {golden.version for golden in golden_files()}))
    if problems:
        sys.stderr.write(
            "".join(f"{problem}\n" for problem in problems) + "docs/reference/interop.md was left as it is\n"
        )
        return 1
    page = replaced(PAGE.read_text(encoding="utf-8"), "results", render(outcomes))
    PAGE.write_text(replaced(page, "vectors", heard.table()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
