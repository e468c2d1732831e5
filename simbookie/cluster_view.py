"""The bookies of a cluster at this moment, as a table that is drawn anew: what ``bk-sim cluster --watch`` shows.

Each bookie is asked for its metrics over the interface for operators. One that does not answer is shown as such, and asked again.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.live import Live
from rich.table import Table

from simbookie.processes import BookieProcess

__all__ = ["ClusterView", "Moment", "fetch_metrics", "read_metrics", "table_of"]

_TIMEOUT_S: Final = 2.0
_ANSWER_BYTES_MAX: Final = 4 << 20
_BAR: Final = 12
_STATES: Final = {1.0: "writable", 0.0: "read-only", -1.0: "not serving"}
_COLUMNS: Final = (
    "bookie",
    "state",
    "adds/s",
    "ms",
    "MB/s",
    "waiting",
    "journal",
    "syncs/s",
    "write cache",
    "ledgers",
    "disk",
)


@dataclass(frozen=True, slots=True)
class Moment:
    """What a bookie told at a time, in seconds: values by the names of metrics, labels added up. Nothing if it is silent."""

    at: float
    values: Mapping[str, float] | None


def read_metrics(text: str) -> dict[str, float]:
    """By name the sum of the samples in Prometheus' text; successes alone where samples tell these from failures."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("success", "true") == "true":
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return values


def table_of(names: Sequence[str], before: Mapping[str, Moment], now: Mapping[str, Moment]) -> Table:
    """A row for each bookie; rates are between the two moments, and unknown without the first."""
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("bookie", "state", "write cache") else "right")
    for name in names:
        table.add_row(name, *_cells(before.get(name), now.get(name)))
    return table


def _cells(before: Moment | None, now: Moment | None) -> list[str]:
    if now is None or now.values is None:
        return ["silent", *[""] * (len(_COLUMNS) - 2)]
    values, seconds = now.values, 0.0
    old: Mapping[str, float] = {}
    if before is not None and before.values is not None:
        old, seconds = before.values, now.at - before.at

    def of(name: str) -> float:
        return values.get(name, 0.0)

    def grown(name: str) -> float:
        return max(0.0, of(name) - old.get(name, 0.0))

    def rate(name: str, unit: float = 1.0, form: str = ".0f") -> str:
        return format(grown(name) / seconds / unit, form) if seconds > 0 else "-"

    request = "bookkeeper_server_ADD_ENTRY_REQUEST"
    adds = grown(f"{request}_count")
    took = format(grown(f"{request}_sum") / adds, ".1f") if adds and seconds > 0 else "-"
    total = of("bookie_disk_total_bytes")
    used = f"{100 * (1 - of('bookie_disk_free_bytes') / total):.0f}%" if total else "-"
    return [
        _STATES.get(of("bookie_SERVER_STATUS"), "?"),
        rate(f"{request}_count"),
        took,
        rate("bookie_WRITE_BYTES", 1e6, ".1f"),
        f"{of('bookkeeper_server_ADD_ENTRY_IN_PROGRESS'):.0f}",
        f"{of('bookie_journal_JOURNAL_QUEUE_SIZE') + of('bookie_journal_JOURNAL_QUEUE_LINE'):.0f}",
        rate("bookie_journal_JOURNAL_SYNCS"),
        _bar(of("bookie_write_cache_size"), of("bookie_write_cache_max_size")),
        f"{of('bookie_ledgers_count'):.0f}",
        used,
    ]


def _bar(value: float, limit: float) -> str:
    if limit <= 0:
        return "-"
    share = min(1.0, value / limit)
    full = round(share * _BAR)
    return f"{'#' * full}{'.' * (_BAR - full)} {100 * share:.0f}%"


def fetch_metrics(host: str, port: int) -> str | None:
    """What a bookie tells of itself, as Prometheus' text; None if it does not answer. Blocks for 2 s at most."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=_TIMEOUT_S) as answer:
            text: str = answer.read(_ANSWER_BYTES_MAX).decode()
    except (OSError, ValueError):
        return None
    return text


class ClusterView:
    """Shows the table on ``console``; a context manager, inside of which :meth:`update` draws it anew."""

    def __init__(
        self,
        console: Console | None = None,
        *,
        fetch: Callable[[str, int], str | None] = fetch_metrics,
    ) -> None:
        self._live = Live(Table(), console=console if console is not None else Console(stderr=True), auto_refresh=False)
        self._fetch = fetch
        self._before: dict[str, Moment] = {}

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    async def update(self, bookies: Sequence[BookieProcess]) -> None:
        """Ask all bookies, and draw."""
        moments = await asyncio.gather(*(self._moment(each) for each in bookies))
        now = {bookie.bookie_id: moment for bookie, moment in zip(bookies, moments, strict=True)}
        self._live.update(table_of(list(now), self._before, now), refresh=True)
        self._before = now

    async def _moment(self, bookie: BookieProcess) -> Moment:
        text = None
        if bookie.admin_port is not None and bookie.is_running:
            text = await asyncio.to_thread(self._fetch, bookie.address.host, bookie.admin_port)
        return Moment(asyncio.get_running_loop().time(), None if text is None else read_metrics(text))
