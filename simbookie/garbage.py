"""The garbage collector of a bookie: what is gone from the metadata store goes from the bookie, and then from its disk.

Deleting a ledger removes its metadata only; bookies find out by themselves. A ledger's metadata exist before any bookie hears
of it, so a ledger that a bookie has and the store has not was deleted. The order of looking matters: first the bookie's
ledgers are listed, then the store's, then every candidate is looked up once more before it goes (D12).

A ledger that was closed and has come to be kept by other bookies only is *over-replicated* here, and goes as well, more
seldom. While that is decided the ledger is locked against re-replication, which could be about to name this bookie again.

Each run looks for ledgers first, and has the storage give their space back afterwards
(:meth:`~simbookie.storage.base.LedgerStorage.collect_garbage`). A metadata store that fails ends the first part only: what was
found to be gone is. Runs never overlap.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import Final

from bkclient.errors import BookKeeperError, NoSuchLedger
from bkclient.ledger import LedgerMetadata, LedgerState
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.tree import HasNodeTree, tree_of
from bkclient.observability.latencies import Latencies
from simbookie.bookie import Bookie, BookieState
from simbookie.storage.base import StorageError
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.compaction.plan import Throttle
from simbookie.storage.quirks import REPAIRED, Quirk

__all__ = ["GarbageCollector", "GarbageConfig"]

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GarbageConfig:
    """Times in seconds; the defaults are BookKeeper's, whose keys are in brackets."""

    #: The rest between two runs (``gcWaitTime``).
    interval_s: float = 600.0
    #: How long the last look for over-replicated ledgers must be ago; 0 for never (``gcOverreplicatedLedgerWaitTime``).
    overreplicated_interval_s: float = 86_400.0
    #: Ledgers that are looked up in the metadata store in a second (``gcMetadataOpRateLimit``); ``None``: as many as there are.
    lookups_per_s: float | None = None

    def __post_init__(self) -> None:
        if not self.interval_s > 0:
            raise ValueError(f"garbage: interval_s must be > 0, got {self.interval_s}")
        if not self.overreplicated_interval_s >= 0:
            raise ValueError(f"garbage: overreplicated_interval_s must be >= 0, got {self.overreplicated_interval_s}")
        if self.lookups_per_s is not None and not self.lookups_per_s > 0:
            raise ValueError(f"garbage: lookups_per_s must be > 0, got {self.lookups_per_s}")


@dataclass(frozen=True, slots=True)
class _Force:
    kinds: frozenset[CompactionKind] | None


