"""Defects planted in the storage of a bookie, one at a time, and how many crash runs it takes to see each.

A defect replaces named functions of the shipped code for the duration of a run: the code itself has no switch for it. Run as
``python -m tests.tools.storage_defects``, on all processors; prints a table of defect, mechanism, store, runs until found and
invariants, a row as soon as those before it are done, and ends with 1 if a defect was not found. With ``--page`` the rows go into
the page of its last results as well; those of defects that were not asked for stay there.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from simbookie.crashes.runs import crash_run
from simbookie.worker_processes import default_processes, in_order, worker_processes
from tests.tools.storage_defect import StorageDefect
from tests.tools.storage_defect_table import DEFECTS

RUNS_MAX = 3_000
PAGE = Path(__file__).resolve().parents[2] / "docs" / "inside" / "storage-defects.md"
_Hunted = tuple[int, tuple[str, ...], str]
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


def rows_of(page: str) -> dict[str, str]:
    """The rows of a page, by defect."""
    table = page.partition("<!-- results -->\n")[2].partition("<!-- end -->\n")[0]
    rows = [line + "\n" for line in table.splitlines() if line.startswith("| ")][1:]
    return {row.strip("| ").partition(" | ")[0]: row for row in rows}


def with_table(page: str, rows: Sequence[str], day: str) -> str:
    """The page with another table, and the day of it."""
    before, _, rest = page.partition("<!-- results -->\n")
    _, _, after = rest.partition("<!-- end -->\n")
    return f"{before}<!-- results -->\nCounted on {day}:\n\n{_HEAD}{''.join(rows)}\n<!-- end -->\n{after}"


def hunt_all(defects: Sequence[StorageDefect], runs_max: int, processes: int) -> Iterator[Found]:
    """Hunt for each defect, in their order, in so many processes; a terminal is told how many are done."""
    names = [defect.name for defect in defects]
    by_name = {defect.name: defect for defect in defects}
    with worker_processes(min(processes, len(names)), partial(_hunted, runs_max)) as hand_out:
        for runs, invariants, name in in_order(_told(hand_out(names), len(names))):
            yield Found(by_name[name], runs, invariants)


def _hunted(runs_max: int, name: str) -> tuple[int, tuple[str, ...], str]:
    """What crosses from a worker: defects have functions, which cannot."""
    found = hunt(next(defect for defect in DEFECTS if defect.name == name), runs_max)
    return found.runs, found.invariants, name


def _told(done: Iterator[tuple[int, _Hunted]], count: int) -> Iterator[tuple[int, _Hunted]]:
    for number, each in enumerate(done, 1):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{number} of {count} defects\r")
            sys.stderr.flush()
        yield each


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt for each defect, and print the table."""
    parser = argparse.ArgumentParser(prog="storage_defects", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="part of the names of the defects to plant")
    parser.add_argument("--store", default="", help="beginning of the names of the stores to plant them in")
    parser.add_argument("--runs", type=int, default=RUNS_MAX, help="runs after which a defect counts as not found")
    parser.add_argument("--processes", type=int, default=default_processes(), help="workers")
    parser.add_argument("--page", action="store_true", help="write the results into the page")
    options = parser.parse_args(arguments)
    defects = [each for each in DEFECTS if options.only in each.name and each.kind.startswith(options.store)]
    if not defects:
        parser.error(f"no defect has {options.only!r} in its name, and a store that begins with {options.store!r}")
    rows, missed = rows_of(PAGE.read_text(encoding="utf-8")), 0
    sys.stdout.write(f"{'defect':60} {'mechanism':14} {'store':22} {'runs':>5}  seen violated\n")
    for found in hunt_all(defects, options.runs, options.processes):
        defect = found.defect
        missed += not found.invariants
        told = ", ".join(found.invariants) or "NOT FOUND"
        sys.stdout.write(f"{defect.name:60} {defect.mechanism:14} {defect.kind:22} {found.runs:5}  {told}\n")
        sys.stdout.flush()
        rows[defect.name] = found.row
    if options.page:
        day = dt.datetime.now(tz=dt.UTC).date().isoformat()
        table = [rows[each.name] for each in DEFECTS if each.name in rows]
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table, day), encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
