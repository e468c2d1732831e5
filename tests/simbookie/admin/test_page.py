"""docs/using/operating-a-bookie.md lists every path, limit and metric as it is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from bkclient.observability.stats import MetricKind
from simbookie.admin.catalogue import BOOKIE_METRICS
from simbookie.admin.http_server import HttpConfig
from simbookie.admin.server import ANSWERS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "using" / "operating-a-bookie.md").read_text(encoding="utf-8")
KINDS = {
    MetricKind.OPERATION: "latency",
    MetricKind.EVENT: "counter",
    MetricKind.AMOUNT: "amount",
    MetricKind.LEVEL: "gauge",
}


def rows(title: str) -> list[list[str]]:
    text = re.split(rf"\n## {re.escape(title)}[^\n]*\n", PAGE)[1].split("\n## ")[0].split("\n### ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_path_is_listed() -> None:
    assert [cells[0] for cells in rows("Paths")] == [f"`{path}`" for path in ANSWERS]


def test_every_limit_is_listed_with_its_default() -> None:
    listed = [(cells[0].strip("`"), float(cells[1].replace(" ", ""))) for cells in rows("Limits")]
    assert listed == [(field.name, field.default) for field in dataclasses.fields(HttpConfig)]


def test_every_metric_of_bookkeepers_is_there_or_listed_as_missing_with_a_reason() -> None:
    text = PAGE.split("### Metrics of BookKeeper that are not here")[1].split("\n## ")[0]
    missing = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    names = [name for row in missing for name in re.findall(r"`(\w+)`", row[0])]
    assert len(names) == len(set(names))
    assert all(len(row) == 2 and row[1] for row in missing)
    theirs = (Path(__file__).parent / "bookkeeper_metrics.txt").read_text(encoding="utf-8").split()
    there = {name for name, metric in BOOKIE_METRICS.items() if metric.is_bookkeepers}
    assert set(names) == set(theirs) - there
    # those of a store with a database have no name of their own, and of the buckets two stand for all
    assert {name for name in there - set(theirs) if "_usage_buckets_" not in name} == {
        name.replace("bookie_gc_", "bookie_") for name in theirs if name.startswith("bookie_gc_") and name in there
    } - {name for name in there if "_usage_buckets_" in name}


def test_every_metric_is_listed_with_its_kind_and_meaning() -> None:
    assert rows("Metrics") == [
        [f"`{m.full_name}`", KINDS[m.kind], m.meaning, "BookKeeper" if m.is_bookkeepers else "ours"]
        for m in BOOKIE_METRICS.values()
    ]
