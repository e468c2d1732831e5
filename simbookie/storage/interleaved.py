"""A ledger store that writes entries as they come: BookKeeper's ``InterleavedLedgerStorage``.

An entry is appended to the active entry log, where those of all ledgers are mixed, and its location is set in the index of its
ledger. Nothing is synced before a flush. When a log is rotated the store asks for a checkpoint: what came before is in the
rotated logs then, and these are what a checkpoint syncs.

A flush makes the index durable first, then the logs. In between an index may point at bytes that are not durable; the journals,
which keep everything until the checkpoint is done, put them there again. Of an entry that is stored once more they may have
nothing yet, and the copy that was acknowledged may be in no journal any more. So the index leads to that one until the new one
is durable.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from bkclient.wire.messages import LAST_ENTRY
from simbookie.storage.base import CrashMode, DurableCallback, LedgerInfo, ReadCallback, StorageError, StorageIOError
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.logger import EntryLogger
from simbookie.storage.folders import Folders
from simbookie.storage.indexes.ledger_cache import IndexConfig, LedgerCache
from simbookie.storage.known import KnownLacs, KnownRuns, lac_of
from simbookie.storage.ledger_store import Checkpoint, OnStep, StoreOwner, no_step
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence, WaitingStep

__all__ = ["InterleavedConfig", "InterleavedLedgerStore"]


@dataclass(frozen=True, slots=True)
class InterleavedConfig:
    """Limits of an :class:`InterleavedLedgerStore`."""

    entry_log: EntryLogConfig = field(default_factory=EntryLogConfig)
    index: IndexConfig = field(default_factory=IndexConfig)


class InterleavedLedgerStore:
    """Implements :class:`simbookie.storage.ledger_store.LedgerStore`; see there for the meaning of the methods.

    Index files are in ``index_folders``, by default the folders of the entry logs. A store around this one that asks for
    checkpoints itself gives ``on_rotate``, which is called instead of asking.
    """

    def __init__(
        self,
        folders: Folders,
        config: InterleavedConfig | None = None,
        *,
        index_folders: Folders | None = None,
        on_rotate: Callable[[], None] | None = None,
        on_step: OnStep = no_step,
        quirks: frozenset[Quirk] = REPAIRED,
    ) -> None:
        self.config = config if config is not None else InterleavedConfig()
        rotated = on_rotate if on_rotate is not None else self._ask_for_checkpoint
        self.logger = EntryLogger(folders, self.config.entry_log, on_rotate=rotated, on_step=on_step, quirks=quirks)
        self.cache = LedgerCache(index_folders or folders, self.config.index, on_step=on_step, quirks=quirks)
        self._step = on_step
        self._quirks = quirks
        self._owner: StoreOwner | None = None
        self._flushing: Sequence | None = None
        self._forget()

    def _forget(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._flushing = None
        #: What is to be flushed, one after the other; the first is under way.
        self._flushes: deque[tuple[list[WaitingStep], DurableCallback, object]] = deque()
        self._owner = None
        self._lacs = KnownLacs(self._quirks)
        self._runs = KnownRuns()
        self._was_written = False

    @property
    def asks_for_checkpoints(self) -> bool:
        """It does, unless each ledger has logs of its own: then none is rotated because others are full."""
        return not self.config.entry_log.per_ledger

    @property
    def collected(self) -> tuple[InterleavedLedgerStore]:
        """All its logs have one collector."""
        return (self,)

    @property
    def location_compaction(self) -> None:
        """Index files are never compacted."""

    def has_ledger(self, ledger_id: int) -> bool:
        """Whether a ledger exists."""
        return ledger_id in self.cache

    def places(self, ledger_id: int, entry_id: int) -> tuple[int, ...]:
        """Where an entry is."""
        return self.cache.locations(ledger_id, entry_id) if entry_id >= 0 and ledger_id in self.cache else ()

    # ----------------------------------------------------------------------------------------------------------- life

    def open(self, owner: StoreOwner) -> None:
        """List logs and index files."""
        self.logger.open()
        self.cache.open()
        self._owner = owner

    def close(self) -> None:
        """Let go of all files."""
        self.logger.close()
        self.cache.close()
        self._forget()

    def crash(self, mode: CrashMode) -> None:
        """Forget what is in memory."""
        self.logger.crash(mode)
        self.cache.crash()
        self._forget()

    def _ask_for_checkpoint(self) -> None:
        owner = self._owner
        assert owner is not None, "the store is not open"
        if not self.asks_for_checkpoints:
            return
        owner.request_checkpoint(owner.take_checkpoint())

    # -------------------------------------------------------------------------------------------------------- ledgers

    def ledger(self, ledger_id: int) -> LedgerInfo | None:
        """What is known of a ledger; its LAC is that of its last entry, or a higher one that came since or is explicit."""
        return self.info(ledger_id, self.last_entry)

    def info(self, ledger_id: int, last_entry: Callable[[int], bytes | None]) -> LedgerInfo | None:
        """The same for a store around this one, which knows better which entry is the last."""
        if ledger_id not in self.cache:
            return None
        header = self.cache.header(ledger_id)

        return LedgerInfo(
            header.master_key,
            header.fenced,
            header.in_limbo,
            self._lacs.get(ledger_id, last_entry, header.explicit_lac),
        )

    def last_entry(self, ledger_id: int) -> bytes | None:
        """The entry with the highest id, read at once."""
        entry_id = self.cache.last_entry(ledger_id)
        if entry_id < 0:
            return None
        return self.logger.read_now(ledger_id, entry_id, self.cache.get(ledger_id, entry_id))

    def set_master_key(self, ledger_id: int, master_key: bytes) -> None:
        """Create the ledger, or give it its key."""
        self.cache.create(ledger_id, master_key)

    def set_fenced(self, ledger_id: int) -> bool:
        """Fence the ledger."""
        return self.cache.set_fenced(ledger_id)

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether the ledger's content is uncertain."""
        if ledger_id not in self.cache:
            self.cache.create(ledger_id, None)
        self.cache.set_limbo(ledger_id, in_limbo=in_limbo)

    def set_explicit_lac(self, ledger_id: int, lac: int, body: bytes) -> None:
        """Keep the packet."""
        self.cache.set_explicit_lac(ledger_id, body)
        self._lacs.load(ledger_id, body)
        self._lacs.rose(ledger_id, lac)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The packet kept last."""
        return self._lacs.load(ledger_id, self.cache.header(ledger_id).explicit_lac)

    def ledger_ids(self) -> list[int]:
        """All ledgers, ascending."""
        return self.cache.ledger_ids()

    def delete_ledger(self, ledger_id: int) -> None:
        """Forget the ledger; its entries stay in the logs until these are compacted."""
        self.cache.delete(ledger_id)
        self._lacs.drop(ledger_id)
        self._runs.drop(ledger_id)

    # -------------------------------------------------------------------------------------------------------- entries

    def add_entry(self, ledger_id: int, entry_id: int, body: bytes) -> None:
        """Append the entry and set its location; an earlier copy is left behind."""
        self.process(ledger_id, entry_id, body, rolls=True)
        self.came(ledger_id, entry_id, body)

    def process(self, ledger_id: int, entry_id: int, body: bytes, *, rolls: bool) -> None:
        """The same for a store around this one, which tells of entries itself."""
        self._was_written = True
        self.cache.put(ledger_id, entry_id, self.logger.add(ledger_id, body, rolls=rolls))

    def came(self, ledger_id: int, entry_id: int, body: bytes) -> None:
        """An entry is stored, here or in the store around this one."""
        self._lacs.rose(ledger_id, lac_of(body))
        self._runs.came(ledger_id, entry_id)

    def read_entry(self, ledger_id: int, entry_id: int, on_read: ReadCallback, token: object) -> None:
        """Look up the location of an entry, then read it there."""
        try:
            self.cache.needs_file(ledger_id)
            if entry_id == LAST_ENTRY:
                entry_id = self.cache.last_entry(ledger_id)
            location = self.cache.get(ledger_id, entry_id) if entry_id >= 0 else 0
        except StorageIOError as error:
            on_read(token, None, error)
            return
        if location == 0:
            on_read(token, None, None)
        else:
            self.logger.read(ledger_id, entry_id, location, on_read, token)

    def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids that have a location."""
        return [entry_id for entry_id, _ in self.cache.entries(ledger_id)]

    def count_runs(self, ledger_id: int) -> int:
        """How many runs there are."""
        return self._runs.count(ledger_id, partial(self.entry_ids, ledger_id))

    def entry_runs(self, ledger_id: int) -> tuple[array[int], array[int]]:
        """The first and the last ids of the runs."""
        return self._runs.runs(ledger_id, partial(self.entry_ids, ledger_id))

    # ------------------------------------------------------------------------------------------------------- flushing

    def checkpoint(self, checkpoint: Checkpoint, on_done: DurableCallback, token: object) -> None:  # noqa: ARG002  rotated before
        """Make the index and the rotated logs durable."""
        self._flush(self.logger.checkpoint, on_done, token)

    def flush(self, on_done: DurableCallback, token: object) -> None:
        """Make the index and all logs durable."""
        if Quirk.IDLE_FLUSH_SKIPPED in self._quirks and not self._was_written:
            asyncio.get_running_loop().call_soon(on_done, token, None)
            return
        self._was_written = False
        self._flush(self.logger.flush, on_done, token)

    def move_entries(
        self,
        log_id: int,
        ledger_ids: Collection[int],
        moved: list[tuple[int, int, int]],
        on_done: DurableCallback,
        token: object,
        *,
        are_durable: bool = False,
    ) -> None:
        """Have entries of a log found where they were copied to: ``(ledger, entry, location)``.

        The copies are made durable first, unless they are, then the locations, but for those that do not point to the log any
        more. So are all locations of ``ledger_ids``, those with entries in the log: a bookie that was killed may have left some
        that lead elsewhere in the page cache alone.
        """

        def set_locations(go_on: DurableCallback) -> None:
            self._step("move.locations")
            try:
                for ledger_id, entry_id, location in moved:
                    if ledger_id in self.cache:
                        self.cache.move(ledger_id, entry_id, log_id, location)
                self.cache.doubt(ledger_ids)
            except StorageIOError as error:
                go_on(None, error)
            else:
                go_on(None, None)

        def flush_logs(go_on: DurableCallback) -> None:
            self.logger.flush(go_on, None)

        def flush_index(go_on: DurableCallback) -> None:
            self._step("move.index")
            self.cache.flush(go_on, None)

        first = [] if are_durable else [flush_logs]
        self._queue_flush([*first, set_locations, flush_index], on_done, token)

    def _flush(
        self, flush_logs: Callable[[DurableCallback, object], None], on_done: DurableCallback, token: object
    ) -> None:
        failed: list[StorageError] = []

        def tried(flush: Callable[[DurableCallback, object], None], name: str) -> WaitingStep:
            """A step that does not keep the next one from being tried."""

            def finish(go_on: DurableCallback, error: StorageError | None) -> None:
                if error is not None:
                    failed.append(error)
                go_on(None, None)

            def start(go_on: DurableCallback) -> None:
                self._step(name)
                flush(finish, go_on)

            return start

        def settle(go_on: DurableCallback) -> None:
            """Before the index: entries that were stored again are found at their new places when these are durable."""
            copies = self.cache.unsettled()
            if not copies:
                go_on(None, None)
                return

            def synced(_token: object, error: StorageError | None) -> None:
                if error is None:
                    try:
                        self.cache.settle(copies)
                    except StorageIOError as failure:
                        error = failure
                if error is not None:
                    failed.append(error)
                go_on(None, None)

            self._step("flush.copies")
            self.logger.flush(synced, None)

        def end(go_on: DurableCallback) -> None:
            self._step("flush.done")
            go_on(None, failed[0] if failed else None)

        self._queue_flush(
            [settle, tried(self.cache.flush, "flush.index"), tried(flush_logs, "flush.logs"), end], on_done, token
        )

    def _queue_flush(self, steps: list[WaitingStep], on_done: DurableCallback, token: object) -> None:
        """Begin when what was asked for before is done."""
        self._flushes.append((steps, on_done, token))
        if len(self._flushes) == 1:
            self._flushing = Sequence(steps, self._flushed, None)

    def _flushed(self, _token: object, error: StorageError | None) -> None:
        _, on_done, token = self._flushes.popleft()
        self._flushing = Sequence(self._flushes[0][0], self._flushed, None) if self._flushes else None
        on_done(token, error)
