"""Defects planted in the storage of a bookie, one at a time, and how many crash runs it takes to see each.

A defect replaces named functions of the shipped code for the duration of a run: the code itself has no switch for it. Run as
``python -m tests.tools.storage_defects``; prints a table of defect, mechanism, store, runs until found and invariants, and ends
with 1 if a defect was not found. With ``--page`` the table goes into the page of its last results as well.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from simbookie.crashes.runs import crash_run
from tests.tools.storage_defect import StorageDefect
from tests.tools.storage_defect_table import DEFECTS

RUNS_MAX = 3_000
PAGE = Path(__file__).resolve().parents[2] / "docs" / "inside" / "storage-defects.md"
_HEAD = "| defect | mechanism | store | runs | seen violated |\n|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Found:
    """What a hunt came to; ``runs`` is how many it took, and ``invariants`` is empty if nothing was seen."""

    defect: StorageDefect
    runs: int
    invariants: tuple[str, ...]

    @property
    def row(self) -> str:
        """A row of the page."""
        defect, runs = self.defect, str(self.runs) if not self.defect.test else "-"
        seen = f"`{defect.test}`" if defect.test and self.invariants else ", ".join(self.invariants)
        return f"| {defect.name} | {defect.mechanism} | {defect.kind} | {runs} | {seen or 'NOT FOUND'} |\n"


def hunt(defect: StorageDefect, runs_max: int = RUNS_MAX, *, wanted: str = "") -> Found:
    """Make runs with the defect until one violates something, or the invariant ``wanted``; or run its test."""
    if defect.test:
        return Found(defect, 1, ("test",) if fails(defect) else ())
    for number in range(runs_max):
        run = crash_run(defect.kind, number, planted=defect.planted)
        invariants = tuple(sorted({violation.invariant for violation in run.violations}))
        if (
            invariants and (not wanted or wanted in invariants) and not crash_run(defect.kind, number).violations
        ):  # without the defect nothing is wrong with this run
            return Found(defect, number + 1, invariants)
    return Found(defect, runs_max, ())


def fails(defect: StorageDefect) -> bool:
    """Whether the test of a defect fails with it, and passes without."""
    return _outcome(defect.test) == pytest.ExitCode.OK and _planted_outcome(defect) == pytest.ExitCode.TESTS_FAILED


def _planted_outcome(defect: StorageDefect) -> int:
    with defect.planted():
        return _outcome(defect.test)


def _outcome(test: str) -> int:
    with contextlib.redirect_stdout(io.StringIO()):
        return pytest.main(["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", test])


def with_table(page: str, rows: Sequence[str], day: str) -> str:
    """The page with another table, and the day of it."""
    before, _, rest = page.partition("<!-- results -->\n")
    _, _, after = rest.partition("<!-- end -->\n")
    return f"{before}<!-- results -->\nCounted on {day}:\n\n{_HEAD}{''.join(rows)}\n<!-- end -->\n{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt for each defect, and print the table."""
    parser = argparse.ArgumentParser(prog="storage_defects", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="part of the names of the defects to plant")
    parser.add_argument("--runs", type=int, default=RUNS_MAX, help="runs after which a defect counts as not found")
    parser.add_argument("--page", action="store_true", help="write the results into the page")
    options = parser.parse_args(arguments)
    rows, missed = list[str](), 0
    sys.stdout.write(f"{'defect':60} {'mechanism':14} {'store':22} {'runs':>5}  seen violated\n")
    for defect in DEFECTS:
        if options.only not in defect.name:
            continue
        found = hunt(defect, options.runs)
        missed += not found.invariants
        told = ", ".join(found.invariants) or "NOT FOUND"
        sys.stdout.write(f"{defect.name:60} {defect.mechanism:14} {defect.kind:22} {found.runs:5}  {told}\n")
        sys.stdout.flush()
        rows.append(found.row)
    if options.page:
        day = dt.datetime.now(tz=dt.UTC).date().isoformat()
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rows, day), encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
