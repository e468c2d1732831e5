"""The table of storages in docs/reference/interop.md: which folders changed hands between real bookies and ours, and how.

A test fills one cell: the column that its mark ``storage("step")`` names, in the row of its parameter ``disk`` and of its version
of Apache BookKeeper. So cells are kept one by one, each from the last time that its test was run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.interop.changing_hands import DISKS

__all__ = ["FAILED", "KEPT", "NAMES", "PASSED", "Cell", "Storages", "holes_in", "load", "render", "rows_in"]

KEPT: Final = Path(__file__).resolve().parents[2] / "build" / "interop" / "storages.json"
#: The rows, as they have to be.
NAMES: Final = tuple(disk.name for disk in DISKS)
PASSED: Final = "yes"
FAILED: Final = "NO"

#: Storage, version, step.
Cell = tuple[str, str, str]


class Storages:
    """Collects outcomes in the course of a test session."""

    def __init__(self) -> None:
        self.cells: dict[Cell, str] = {}

    def add(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Note what came of one phase of one test."""
        mark = item.get_closest_marker("storage")
        callspec = getattr(item, "callspec", None)
        if mark is None or callspec is None or (report.when != "call" and report.passed):
            return
        build = callspec.params["build"]
        cell = (callspec.params["disk"].name, getattr(build, "version", str(build)), mark.args[0])
        if self.cells.get(cell) != FAILED:
            self.cells[cell] = PASSED if report.passed else FAILED

    def save(self, file: Path = KEPT) -> None:
        """Put what this session saw in the place of what earlier ones did."""
        if self.cells:
            file.parent.mkdir(parents=True, exist_ok=True)
            together = {**load(file), **self.cells}
            file.write_text(json.dumps([[*cell, what] for cell, what in together.items()], indent=0) + "\n")


def load(file: Path = KEPT) -> dict[Cell, str]:
    """What earlier sessions saw."""
    if not file.is_file():
        return {}
    return {(disk, version, step): what for disk, version, step, what in json.loads(file.read_text())}


def holes_in(cells: Mapping[Cell, str], versions: Iterable[str], steps: Iterable[str]) -> Iterator[str]:
    """Cells of the table that nobody filled, or that were filled with a failure, in sentences."""
    versions, steps = list(versions), list(steps)
    for name in NAMES:
        for version in versions:
            for step in steps:
                what = cells.get((name, version, step), "")
                if what != PASSED:
                    yield f"storage '{name}', {version}, '{step}' {'failed' if what else 'has not been run'}"


def render(cells: Mapping[Cell, str], versions: Iterable[str], steps: Iterable[str]) -> str:
    """The table in Markdown."""
    steps = list(steps)
    lines = ["| storage | version | " + " | ".join(steps) + " |", "|---|---|" + "---|" * len(steps)]
    for name in NAMES:
        for version in sorted(versions):
            row = [cells.get((name, version, step), "") for step in steps]
            lines.append(f"| {name} | {version} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def rows_in(table: str) -> dict[Cell, str]:
    """The cells of a rendered table."""
    cells: dict[Cell, str] = {}
    steps: list[str] = []
    for line in table.splitlines():
        if not line.startswith("| "):
            continue
        name, version, *row = (each.strip() for each in line.strip("|").split("|"))
        if name == "storage":
            steps = row
        else:
            cells |= {(name, version, step): what for step, what in zip(steps, row, strict=True)}
    return cells