class GarbageCollector:
    """Collects the garbage of ``bookie`` while :meth:`run` runs."""

    def __init__(
        self,
        bookie: Bookie,
        metadata: MetadataStore,
        config: GarbageConfig | None = None,
        *,
        quirks: frozenset[Quirk] = REPAIRED,
    ) -> None:
        self.config = config if config is not None else GarbageConfig()
        self._bookie = bookie
        self._metadata = metadata
        self._quirks = quirks
        self._wake = asyncio.Event()
        #: A forced run that is to come, or under way, and the kinds of compaction that it was asked for.
        self._forced: _Force | None = None
        self._running: _Force | None = None
        #: Ledgers that were removed.
        self.ledgers_removed = 0
        #: What a run took, and the part of it that looks for ledgers [THREAD_RUNTIME, GC_LEDGER_RUNTIME].
        self.run_times = Latencies()
        self.ledger_times = Latencies()
        self._overreplicated_at: float | None = None
        self._throttle: Throttle | None = None

    @property
    def is_in_forced_run(self) -> bool:
        """Whether a run was forced and is not over."""
        return self._forced is not None or self._running is not None

    def force(self, kinds: frozenset[CompactionKind] | None = None) -> None:
        """Run as soon as possible, and do what would not be due yet. A second call before that changes nothing.

        With ``kinds`` the storage compacts so, also if that is suspended, and not otherwise.
        """
        if self._forced is None:
            self._forced = _Force(kinds)
            self._wake.set()

    # ---------------------------------------------------------------------------------------------------------- ledgers

    async def collect(self) -> list[int]:
        """Remove ledgers that were deleted; returns them, ascending. A bookie that does not run has none.

        Raises what the metadata store and the storage raise.
        """
        stored = self._ledger_ids()
        if not stored:
            return []
        known = {ledger_id async for ledger_id in self._metadata.list_ledgers()}
        removed = []
        for ledger_id in stored:
            if ledger_id in known:
                continue
            try:
                await self._look_up(ledger_id)
            except NoSuchLedger:
                if self._removes(ledger_id):
                    removed.append(ledger_id)
        return removed

    async def collect_overreplicated(self) -> list[int]:
        """Remove closed ledgers that other bookies keep and this one need not; returns them, ascending.

        Nothing is removed where the metadata store has no room for locks. Raises as :meth:`collect`.
        """
        if not isinstance(self._metadata, HasNodeTree):
            return []
        from bkclient.repair.underreplication.marks import UnderReplication  # noqa: PLC0415  loads the client

        locks = UnderReplication(
            tree_of(self._metadata),
            name=self._bookie.bookie_id,
            wall_clock_ms=lambda: 0,  # of marks, and none is made
            rng=random.Random(0),  # noqa: S311  the same
        )
        removed = []
        for ledger_id in self._ledger_ids():
            if not await self._is_overreplicated(ledger_id) or not await locks.block(ledger_id):
                continue
            try:
                if await self._is_overreplicated(ledger_id) and self._removes(ledger_id):
                    removed.append(ledger_id)
            finally:
                await locks.unblock(ledger_id)
        return removed

    async def _is_overreplicated(self, ledger_id: int) -> bool:
        try:
            metadata = await self._look_up(ledger_id)
        except NoSuchLedger:
            return False  # that is found out elsewhere
        return metadata.state is LedgerState.CLOSED and all(
            self._bookie.bookie_id not in fragment.ensemble for fragment in metadata.fragments
        )

    async def _look_up(self, ledger_id: int) -> LedgerMetadata:
        """The metadata of a ledger, when it may be asked for."""
        rate = self.config.lookups_per_s
        if rate is not None:
            loop = asyncio.get_running_loop()
            if self._throttle is None:
                self._throttle = Throttle(rate, loop.time())
            wait_s = self._throttle.take(1, loop.time())
            if wait_s > 0:
                await asyncio.sleep(wait_s)
        return (await self._metadata.read_ledger(ledger_id)).metadata

    def _ledger_ids(self) -> list[int]:
        """Those of the bookie; a store that is being opened, or is closed, knows of none."""
        return self._bookie.ledger_ids() if self._bookie.state is BookieState.RUNNING else []

    def _removes(self, ledger_id: int) -> bool:
        if self._bookie.state is not BookieState.RUNNING or not self._bookie.delete_ledger(ledger_id):
            return False
        self.ledgers_removed += 1
        return True

    # ------------------------------------------------------------------------------------------------------------ runs

    async def run(self) -> None:
        """Collect again and again until cancelled; a metadata store that fails is asked again at the next turn."""
        loop = asyncio.get_running_loop()
        self._overreplicated_at = loop.time()
        wait_s = self.config.interval_s * (2 if Quirk.FIRST_COLLECTION_LATE in self._quirks else 1)
        end_watch = self._bookie.storage.watch_shortage(self.force)
        try:
            while True:
                await self._rest(wait_s)
                wait_s = self.config.interval_s
                self._running, self._forced = self._forced, None
                try:
                    if self._bookie.state is BookieState.RUNNING:
                        kinds = None if self._running is None else self._running.kinds
                        await self.run_once(is_forced=self._running is not None, kinds=kinds)
                finally:
                    self._running = None
        finally:
            end_watch()

    async def _rest(self, seconds: float) -> None:
        self._wake.clear()
        if self._forced is not None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def run_once(self, *, is_forced: bool = False, kinds: frozenset[CompactionKind] | None = None) -> None:
        """One run over ledgers and storage. Failures are logged."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._collect_ledgers()
        self.ledger_times.add(loop.time() - began)
        if self._bookie.state is BookieState.RUNNING:
            await self._collect_storage(is_forced=is_forced, kinds=kinds)
        self.run_times.add(loop.time() - began)

    async def _collect_ledgers(self) -> None:
        bookie_id, now = self._bookie.bookie_id, asyncio.get_running_loop().time()
        interval_s = self.config.overreplicated_interval_s
        try:
            if 0 < interval_s <= now - (self._overreplicated_at if self._overreplicated_at is not None else now):
                self._overreplicated_at = now
                surplus = await self.collect_overreplicated()
                if surplus:
                    _log.info("bookie %s removed %d ledgers that other bookies keep", bookie_id, len(surplus))
            if self._bookie.state is not BookieState.RUNNING:
                return
            removed = await self.collect()
        except (BookKeeperError, StorageError) as error:
            _log.warning("bookie %s cannot collect garbage: %s", bookie_id, error)
        else:
            if removed:
                _log.info("bookie %s removed %d deleted ledgers", bookie_id, len(removed))

    async def _collect_storage(self, *, is_forced: bool, kinds: frozenset[CompactionKind] | None) -> None:
        """Wait for the storage, unless the bookie ends meanwhile, which calls nobody back."""
        incarnation = self._bookie.incarnation
        done = asyncio.get_running_loop().create_future()

        def collected(_token: object, error: StorageError | None) -> None:
            if not done.done():
                done.set_result(error)

        self._bookie.storage.collect_garbage(collected, None, is_forced=is_forced, kinds=kinds)
        while self._bookie.state is BookieState.RUNNING and self._bookie.incarnation == incarnation:
            await asyncio.wait({done}, timeout=self.config.interval_s)
            if done.done():
                break
