"""Writes the figures of a run into ``docs/inside/performance.md``: tables between its markers, and the plots beside it.

python -m benchmarks.page build/bench/results.json     # what `make bench-page` does after a full run
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.measuring import Result, described
from benchmarks.plots import bars

__all__ = ["plots_of", "rewritten", "tables_of"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "inside" / "performance.md"
_MARKED = re.compile(r"(<!-- figures of (?P<name>[a-z-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
_OURS = ("ours-uvloop", "ours-asyncio", "ours-compiled")
#: Which results are in which table.
_TABLES: dict[str, tuple[str, ...]] = {
    "append": ("append", "append-cpu", "append-bookies-cpu"),
    "append-all": ("append-all", "append-all-cpu"),
    "append-alone": ("append-alone-p50", "append-alone-p99", "append-alone-p99.9", "append-alone-cpu"),
    "read": tuple(f"read-{kind}{metric}" for kind in ("range", "striped", "batch") for metric in ("", "-cpu")),
    "read-single": tuple(f"read-single-{metric}" for metric in ("p50", "p99", "p99.9", "cpu")),
    "tail": ("tail-p50", "tail-p99", "tail-p99.9"),
    "recovery": ("recovery-time", "recovery-cpu-time"),
    "change": ("ensemble-change-longest",),
    "ledgers": ("append-many-ledgers", "append-many-ledgers-cpu"),
    "tls": ("tls-append", "tls-append-cpu"),
    "connect": ("connect-time", "connect-cpu-time"),
    "memory": ("idle-writer-memory", "in-flight-entry-memory", "memory-peak", "memory-growth"),
}
#: Title, unit, and results of each plot.
_PLOTS: dict[str, tuple[str, str, str]] = {
    "append-cpu": ("CPU of the client's process for an append", "us", "append-cpu"),
    "append-throughput": ("Appends", "entries/s", "append"),
    "read-cpu": ("CPU of the client's process for an entry of a range", "us", "read-range-cpu"),
    "recovery": ("Recovery of a ledger by the length of its tail", "ms", "recovery-time"),
}


class _Row:
    """The results of one metric and one set of parameters: of both of our loops, beside all references."""

    def __init__(self, name: str, label: str) -> None:
        self.name = name
        self.label = label
        self.ours: dict[str, Result] = {}
        self.references: dict[tuple[str, str], Result] = {}

    def add(self, result: Result) -> None:
        contender = result["params"]["contender"]
        self.ours.setdefault(contender, result)
        if result["reference"] is not None:
            self.references[contender, result["reference"]] = result

    @property
    def main(self) -> str:
        """Which of ours is compared: the faster loop where it was there."""
        return next(each for each in _OURS if each in self.ours)

    @property
    def java(self) -> Result | None:
        return self.references.get((self.main, "java-client"))

    @property
    def java_to_compiled(self) -> Result | None:
        return self.references.get(("ours-compiled", "java-client"))

    @property
    def ceiling(self) -> Result | None:
        return self.references.get((self.main, f"{self.main.removeprefix('ours-')}-ceiling"))

    def values(self) -> dict[str, float]:
        """By contender, as plots show them."""
        values = {each.replace("ours-", "ours, "): self.ours[each]["value"] for each in _OURS if each in self.ours}
        if self.java is not None:
            values["Java"] = self.java["reference_value"]
        if self.ceiling is not None:
            values["ceiling"] = self.ceiling["reference_value"]
        return values


def _rows(results: Sequence[Result], names: Sequence[str]) -> list[_Row]:
    rows: dict[tuple[str, str], _Row] = {}
    for result in results:
        if result["name"] in names:
            params = {key: value for key, value in result["params"].items() if key != "contender"}
            key = (result["name"], json.dumps(params, sort_keys=True))
            rows.setdefault(key, _Row(result["name"], described(params))).add(result)
    return sorted(rows.values(), key=lambda row: names.index(row.name))


def _table(rows: Sequence[_Row]) -> str:
    """Only the columns that have something in them."""
    columns: dict[str, Callable[[_Row], str]] = {
        "what": lambda row: row.name,
        "with": lambda row: row.label,
        "ours, uvloop": lambda row: _value(row.ours.get("ours-uvloop")),
        "ours, asyncio": lambda row: _value(row.ours.get("ours-asyncio")),
        "ours, compiled": lambda row: _value(row.ours.get("ours-compiled")),
        "Java": lambda row: _reference(row.java),
        "unit": lambda row: str(row.ours[row.main]["unit"]),
        "to Java": lambda row: _ratio(row.java),
        "compiled to Java": lambda row: _ratio(row.java_to_compiled),
        "to its ceiling": lambda row: _ratio(row.ceiling),
        "foreign load": _foreign,
    }
    cells = {heading: [shown(row) for row in rows] for heading, shown in columns.items()}
    kept = [heading for heading, column in cells.items() if any(column)]
    lines = ["| " + " | ".join(kept) + " |", "| " + " | ".join(["---"] * len(kept)) + " |"]
    lines += ["| " + " | ".join(cells[heading][at] for heading in kept) + " |" for at in range(len(rows))]
    return "\n".join(lines)


def _value(result: Result | None) -> str:
    return "" if result is None else f"{result['value']:,}"


def _reference(result: Result | None) -> str:
    return "" if result is None else f"{result['reference_value']:,}"


def _ratio(result: Result | None) -> str:
    if result is None or result["ratio"] is None:
        return ""
    low, high = result["ratio_spread"]
    return f"**{result['ratio']:.2f}** ({low:.2f} to {high:.2f})"


def _foreign(row: _Row) -> str:
    known = [row.ours[row.main].get("foreign")]
    known += [each.get("reference_foreign") for each in (row.java, row.ceiling) if each is not None]
    return ", ".join(f"{part:.0%}" for part in known if part is not None)


def tables_of(run: Mapping[str, Any]) -> dict[str, str]:
    """The text between the markers, by name."""
    tables = {name: _table(_rows(run["results"], names)) for name, names in _TABLES.items()}
    machine = [f"{key} {value}" for key, value in run["machine"].items() if value is not None]
    tables["machine"] = "Measured with: " + "; ".join(machine) + "."
    return tables


def plots_of(run: Mapping[str, Any]) -> dict[str, str]:
    """SVG by file name; without those that have nothing to show."""
    plots = {}
    for name, (title, unit, metric) in _PLOTS.items():
        rows = [(row.label, row.values()) for row in _rows(run["results"], (metric,))]
        # One entry of 64 KiB would make bars of all others invisible.
        rows = [(label, values) for label, values in rows if "65536 B" not in label]
        if rows:
            plots[f"{name}.svg"] = bars(title, unit, rows)
    return plots


def rewritten(page: str, tables: Mapping[str, str]) -> str:
    """``page`` with other tables; ``ValueError`` if the page has no place for one, or one for another."""
    places = [match["name"] for match in _MARKED.finditer(page)]
    if sorted(places) != sorted(tables):
        raise ValueError(f"the page has places for {sorted(places)}, and there are {sorted(tables)}")
    return _MARKED.sub(lambda match: f"{match[1]}\n{tables[match['name']]}\n\n{match[3]}", page)


def main(results: Annotated[Path, typer.Argument(help="the JSON object of benchmarks.suite")]) -> None:
    """Write the figures of a run into the page on performance."""
    run = json.loads(results.read_text())
    PAGE.write_text(rewritten(PAGE.read_text(), tables_of(run)))
    folder = PAGE.with_suffix("")
    folder.mkdir(exist_ok=True)
    for name, text in plots_of(run).items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    typer.run(main)
