"""What ``bk-sim cluster --watch`` shows: rates between two looks, silence, and nothing that was not told."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from simbookie.cluster_view import ClusterView, Moment, read_metrics, table_of
from simbookie.processes import BookieProcess

REQUEST = "bookkeeper_server_ADD_ENTRY_REQUEST"
VALUES = {
    "bookie_SERVER_STATUS": 1.0,
    f"{REQUEST}_count": 100.0,
    f"{REQUEST}_sum": 50.0,
    "bookie_WRITE_BYTES": 1e6,
    "bookkeeper_server_ADD_ENTRY_IN_PROGRESS": 7.0,
    "bookie_journal_JOURNAL_QUEUE_SIZE": 3.0,
    "bookie_journal_JOURNAL_QUEUE_LINE": 2.0,
    "bookie_journal_JOURNAL_SYNCS": 10.0,
    "bookie_write_cache_size": 50.0,
    "bookie_write_cache_max_size": 100.0,
    "bookie_ledgers_count": 4.0,
    "bookie_disk_total_bytes": 200.0,
    "bookie_disk_free_bytes": 150.0,
}


def shown(before: dict[str, Moment], now: dict[str, Moment]) -> list[list[str]]:
    table = table_of(list(now), before, now)
    return [list(cells) for cells in zip(*[list(column.cells) for column in table.columns], strict=True)]


def test_rates_are_between_two_looks() -> None:
    later = {**VALUES, f"{REQUEST}_count": 300.0, f"{REQUEST}_sum": 350.0, "bookie_WRITE_BYTES": 5e6}
    later["bookie_journal_JOURNAL_SYNCS"] = 30.0
    rows = shown({"b0": Moment(10.0, VALUES)}, {"b0": Moment(12.0, later)})
    assert rows == [["b0", "writable", "100", "1.5", "2.0", "7", "5", "10", "######...... 50%", "4", "25%"]]


def test_what_is_not_known_is_not_shown() -> None:
    assert shown({}, {"b0": Moment(1.0, VALUES)})[0][2:5] == ["-", "-", "-"]
    rows = shown({}, {"b0": Moment(1.0, None), "b1": Moment(1.0, {"bookie_SERVER_STATUS": 0.0})})
    assert rows[0] == ["b0", "silent", *[""] * 9]
    assert rows[1][1] == "read-only"
    assert rows[1][8] == "-"
    restarted = shown({"b0": Moment(1.0, VALUES)}, {"b0": Moment(2.0, {**VALUES, f"{REQUEST}_count": 0.0})})
    assert restarted[0][2] == "0", "a bookie that was started anew has not done less than nothing"


def test_labels_are_added_up_and_failures_left_out() -> None:
    text = (
        '# TYPE x gauge\nx{journalIndex="0"} 1\nx{journalIndex="1"} 2\n'
        '# TYPE y histogram\ny_count{success="true"} 5\ny_count{success="false"} 7\n'
    )
    assert read_metrics(text) == {"x": 3.0, "y_count": 5.0}


def test_the_view_asks_processes_and_draws(tmp_path: Path) -> None:
    """Also those that are gone, or do not answer."""
    bookie = BookieProcess("b0", "mem://alone", tmp_path, bookie_id="b0", options=["--admin-port", "0"])
    never = BookieProcess("b1", "mem://alone", tmp_path, bookie_id="b1")
    output = io.StringIO()

    async def story() -> None:
        with ClusterView(Console(file=output, width=120)) as view:
            await view.update([bookie, never])
            await asyncio.to_thread(bookie.kill)
            await view.update([bookie, never])

    bookie.start()
    try:
        asyncio.run(story())
    finally:
        bookie.kill()
    text = output.getvalue()
    assert "adds/s" in text
    assert "silent" in text


@pytest.mark.parametrize("answer", [None, ""])
def test_a_bookie_that_says_nothing_is_silent_or_without_numbers(answer: str | None, tmp_path: Path) -> None:
    bookie = BookieProcess("b0", "mem://alone", tmp_path, bookie_id="b0", options=["--admin-port", "0"])
    output = io.StringIO()

    async def story() -> None:
        with ClusterView(Console(file=output, width=120), fetch=lambda _host, _port: answer) as view:
            await view.update([bookie])

    bookie.start()
    try:
        asyncio.run(story())
    finally:
        bookie.kill()
    assert ("silent" in output.getvalue()) is (answer is None)
