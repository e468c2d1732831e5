"""docs/using/observability.md lists every metric, event and span as it is."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry")

import bkclient
from bkclient.observability import stats
from bkclient.observability.log import EVENTS
from bkclient.observability.prometheus import FAILED_OPERATIONS, FAILED_REQUESTS
from bkclient.observability.stats import METRICS, Metric, MetricKind
from bkclient.observability.tracing import SPAN_NAMES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "using" / "observability.md").read_text(encoding="utf-8")
PACKAGE = Path(bkclient.__file__).parent
KINDS = {
    MetricKind.OPERATION: ["latency", "milliseconds"],
    MetricKind.EVENT: ["counter", "times"],
    MetricKind.AMOUNT: ["amount"],
    MetricKind.LEVEL: ["gauge", "at present"],
}


def rows(title: str) -> list[list[str]]:
    """The cells of the tables under a heading, without heads."""
    text = re.split(rf"\n##+ {re.escape(title)}\n", PAGE)[1]
    text = re.split(r"\n##+ ", text)[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]


@pytest.mark.parametrize(
    ("title", "is_per_bookie", "own"),
    [
        ("Operations of the client", False, FAILED_OPERATIONS),
        ("Requests and connections, bookie by bookie", True, FAILED_REQUESTS),
    ],
)
def test_every_metric_is_listed_with_its_kind_unit_and_meaning(title: str, is_per_bookie: bool, own: str) -> None:
    *listed, last = rows(title)
    assert listed == [
        row_of(metric)
        for metric in METRICS.values()
        if metric.is_per_bookie == is_per_bookie and metric.scope != "bkclient_log"
    ]
    assert last[0] == f"`{own}`"


def row_of(metric: Metric) -> list[str]:
    unit = [metric.unit] if metric.kind is MetricKind.AMOUNT else []
    origin = "BookKeeper" if metric.is_bookkeepers else "ours"
    return [f"`{metric.full_name}`", *KINDS[metric.kind], *unit, metric.meaning, origin]


def test_every_metric_of_logs_is_listed() -> None:
    assert rows("Logs over ledgers") == [row_of(each) for each in METRICS.values() if each.scope == "bkclient_log"]


def test_what_is_said_to_be_missing_is() -> None:
    missing = {
        name
        for cells in rows("What the Java client has and this one has not")
        for name in re.findall(r"`([A-Z_]+)`", cells[0])
    }
    assert len(missing) > 10
    assert not missing & {metric.name for metric in METRICS.values()}


def test_every_event_of_the_log_is_listed() -> None:
    expected = [
        [f"`{e.logger_name}`", f"`{e.name}`", logging.getLevelName(e.level), e.template] for e in EVENTS.values()
    ]
    assert rows("Log") == expected


def test_every_span_is_listed() -> None:
    assert rows("Traces") == [[f"`{name}`", METRICS[operation].meaning] for operation, name in SPAN_NAMES.items()]


def constants() -> list[str]:
    return [name for name, value in vars(stats).items() if isinstance(value, str) and value in METRICS]


def test_every_metric_has_a_constant() -> None:
    named = {getattr(stats, name) for name in constants()}
    requests = {name for pair in stats.REQUESTS.values() for name in pair}
    assert named | requests == set(METRICS)


@pytest.mark.parametrize("constant", constants())
def test_every_metric_is_reported_somewhere_in_the_package(constant: str) -> None:
    imported = re.compile(rf"from bkclient\.observability\.stats import[^)]*?\b{constant}\b", re.DOTALL)
    reported = re.compile(rf"\b(names|stats)\.{constant}\b")
    sources = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "observability"]
    assert [path for path in sources if imported.search(text := path.read_text()) or reported.search(text)]
