"""The garbage collector of entry logs: what :mod:`simbookie.storage.compaction.plan` decides, carried out on a store.

One run goes through all flushed logs: it learns which ledgers are in those it has not seen, forgets the ledgers that do not
exist, removes logs without any, and compacts others if a compaction is due. Deleting ledgers from the store is not its business.

To compact a log is to append its live entries to the log that is written, at a limited rate; to make that durable; to set their
locations and make these durable; then to remove it. Until the last step the log is whole, so a crash anywhere costs space only. A
location that has come to point elsewhere in the meantime is left alone.

In transactions a log is compacted into one of its own instead, and a run first ends what an earlier one, of a bookie that
died, had begun (:mod:`simbookie.storage.entry_logs.compaction_log`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random

from bkclient.observability.latencies import Latencies
from simbookie.storage.base import DurableCallback, StorageError, StorageIOError
from simbookie.storage.compaction.copying import CompactionTransaction, Copying, Moved, entry_id_of
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.compaction.plan import (
    CompactionConfig,
    CompactionSchedule,
    LogUsage,
    Throttle,
    bucket_counts,
    in_order,
)
from simbookie.storage.entry_logs.compaction_log import CompactionLog
from simbookie.storage.entry_logs.format import SIZE_BYTES, location_of
from simbookie.storage.ledger_store import CollectedStore, OnStep, no_step
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence, WaitingStep

__all__ = ["CollectorStats", "EntryLogCollector"]


@dataclass(slots=True)
class CollectorStats:
    """What a collector has done since it was made."""

    major_compactions: int = 0
    minor_compactions: int = 0
    #: Bytes of logs that were removed because no ledger was left in them, and of dead entries in compacted ones.
    bytes_of_deleted: int = 0
    bytes_of_compacted: int = 0
    logs_not_removed: int = 0
    #: What parts of runs took: learning of logs, compacting [EXTRACT_META_RUNTIME, COMPACT_RUNTIME].
    extract_times: Latencies = field(default_factory=Latencies, compare=False)
    compact_times: Latencies = field(default_factory=Latencies, compare=False)
    #: Of the logs that the last compaction looked at, the share that it compacted [ENTRY_LOG_COMPACT_RATIO].
    compacted_share: float = 0.0


class EntryLogCollector:
    """Collects the garbage of ``store``, in runs that are asked for. Must be made inside a running loop.

    ``number`` is that of the collector among those of a bookie, whose locations are not compacted all at one time.
    """

    def __init__(
        self,
        store: CollectedStore,
        config: CompactionConfig | None = None,
        *,
        on_step: OnStep = no_step,
        quirks: frozenset[Quirk] = REPAIRED,
        number: int = 0,
    ) -> None:
        self.config = config if config is not None else CompactionConfig()
        self.stats = CollectorStats()
        self._store = store
        self._step = on_step
        self._quirks = quirks
        self._loop = asyncio.get_running_loop()
        self.schedule = CompactionSchedule(self.config, self._loop.time(), Random(f"collector {number}"))  # noqa: S311
        rate = self.config.bytes_per_s if self.config.bytes_per_s is not None else self.config.entries_per_s
        self._throttle = Throttle(rate, self._loop.time())
        self._usages: dict[int, LogUsage] = {}
        #: The kind of compaction that is under way.
        self.compacting: CompactionKind | None = None
        self._running: Sequence | None = None
        self._copying: Copying | None = None
        self._transaction: CompactionTransaction | None = None

    @property
    def is_running(self) -> bool:
        """Whether a run is under way."""
        return self._running is not None

    @property
    def logs(self) -> int:
        """How many logs are known to have living ledgers [ACTIVE_ENTRY_LOG_TOTAL]."""
        return len(self._usages)

    @property
    def bytes_alive(self) -> int:
        """Bytes in them of ledgers that exist [ACTIVE_ENTRY_LOG_SPACE_BYTES]."""
        return sum(log.remaining for log in self._usages.values())

    @property
    def ledgers(self) -> int:
        """How many ledgers are known to be in logs [ACTIVE_LEDGER_TOTAL]."""
        return len({ledger_id for log in self._usages.values() for ledger_id in log.ledgers})

    @property
    def bytes_in_logs(self) -> int:
        """Bytes of entries in them [ENTRY_LOG_SPACE_BYTES]."""
        return sum(log.total for log in self._usages.values())

    def usages(self) -> list[int]:
        """How many logs are alive to less than 10%, 20%, and so on, each counted once, as of the last run."""
        return bucket_counts(self._usage(log) for log in self._usages.values())

    def _usage(self, log: LogUsage) -> float:
        full_size = self._store.logger.config.log_size_max if self.config.measures_by_full_size else None
        return log.usage(full_size)

    def stop(self) -> None:
        """End a run that is under way, without calling back: the store closes, or has crashed."""
        if self._running is not None:
            self._running.cancel()
        for part in (self._copying, self._transaction):
            if part is not None:
                part.cancel()
        self._running = self._copying = self._transaction = None
        self.compacting = None

    def collect(
        self,
        on_done: DurableCallback,
        token: object,
        *,
        is_forced: bool = False,
        kinds: frozenset[CompactionKind] | None = None,
    ) -> None:
        """Run once. One run at a time. A log that cannot be read, compacted or removed is left, and is no error."""
        assert self._running is None, "a run is under way"

        def ended(_token: object, error: StorageError | None) -> None:
            self._running = None
            on_done(token, error)

        self._running = Sequence(self._steps(is_forced=is_forced, kinds=kinds), ended, None)

    def _steps(self, *, is_forced: bool, kinds: frozenset[CompactionKind] | None = None) -> Iterator[WaitingStep]:
        logger, exists = self._store.logger, self._store.has_ledger
        if self.config.in_transactions:
            try:
                found = logger.unfinished_compactions()
            except StorageIOError:
                self.stats.logs_not_removed += 1
                found = []
            for unfinished in found:
                yield partial(self._recover, unfinished)
        began = self._loop.time()
        for log_id in logger.flushed_ids():
            if log_id not in self._usages:
                try:
                    self._usages[log_id] = LogUsage(log_id, logger.ledgers_of(log_id))
                except StorageIOError:
                    continue  # damaged; perhaps its ledgers are deleted one day, but nobody can tell
                yield self._next_turn
        self.stats.extract_times.add(self._loop.time() - began)
        for log in list(self._usages.values()):
            log.keep(exists)
            if not log.ledgers:
                self._remove(log)
                yield self._next_turn
        kind = self.schedule.choose(self._loop.time(), is_forced=is_forced, kinds=kinds)
        if kind is not None:
            self.compacting, began = kind, self._loop.time()
            yield from self._compaction(kind)
            self.compacting = None
            self.stats.compact_times.add(self._loop.time() - began)
            self.schedule.ran(kind, self._loop.time())
            if kind is CompactionKind.MAJOR:
                self.stats.major_compactions += 1
            else:
                self.stats.minor_compactions += 1
        locations = self._store.location_compaction
        if locations is not None and self.schedule.takes_locations(self._loop.time()):
            locations.begin()

    def _next_turn(self, on_done: DurableCallback) -> None:
        self._loop.call_soon(on_done, None, None)

    def _remove(self, log: LogUsage) -> None:
        size = self._store.logger.size_of(log.log_id)
        try:
            self._store.logger.remove(log.log_id)
        except StorageIOError:
            self.stats.logs_not_removed += 1
            return
        del self._usages[log.log_id]
        self.stats.bytes_of_deleted += size

    def _compaction(self, kind: CompactionKind) -> Iterator[WaitingStep]:
        rule = self.config.major if kind is CompactionKind.MAJOR else self.config.minor
        usages = [(log.log_id, self._usage(log)) for log in self._usages.values()]
        start, tried = self._loop.time(), 0
        self.stats.compacted_share = 0.0
        for log_id in in_order(usages, rule.threshold):
            if rule.time_max_s is not None and self._loop.time() - start >= rule.time_max_s:
                return
            log = self._usages.get(log_id)
            if log is not None:
                tried += 1
                self.stats.compacted_share = tried / len(usages)
                yield partial(self._compact, log)

    def _compact(self, log: LogUsage, on_done: DurableCallback) -> None:
        dead = log.total - log.remaining

        def copied(_token: object, error: StorageError | None) -> None:
            self._copying = None
            if error is None:
                self._step("compaction.remove")
                try:
                    self._store.logger.remove(log.log_id)
                except StorageIOError as failure:
                    error = failure
                else:
                    del self._usages[log.log_id]
            if error is None or Quirk.FAILED_COMPACTIONS_COUNTED in self._quirks:
                self.stats.bytes_of_compacted += dead
            on_done(None, None)

        if self.config.in_transactions:
            try:
                target = self._begin(self._store.logger.begin_compaction(log.log_id), log.ledgers)
            except StorageIOError as error:
                copied(None, error)
                return
            self._copying = Copying(
                self._store,
                log,
                target.add,
                self._take,
                target.moved_max,
                target.commit,
                copied,
                on_failed=target.abort,
            )
            return
        move = partial(self._store.move_entries, log.log_id, log.ledgers)

        def deliver(moved: list[Moved], delivered: DurableCallback) -> None:
            self._step("compaction.flush")
            move(moved, delivered, None)

        self._copying = Copying(
            self._store,
            log,
            self._store.logger.add,
            self._take,
            self.config.moved_max,
            deliver,
            copied,
        )

    def _recover(self, unfinished: CompactionLog, on_done: DurableCallback) -> None:
        """Set the locations of a log that was complete when its bookie died."""

        def recovered(_token: object, error: StorageError | None) -> None:
            if error is None:
                try:
                    self._store.logger.remove(unfinished.source_id)
                except StorageIOError:
                    self.stats.logs_not_removed += 1
                else:
                    self._usages.pop(unfinished.source_id, None)
            on_done(None, None)  # one that fails is tried again with the next run

        try:
            unfinished.make_available()
            records = list(self._store.logger.scan(unfinished.log_id, lambda ledger_id: ledger_id >= 0))
            ledger_ids = {each.ledger_id for each in records} | self._ledgers_of(unfinished.source_id)
        except StorageIOError as error:
            recovered(None, error)
            return
        moved = [
            (each.ledger_id, entry_id_of(each), location_of(unfinished.log_id, each.offset + SIZE_BYTES))
            for each in records
        ]
        self._begin(unfinished, ledger_ids).set_locations(moved, recovered)

    def _ledgers_of(self, log_id: int) -> set[int]:
        """The ledgers in a log, if it is still there."""
        logger = self._store.logger
        return set(logger.ledgers_of(log_id)) if log_id in logger.flushed_ids() else set()

    def _begin(self, log: CompactionLog, ledger_ids: Collection[int]) -> CompactionTransaction:
        self._transaction = CompactionTransaction(self._store, log, ledger_ids, self._step)
        return self._transaction

    def _take(self, size: int) -> float:
        permits = size if self.config.bytes_per_s is not None else 1
        return self._throttle.take(permits, self._loop.time())
