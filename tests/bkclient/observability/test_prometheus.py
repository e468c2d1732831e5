"""What Prometheus gets: the series that BookKeeper's Java client exports, under its names and labels."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from bkclient.errors import Code
from bkclient.observability import stats
from bkclient.observability.prometheus import FAILED_OPERATIONS, FAILED_REQUESTS, PrometheusStats
from bkclient.observability.stats import METRICS, MetricKind

#: As Java's client has them: BookKeeperClientStats and PerChannelBookieClient at version 4.18.
JAVAS_NAMES = {
    "bookkeeper_client": """
        LEDGER_CREATE LEDGER_DELETE LEDGER_OPEN LEDGER_RECOVER LEDGER_RECOVER_READ_ENTRIES LEDGER_RECOVER_ADD_ENTRIES
        ADD_ENTRY ADD_ENTRY_UR FORCE READ_ENTRY READ_ENTRY_DM WRITE_LAC READ_LAC READ_LAST_CONFIRMED_AND_ENTRY NUM_PENDING_ADD
        NUM_ENSEMBLE_CHANGE LAC_UPDATE_HITS LAC_UPDATE_MISSES SPECULATIVE_READ_COUNT READ_REQUESTS_REORDERED
        WRITE_DELAYED_DUE_TO_NOT_ENOUGH_FAULT_DOMAINS
        bookie_watcher_ENSEMBLE_NOT_ADHERING_TO_PLACEMENT_POLICY_TOTAL""",
    "per_channel_bookie_client": """
        READ_ENTRY TIMEOUT_READ_ENTRY ADD_ENTRY TIMEOUT_ADD_ENTRY WRITE_LAC FORCE TIMEOUT_WRITE_LAC TIMEOUT_FORCE READ_LAC
        TIMEOUT_READ_LAC GET_BOOKIE_INFO TIMEOUT_GET_BOOKIE_INFO GET_LIST_OF_ENTRIES_OF_LEDGER
        TIMEOUT_GET_LIST_OF_ENTRIES_OF_LEDGER CLIENT_CONNECT_TIMER ADD_OP_OUTSTANDING READ_OP_OUTSTANDING
        ACTIVE_NON_TLS_CHANNEL_COUNTER ACTIVE_TLS_CHANNEL_COUNTER FAILED_TLS_HANDSHAKE_COUNTER FAILED_CONNECTION_COUNTER""",
}


def exposed(registry: CollectorRegistry) -> dict[str, float]:
    """Series as dashboards name them, and their values."""
    series = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            series[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return series


def watched() -> tuple[PrometheusStats, CollectorRegistry]:
    registry = CollectorRegistry(auto_describe=True)
    return PrometheusStats(registry), registry


def test_names_that_are_said_to_be_bookkeepers_are() -> None:
    for scope, names in JAVAS_NAMES.items():
        ours = {m.name for m in METRICS.values() if m.scope == scope and m.is_bookkeepers}
        assert ours == set(names.split())


def test_an_operation_is_counted_by_success_in_milliseconds() -> None:
    ours, registry = watched()
    ours.operation(stats.ADD, 0.002, Code.OK)
    ours.operation(stats.ADD, 0.004, Code.OK)
    ours.operation(stats.ADD, 1.5, Code.LEDGER_FENCED)
    series = exposed(registry)
    assert series['bookkeeper_client_ADD_ENTRY_count{success="true"}'] == 2
    assert series['bookkeeper_client_ADD_ENTRY_sum{success="true"}'] == pytest.approx(6.0)
    assert series['bookkeeper_client_ADD_ENTRY_bucket{le="2.5",success="true"}'] == 1
    assert series['bookkeeper_client_ADD_ENTRY_bucket{le="+Inf",success="true"}'] == 2
    assert series['bookkeeper_client_ADD_ENTRY_count{success="false"}'] == 1
    assert series['bookkeeper_client_ADD_ENTRY_sum{success="false"}'] == pytest.approx(1500.0)
    assert series[f'{FAILED_OPERATIONS}{{code="-101",operation="ADD_ENTRY"}}'] == 1


def test_counters_have_the_names_that_java_gives_them() -> None:
    ours, registry = watched()
    ours.event(stats.ENSEMBLE_CHANGES, 3)
    ours.level(stats.PENDING_ADDS, 7)
    series = exposed(registry)
    assert series["bookkeeper_client_NUM_ENSEMBLE_CHANGE"] == 3
    assert series["bookkeeper_client_NUM_PENDING_ADD"] == 7


def test_amounts_are_a_count_and_a_sum() -> None:
    ours, registry = watched()
    ours.event(stats.RECOVERED_ENTRIES, 3)
    ours.event(stats.RECOVERED_ENTRIES, 0)
    series = exposed(registry)
    assert series['bookkeeper_client_LEDGER_RECOVER_ADD_ENTRIES_count{success="true"}'] == 2
    assert series['bookkeeper_client_LEDGER_RECOVER_ADD_ENTRIES_sum{success="true"}'] == 3


def test_requests_are_counted_by_bookie() -> None:
    ours, registry = watched()
    ours.request("b:3181", stats.REQUESTS["READ_ENTRY"][0], 0.25, Code.TIMEOUT)
    ours.bookie_level("b:3181", stats.ACTIVE_CHANNELS, 1)
    ours.bookie_event("b:3181", stats.FAILED_CONNECTIONS)
    series = exposed(registry)
    assert series['per_channel_bookie_client_READ_ENTRY_sum{bookie="b:3181",success="false"}'] == 250.0
    assert series['per_channel_bookie_client_ACTIVE_NON_TLS_CHANNEL_COUNTER{bookie="b:3181"}'] == 1
    assert series['per_channel_bookie_client_FAILED_CONNECTION_COUNTER{bookie="b:3181"}'] == 1
    assert series[f'{FAILED_REQUESTS}{{bookie="b:3181",code="-23",operation="READ_ENTRY"}}'] == 1


def record_everything(ours: PrometheusStats) -> None:
    for name, metric in METRICS.items():
        bookie_id = "b" if metric.is_per_bookie else None
        if metric.kind is MetricKind.OPERATION:
            for code in (Code.OK, Code.TIMEOUT):
                ours._operation((name, bookie_id), 0.001, code)
        elif metric.kind is MetricKind.LEVEL:
            ours._levels[name, bookie_id] = 1
        else:
            ours._event((name, bookie_id), 1)


def test_both_exposition_formats_hold_every_metric() -> None:
    ours, registry = watched()
    record_everything(ours)
    expected = {metric.full_name for metric in METRICS.values()} | {FAILED_OPERATIONS, FAILED_REQUESTS}
    assert {family.name for family in text_string_to_metric_families(generate_latest(registry).decode())} == expected
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    assert {family.name for family in parse_openmetrics(text)} == expected  # type: ignore[no-untyped-call]


def test_nothing_is_exposed_of_what_did_not_happen() -> None:
    _, registry = watched()
    assert exposed(registry) == {}


def test_a_second_object_in_the_same_registry_is_refused() -> None:
    _, registry = watched()
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusStats(registry)
    PrometheusStats(None)


def test_scrapes_of_another_thread_disturb_nobody() -> None:
    ours, registry = watched()
    stop = threading.Event()
    failures: list[BaseException] = []

    def scrape() -> None:
        try:
            while not stop.is_set():
                generate_latest(registry)
        except BaseException as error:  # noqa: BLE001 - whatever it is
            failures.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    for number in range(400):
        ours.bookie_event(f"b{number}", stats.FAILED_CONNECTIONS)
        ours.operation(stats.ADD, 0.001, -number)
    stop.set()
    thread.join()
    assert failures == []


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("bkclient.observability.prometheus", "prometheus_client", "bkclient[prometheus]"),
        ("bkclient.observability.tracing", "opentelemetry", "bkclient[opentelemetry]"),
    ],
)
def test_without_the_extra_the_import_says_which_one_is_missing(module: str, package: str, extra: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import {module}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert extra in ended.stderr.splitlines()[-1]


def test_the_client_itself_needs_neither() -> None:
    program = "import sys, bkclient; print([m for m in sys.modules if m.split('.')[0] in ('prometheus_client', 'opentelemetry')])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
