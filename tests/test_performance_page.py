"""The page on performance is written by a program, from the results of a run: its places, its tables and its plots."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from benchmarks.measuring import Sample, compared
from benchmarks.page import PAGE, plots_of, rewritten, tables_of


def a_run(**more: float) -> dict[str, Any]:
    """Three rounds in which Java took twice as long, and one append in a thousand of the ceiling's."""
    samples = {
        "ours-uvloop": [Sample({"throughput": rate, "cpu": 5.0}, 0.1) for rate in (100.0, 200.0, 400.0)],
        "ours-asyncio": [Sample({"throughput": 50.0, "cpu": 6.0}, 0.1)] * 3,
        "ours-compiled": [Sample({"throughput": rate * 4, "cpu": 2.5}, 0.1) for rate in (100.0, 200.0, 400.0)],
        "uvloop-ceiling": [Sample({"throughput": 400.0, "cpu": 1.0}, None)] * 3,
        "java-client": [Sample({"throughput": rate / 2, "cpu": 10.0}, 0.3) for rate in (100.0, 200.0, 400.0)],
    }
    params = {"bookies": "ours", "protocol": 3, "payload_bytes": 100, "window": 1000, "entries": 5}
    return {"results": compared("append", params, samples), "machine": {"cpus": 2, "without": None, **more}}


def test_a_result_has_what_programs_read() -> None:
    results = a_run()["results"]
    assert {"name", "params", "value", "unit", "reference", "reference_value", "ratio"} <= results[0].keys()
    by_key = {(each["name"], each["params"]["contender"], each["reference"]): each for each in results}
    throughput = by_key["append", "ours-uvloop", "java-client"]
    assert (throughput["value"], throughput["reference_value"], throughput["ratio"]) == (200.0, 100.0, 2.0)
    assert (throughput["spread"], throughput["foreign"], throughput["reference_foreign"]) == ([100.0, 400.0], 0.1, 0.3)
    assert by_key["append", "ours-uvloop", "uvloop-ceiling"]["ratio_spread"] == [0.25, 1.0]
    # Less is better of what is no rate.
    assert by_key["append-cpu", "ours-uvloop", "java-client"]["ratio"] == 2.0
    assert ("append", "ours-asyncio", "uvloop-ceiling") not in by_key
    # The compiled core runs on the first of the loops.
    assert by_key["append", "ours-compiled", "uvloop-ceiling"]["ratio_spread"] == [1.0, 4.0]


def test_a_table_shows_each_contender_with_ratio_spread_and_foreign_load() -> None:
    heading, _, throughput, cpu = tables_of(a_run())["append"].splitlines()
    assert [cell.strip() for cell in heading.strip("|").split("|")] == [
        *("what", "with", "ours, uvloop", "ours, asyncio", "ours, compiled", "Java", "unit"),
        *("to Java", "compiled to Java", "to its ceiling", "foreign load"),
    ]
    assert throughput == (
        "| append | ours bookies, v3, 100 B | 200.0 | 50.0 | 800.0 | 100.0 | entries/s | **2.00** (2.00 to 2.00) | "
        "**8.00** (8.00 to 8.00) | **0.50** (0.25 to 1.00) | 10%, 30% |"
    )
    assert cpu.startswith("| append-cpu | ours bookies, v3, 100 B | 5.0 | 6.0 | 2.5 | 10.0 | us/entry | **2.00**")


def test_a_table_without_java_has_no_column_for_it() -> None:
    run = a_run()
    run["results"] = [each for each in run["results"] if each["reference"] != "java-client"]
    assert "Java" not in tables_of(run)["append"]


def test_the_page_has_a_place_for_every_table_and_keeps_its_text() -> None:
    page = PAGE.read_text()
    tables = tables_of(a_run())
    once = rewritten(page, tables)
    assert tables["append"] in once
    assert rewritten(once, tables) == once, "figures replace figures"
    with pytest.raises(ValueError, match="places for"):
        rewritten(page.replace("figures of tls", "figures of else"), tables)


def test_plots_are_images_that_the_page_shows() -> None:
    plots = plots_of(a_run())
    assert set(plots) == {"append-cpu.svg", "append-throughput.svg"}
    for name, text in plots.items():
        ET.fromstring(text)
        assert len(text) < 20_000
        assert f"performance/{name}" in PAGE.read_text()
