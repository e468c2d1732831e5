"""Removing from a bookie the ledgers that are gone from the metadata store.

Deleting a ledger removes its metadata only; bookies find out by themselves. A ledger's metadata exist before any bookie hears
of it, so a ledger that a bookie has and the store has not was deleted. The order of looking matters: first the bookie's
ledgers are listed, then the store's, then every candidate is looked up once more before it goes (D12).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bkclient.errors import BookKeeperError, NoSuchLedger
from bkclient.metadata.base import MetadataStore
from simbookie.bookie import Bookie, BookieState

__all__ = ["GarbageCollector"]

_log: Final = logging.getLogger(__name__)


class GarbageCollector:
    """Collects the garbage of ``bookie`` every ``interval_s`` seconds while :meth:`run` runs."""

    def __init__(self, bookie: Bookie, metadata: MetadataStore, interval_s: float) -> None:
        if not interval_s > 0:
            raise ValueError(f"interval_s must be > 0, got {interval_s}")
        self._bookie = bookie
        self._metadata = metadata
        self._interval_s = interval_s

    async def collect(self) -> list[int]:
        """Remove what is gone; returns the ledgers removed, ascending. Raises what the metadata store raises."""
        stored = self._bookie.ledger_ids()
        if not stored:
            return []
        known = {ledger_id async for ledger_id in self._metadata.list_ledgers()}
        removed = []
        for ledger_id in stored:
            if ledger_id in known:
                continue
            try:
                await self._metadata.read_ledger(ledger_id)
            except NoSuchLedger:
                if self._bookie.state is BookieState.RUNNING and self._bookie.delete_ledger(ledger_id):
                    removed.append(ledger_id)
        return removed

    async def run(self) -> None:
        """Collect again and again until cancelled; a metadata store that fails is asked again at the next turn."""
        while True:
            await asyncio.sleep(self._interval_s)
            if self._bookie.state is not BookieState.RUNNING:
                continue
            try:
                removed = await self.collect()
            except BookKeeperError as error:
                _log.warning("bookie %s cannot collect garbage: %s", self._bookie.bookie_id, error)
            else:
                if removed:
                    _log.info("bookie %s removed %d deleted ledgers", self._bookie.bookie_id, len(removed))
