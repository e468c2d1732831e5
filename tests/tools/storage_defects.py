"""Defects planted in the storage of a bookie, one at a time, and how many crash runs it takes to see each.

A defect replaces named functions of the shipped code for the duration of a run: the code itself has no switch for it. Run as
``python -m tests.tools.storage_defects``; prints a table of defect, mechanism, runs until found and
invariants, and ends with 1 if a defect was not found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from simbookie.crashes.runs import crash_run
from tests.tools.storage_defect_table import DEFECTS, StorageDefect

RUNS_MAX = 3_000


@dataclass(frozen=True)
class Found:
    """What a hunt came to; ``runs`` is how many it took, and ``invariants`` is empty if nothing was seen."""

    defect: StorageDefect
    runs: int
    invariants: tuple[str, ...]


def hunt(defect: StorageDefect, runs_max: int = RUNS_MAX, *, wanted: str = "") -> Found:
    """Make runs with the defect until one violates something, or the invariant ``wanted``."""
    for number in range(runs_max):
        run = crash_run(defect.kind, number, planted=defect.planted)
        invariants = tuple(sorted({violation.invariant for violation in run.violations}))
        if (
            invariants and (not wanted or wanted in invariants) and not crash_run(defect.kind, number).violations
        ):  # without the defect nothing is wrong with this run
            return Found(defect, number + 1, invariants)
    return Found(defect, runs_max, ())


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt for each defect, and print the table."""
    parser = argparse.ArgumentParser(prog="storage_defects", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="part of the names of the defects to plant")
    parser.add_argument("--runs", type=int, default=RUNS_MAX, help="runs after which a defect counts as not found")
    options = parser.parse_args(arguments)
    missed = 0
    sys.stdout.write(f"{'defect':52} {'mechanism':14} {'runs':>5}  seen violated\n")
    for defect in DEFECTS:
        if options.only not in defect.name:
            continue
        found = hunt(defect, options.runs)
        missed += not found.invariants
        told = ", ".join(found.invariants) or "NOT FOUND"
        sys.stdout.write(f"{defect.name:52} {defect.mechanism:14} {found.runs:5}  {told}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
