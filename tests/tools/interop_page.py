"""Puts the outcome of ``make interop`` into ``docs/reference/interop.md``, between markers.

The table of storages is written on its own with ``storages`` as the argument, by ``make interop-storages``. A run that
left a hole, or that met other versions than the golden captures were made with, changes nothing and fails: the page
tells of one whole run, or of the one before. So does a run with a failure.

Run at the end of ``make interop``, as ``python -m tests.tools.interop_page [storages]``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bkclient.wire import heard
from tests.bkclient.wire.golden_files import golden_files
from tests.interop import storages
from tests.interop.matrix import FAILED, RESULTS, SECTIONS, Outcome, load_run, render
from tests.tools.conformance import ROOT, marked

__all__ = [
    "PAGE",
    "STORAGES_MADE_BY",
    "between",
    "main",
    "marked_rows",
    "problems_of",
    "replaced",
    "rows_of",
    "storage_steps",
]

MADE_BY: Final = "make interop"
STORAGES_MADE_BY: Final = "make interop-storages"
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


def storage_steps(folder: Path = _TESTS) -> tuple[str, ...]:
    """The columns of the table of storages: what tests are marked with, in the order of the tests."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("test_*.py")))
    return tuple(sorted(marked(text, "storage"), key=lambda step: text.index(f'storage("{step}")')))


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


def main(arguments: Sequence[str] = ()) -> int:
    """Write the page; 1, and nothing written, if the run was not whole. With ``storages`` the table of these alone."""
    versions = {golden.version for golden in golden_files()}
    cells, steps = storages.load(), storage_steps()
    problems = list(storages.holes_in(cells, sorted(versions), steps))
    outcomes: list[Outcome] = []
    if not arguments:
        try:
            outcomes = [tuple(each) for each in json.loads(RESULTS.read_text())]
        except FileNotFoundError:
            sys.stderr.write("there are no results: 'make interop' makes them\n")
            return 1
        problems += problems_of(outcomes, marked_rows(), versions)
    if problems:
        sys.stderr.write(
            "".join(f"{problem}\n" for problem in problems) + "docs/reference/interop.md was left as it is\n"
        )
        return 1
    page = PAGE.read_text(encoding="utf-8")
    page = replaced(page, "storages", storages.render(cells, versions, steps), by=STORAGES_MADE_BY)
    if not arguments:
        page = replaced(page, "results", render(outcomes))
        page = replaced(page, "vectors", heard.table())
        run = load_run()
        if run is not None:
            page = replaced(page, "run", run.sentence)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
