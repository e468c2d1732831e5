"""The page that specifies the history format says what the code does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scenarios.history import FIELDS, KINDS, HistoryWriter, Kind

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "history-format.md").read_text()


def rows_below(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_names_every_kind_with_its_fields_in_order_and_no_other() -> None:
    described = {row[0].strip(" `"): tuple(re.findall(r"`([a-z_]+)`", row[1])) for row in rows_below("Kinds")}
    assert described == {str(kind): names for kind, names in KINDS.items()}


def test_the_page_names_every_field_with_its_type_and_no_other() -> None:
    described = {row[0].strip(" `"): row[1] for row in rows_below("Fields")}
    assert described == {name: str(type_) for name, type_ in FIELDS.items()}


def test_the_reader_on_the_page_reads_what_the_writer_writes(tmp_path: Path) -> None:
    code = PAGE.split("```python\n")[1].split("```")[0]
    namespace: dict[str, Any] = {}
    exec(compile(code, "history-format.md", "exec"), namespace)
    read: Callable[[Path], Iterator[dict[str, Any]]] = namespace["read"]
    path = tmp_path / "run.bkh"
    history = HistoryWriter({"scenario": "none", "seed": 1}, lambda: 7, path)
    history.record(Kind.APP_FAIL, "writer", 3, incarnation=1, entry=5, code=-101)
    history.close()
    assert list(read(path)) == [
        {
            "seq": 0,
            "time_us": 7,
            "actor": "writer",
            "kind": "APP_FAIL",
            "ledger": 3,
            "incarnation": 1,
            "entry": 5,
            "code": -101,
        }
    ]
