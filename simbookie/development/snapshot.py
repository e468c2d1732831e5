"""What a cluster is like at a moment, as plain data: bookies with what they tell of themselves, and the newest ledgers.

Bookies are asked for their metrics, the metadata service for ledgers, bookies for the last add confirmed of open ones. All of it
is bounded in number and in time; what does not answer is left out, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from bkclient import BookKeeper, LedgerMetadata, LedgerReader, LedgerState
from bkclient.errors import BookKeeperError
from simbookie.cluster_view import fetch_metrics, read_metrics
from simbookie.development.control import ClusterControl
from simbookie.processes import BookieProcess

__all__ = ["LEDGERS_COUNTED_MAX", "LEDGERS_SHOWN_MAX", "METRICS", "Snapshots"]

LEDGERS_SHOWN_MAX: Final = 30
#: Ids that are looked at to find the newest ledgers.
LEDGERS_COUNTED_MAX: Final = 10_000
_LAC_TIMEOUT_S: Final = 1.0
_METADATA_TIMEOUT_S: Final = 2.0

#: What is shown of a bookie, by names of the page, and the metrics that are added up for it.
METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "adds": ("bookkeeper_server_ADD_ENTRY_REQUEST_count",),
    "reads": ("bookkeeper_server_READ_ENTRY_REQUEST_count",),
    "written_bytes": ("bookie_WRITE_BYTES",),
    "journal_queue": ("bookie_journal_JOURNAL_QUEUE_SIZE", "bookie_journal_JOURNAL_QUEUE_LINE"),
    "journal_queue_max": ("bookie_JOURNAL_QUEUE_MAX_SIZE",),
    "journal_syncs": ("bookie_journal_JOURNAL_SYNCS",),
    "cache_bytes": ("bookie_write_cache_size",),
    "cache_bytes_max": ("bookie_write_cache_max_size",),
    "entry_logs": ("bookie_gc_ACTIVE_ENTRY_LOG_TOTAL",),
    "entry_log_bytes": ("bookie_gc_ENTRY_LOG_SPACE_BYTES",),
    "entry_log_alive_bytes": ("bookie_gc_ACTIVE_ENTRY_LOG_SPACE_BYTES",),
    "gc_deleted_ledgers": ("bookie_gc_DELETED_LEDGER_TOTAL",),
    "gc_compactions": ("bookie_gc_MINOR_COMPACTION_TOTAL", "bookie_gc_MAJOR_COMPACTION_TOTAL"),
    "gc_reclaimed_bytes": (
        "bookie_gc_RECLAIMED_DELETION_SPACE_BYTES",
        "bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES",
    ),
    "ledgers": ("bookie_ledgers_count",),
    "disk_free_bytes": ("bookie_disk_free_bytes",),
    "disk_bytes": ("bookie_disk_total_bytes",),
}


class Snapshots:
    """Takes snapshots of what ``control`` controls, with the client ``bk`` of the same cluster."""

    def __init__(
        self,
        control: ClusterControl,
        bk: BookKeeper,
        *,
        fetch: Callable[[str, int], str | None] = fetch_metrics,
    ) -> None:
        self._control = control
        self._bk = bk
        self._fetch = fetch
        self._readers: dict[int, LedgerReader] = {}

    async def take(self) -> dict[str, Any]:
        """One snapshot, as plain data; ``at`` is in seconds of a clock of its own."""
        processes = list(self._control.cluster.bookies)
        bookies, (ledgers, count, problem) = await asyncio.gather(
            asyncio.gather(*(self._bookie(process) for process in processes)), self._ledgers()
        )
        return {
            "at": asyncio.get_running_loop().time(),
            "metadata": self._control.cluster.metadata_uri,
            "bookies": bookies,
            "ledgers": ledgers,
            "ledger_count": count,
            "problem": problem,
            "done": [
                {"number": done.number, "action": done.action, "bookie": done.bookie, "error": done.error}
                for done in self._control.done
            ],
        }

    async def aclose(self) -> None:
        """Let go of ledgers."""
        for reader in self._readers.values():
            with suppress(BookKeeperError):
                await reader.aclose()
        self._readers.clear()

    async def _bookie(self, process: BookieProcess) -> dict[str, Any]:
        state = self._control.state(process)
        text = None
        if process.admin_port is not None and state not in {"crashed", "paused"}:
            text = await asyncio.to_thread(self._fetch, process.address.host, process.admin_port)
        values = read_metrics(text) if text is not None else None
        return {
            "id": process.bookie_id,
            "state": state,
            "partitioned": self._control.is_partitioned(process),
            "pid": process.pid,
            "log": str(process.log_path),
            "values": None
            if values is None
            else {name: sum(values.get(each, 0.0) for each in metrics) for name, metrics in METRICS.items()},
        }

    async def _ledgers(self) -> tuple[list[dict[str, Any]], int, str]:
        try:
            async with asyncio.timeout(_METADATA_TIMEOUT_S):
                known = []
                async for ledger_id in self._bk.list_ledgers():
                    known.append(ledger_id)
                    if len(known) == LEDGERS_COUNTED_MAX:
                        break
                newest = sorted(known, reverse=True)[:LEDGERS_SHOWN_MAX]
                shown = await asyncio.gather(*(self._ledger(ledger_id) for ledger_id in newest))
        except TimeoutError:
            return [], 0, f"the metadata service did not answer within {_METADATA_TIMEOUT_S:g} s"
        except BookKeeperError as error:
            return [], 0, str(error)
        await self._let_go(keep=newest)
        return [each for each in shown if each is not None], len(known), ""

    async def _ledger(self, ledger_id: int) -> dict[str, Any] | None:
        try:
            metadata = await self._bk.ledger_metadata(ledger_id)
        except BookKeeperError:
            return None  # it was deleted since it was listed
        is_closed = metadata.state is LedgerState.CLOSED
        return {
            "id": ledger_id,
            "state": metadata.state.name,
            "sizes": f"{metadata.ensemble_size}/{metadata.write_quorum_size}/{metadata.ack_quorum_size}",
            "last": metadata.last_entry_id if is_closed else await self._lac(ledger_id, metadata),
            "fragments": [
                {"first": fragment.first_entry_id, "bookies": list(fragment.ensemble)}
                for fragment in metadata.fragments
            ],
        }

    async def _lac(self, ledger_id: int, metadata: LedgerMetadata) -> int | None:
        """The last add confirmed of an open ledger; None if too few bookies tell it in time."""
        if metadata.state is not LedgerState.OPEN:
            return None
        try:
            async with asyncio.timeout(_LAC_TIMEOUT_S):
                reader = self._readers.get(ledger_id)
                if reader is None:
                    reader = self._readers[ledger_id] = await self._bk.open_ledger_as_administrator(ledger_id)
                return await reader.read_last_add_confirmed()
        except (BookKeeperError, TimeoutError):
            return None

    async def _let_go(self, *, keep: list[int]) -> None:
        for ledger_id in [known for known in self._readers if known not in keep]:
            with suppress(BookKeeperError):
                await self._readers.pop(ledger_id).aclose()
