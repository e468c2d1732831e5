"""A bookie's storage on disk: journals in front of a ledger store.

What is stored goes into the store first, where it can be read at once, and into the journal of its ledger second, which says
when it is durable. Checkpoints (:mod:`simbookie.storage.checkpoints`) make the store durable and let the journals go. A start
reads the marks, replays the journals from there into the store, flushes it, and only then serves.

A ledger's journal is chosen by its id. Before the first record of a ledger since the start its key is journalled, because a
replay of journals has nowhere else to find it.

A full store refuses (:class:`~simbookie.storage.base.WriteCacheFull`) where in BookKeeper a thread of the bookie would wait; so
does a disk without space. A journal whose disk fails ends the storage: everything that waits fails, and so does what comes.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence

from simbookie.storage.base import (
    Capacity,
    CrashMode,
    CrashReport,
    DurableCallback,
    LedgerInfo,
    NoSpace,
    ReadCallback,
    SpaceListener,
    StorageError,
    WriteCacheFull,
)
from simbookie.storage.checkpoints import Checkpoints
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.compaction.runs import CollectorRuns
from simbookie.storage.disk.base import Disk
from simbookie.storage.folders import Folder
from simbookie.storage.journal.journal import Journal
from simbookie.storage.journal.mark import LogMark, mark_name, read_mark
from simbookie.storage.journal.records import (
    EXPLICIT_LAC_ID,
    FENCE_ID,
    KEY_ID,
    explicit_lac_body,
    fence_body,
    key_body,
)
from simbookie.storage.journal.replay import JournalReplay, surviving_records
from simbookie.storage.journal.settings import EXPLICIT_LAC_SINCE
from simbookie.storage.journal.watching import JournalWatcher
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.ledger_store import Checkpoint, LedgerStore, OnStep, no_step
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.replayer import REPLAY_WAIT_S, Replayer
from simbookie.storage.sequence import Sequence as Steps
from simbookie.storage.space import SpaceState, SpaceWatch, capacity_of

__all__ = ["JournaledStorage"]


class JournaledStorage:
    """Implements :class:`simbookie.storage.base.LedgerStorage`; see there for the meaning of the methods.

    There is a journal in each of ``journal_folders``; ``ledger_folders`` are those of ``store``, and hold the marks; it may
    have its indexes in ``index_folders``. ``clock_ms`` is the time of day, for the name of the first journal file. ``on_fatal``
    is told when a journal ends for an error, and may crash the storage. Steps are those of journals, checkpoints and marks,
    and ``open.replay``, ``open.sync``, ``open.flush``.
    """

    def __init__(
        self,
        journal_folders: Sequence[Folder],
        ledger_folders: Sequence[Folder],
        store: LedgerStore,
        config: JournaledConfig | None = None,
        *,
        clock_ms: Callable[[], int] = lambda: 0,
        quirks: frozenset[Quirk] = REPAIRED,
        on_fatal: Callable[[StorageError], None] | None = None,
        on_step: OnStep = no_step,
        index_folders: Sequence[Folder] = (),
    ) -> None:
        if not journal_folders or not ledger_folders:
            raise ValueError("storage: at least one folder for journals and one for ledgers are needed")
        self.config = config if config is not None else JournaledConfig()
        if self.config.journal.format_version < EXPLICIT_LAC_SINCE and Quirk.EXPLICIT_LAC_UNWRITTEN not in quirks:
            raise ValueError(
                "storage: a journal format below 6 has no explicit LACs; only a quirk acknowledges them there"
            )
        self.store = store
        self.journal_folders = tuple(journal_folders)
        self.ledger_folders = tuple(ledger_folders)
        self.index_folders = tuple(index_folders) or self.ledger_folders
        self._clock_ms = clock_ms
        self._quirks = quirks
        self._on_fatal = on_fatal
        self._step = on_step
        self._on_open: Callable[[], None] | None = None
        #: Who hears of the syncs of each journal, from the next start on.
        self.journal_watchers: Sequence[JournalWatcher] = ()
        #: Is told why a checkpoint could not be made.
        self.on_checkpoint_failed: Callable[[StorageError], None] | None = None
        self._shortage_listeners: dict[Callable[[], None], None] = {}
        self._forget()

    def _forget(self) -> None:
        self.journals: list[Journal] = []
        self.checkpoints: Checkpoints | None = None
        self._marks: list[LogMark] = []
        #: Ledgers whose keys are journalled since the mark of the start.
        self._keyed: set[int] = set()
        self._unjournalled: dict[tuple[int, int], None] = {}
        self._replayer: Replayer | None = None
        self._syncing: Steps | None = None
        self._space: SpaceWatch | None = None
        #: The garbage collectors of the store, while it serves.
        self.garbage: CollectorRuns | None = None
        #: What is scheduled, by what for.
        self._timers: dict[str, asyncio.Handle] = {}
        self._is_closing = False

    @property
    def has_high_priority_room(self) -> bool:
        """See :class:`LedgerStorage`."""
        return self._space is None or self._space.has_high_priority_room

    def _disks(self) -> list[Disk]:
        return list(dict.fromkeys(each.disk for each in (*self.journal_folders, *self.ledger_folders)))

    @property
    def acks_are_durable(self) -> bool:
        """See :class:`LedgerStorage`."""
        return self.config.journal.write_data and self.config.journal.sync_data

    # ----------------------------------------------------------------------------------------------------------- start

    def open(self, on_open: Callable[[], None], on_space: SpaceListener) -> None:
        """Replay the journals into the store; :class:`StorageIOError` if that is impossible."""
        assert self.checkpoints is None, "already open"
        self._on_open = on_open
        count = len(self.journal_folders)
        self._marks = [read_mark(self.ledger_folders, mark_name(index, count)) for index in range(count)]
        self.checkpoints = Checkpoints(
            self.store,
            self.journal_folders,
            self.ledger_folders,
            self._marks,
            backups_max=self.config.journal.backups_max,
            quirks=self._quirks,
            on_step=self._step,
            on_failed=self._checkpoint_failed,
        )
        self._space = SpaceWatch(self.config.space, self.ledger_folders, on_space, self._space_changed)
        try:
            self.store.open(self)
        except StorageError:
            self._forget()
            raise
        self._step("open.replay")
        skip_invalid = self.config.journal.skip_invalid_records
        marked = zip(self.journal_folders, self._marks, strict=True)
        replays = [JournalReplay(folder, mark, skip_invalid=skip_invalid) for folder, mark in marked]
        self._replayer = Replayer(replays, self.store, self._quirks)
        try:
            self._go_on_replaying()
        except StorageError:
            self.store.close()
            self._forget()
            raise

    def _go_on_replaying(self) -> None:
        """Apply records until the store is full, which calls back when it has room."""
        assert self._replayer is not None
        if not self._replayer.go_on():
            if Quirk.REPLAY_GIVES_UP in self._quirks:
                self._timers["room"] = asyncio.get_running_loop().call_later(REPLAY_WAIT_S, self._give_up_replaying)
            return
        if Quirk.REPLAYED_FILES_UNSYNCED in self._quirks:
            self._replayed(None, None)
        else:
            self._step("open.sync")
            self._syncing = Steps(self._replayer.syncs(), self._replayed, None)

    def _replayed(self, _token: object, error: StorageError | None) -> None:
        """Now marks may name what was replayed, if it is durable: a mark must not outlive its file."""
        assert self._replayer is not None
        replayer, self._replayer, self._syncing = self._replayer, None, None
        self._keyed = replayer.keyed
        if error is None:
            self._marks = [replay.mark for replay in replayer.replays]
        self._step("open.flush")
        assert self.checkpoints is not None
        self.checkpoints.flush(self.take_checkpoint(), self._flushed_after_replay)

    def _flushed_after_replay(self) -> None:
        """Whether it went well or not: without, the marks are where they were."""
        settings, count = self.config.journal, len(self.journal_folders)
        watchers: Sequence[JournalWatcher | None] = self.journal_watchers or [None] * count
        self.journals = [
            Journal(
                folder,
                settings,
                mark=mark,
                clock_ms=self._clock_ms,
                memory_bytes_max=settings.memory_share(count),
                quirks=self._quirks,
                on_failure=self._journal_failed,
                on_step=self._step,
                watcher=watcher,
            )
            for folder, mark, watcher in zip(self.journal_folders, self._marks, watchers, strict=True)
        ]
        for journal in self.journals:
            journal.start()
        compaction = self.config.compaction
        self.garbage = CollectorRuns(self.store.collected, compaction, on_step=self._step, quirks=self._quirks)
        if not self.store.asks_for_checkpoints:
            self._schedule_checkpoint()
        assert self._space is not None
        self._space.start()
        assert self._on_open is not None
        self._on_open()

    def _checkpoint_failed(self, error: StorageError) -> None:
        if self.on_checkpoint_failed is not None:
            self.on_checkpoint_failed(error)

    def _journal_failed(self, error: StorageError) -> None:
        if self._on_fatal is not None:
            self._on_fatal(error)

    # ------------------------------------------------------------------------------------------------------------- end

    def shutdown(self, on_closed: Callable[[], None]) -> None:
        """Drain the journals, flush the store, write the marks."""
        assert self.journals, "the storage is not open"
        self._is_closing = True
        self._cancel_timers()
        waiting = len(self.journals)

        def drained() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0:
                assert self.checkpoints is not None
                self.checkpoints.flush(self.take_checkpoint(), flushed)

        def flushed() -> None:
            self._later("close", closed)  # so that nothing of a checkpoint is further up the stack

        def closed() -> None:
            self.store.close()
            self._forget()
            on_closed()

        for journal in self.journals:
            journal.drain(drained)

    def crash(self, mode: CrashMode) -> CrashReport:
        """Die. The report names what no journal has; of that the store may have some after all.

        Of a storage that is not open the disks lose what was written to them, and there is nothing to tell.
        """
        if self.checkpoints is None:
            for disk in self._disks():
                disk.crash(mode)
            return CrashReport()
        self._cancel_timers()
        self.checkpoints.crash()
        unsynced = [key for journal in self.journals for key in journal.crash()]
        unjournalled, marks = list(self._unjournalled), list(self.checkpoints.persisted)
        for disk in self._disks():
            disk.crash(mode)
        self.store.crash(mode)
        self._forget()
        missing = dict.fromkeys(unsynced)
        if missing:
            for folder, mark in zip(self.journal_folders, marks, strict=True):
                for record in surviving_records(folder, mark):
                    missing.pop((record.ledger_id, record.entry_id), None)
        entries = [*unjournalled, *(key for key in missing if key[1] >= 0)]
        return CrashReport(tuple(entries), tuple(ledger_id for ledger_id, number in missing if number == FENCE_ID))

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._syncing is not None:
            self._syncing.cancel()
        if self._space is not None:
            self._space.stop()
        if self.garbage is not None:
            self.garbage.stop()

    # ------------------------------------------------------------------------------------------- what the store asks

    def take_checkpoint(self) -> Checkpoint:
        """How far the journals are synced, or replayed."""
        return tuple((m.file_id, m.offset) for m in [journal.mark for journal in self.journals] or self._marks)

    def request_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Make it in a later turn of the loop."""
        assert self.checkpoints is not None
        if not self._is_closing:
            self.checkpoints.request(checkpoint)
            self._later("checkpoint", self.checkpoints.run)

    def room_was_made(self) -> None:
        """Go on with the replay, if it waits."""
        if self._replayer is not None and self._replayer.waits_for_room:
            self._later("replay", self._resume_replay)

    def _give_up_replaying(self) -> None:
        self._journal_failed(WriteCacheFull(f"the replay found the store full for {REPLAY_WAIT_S:g} s"))

    def _resume_replay(self) -> None:
        self._stop_timer("room")
        try:
            self._go_on_replaying()
        except StorageError as error:
            self._journal_failed(error)

    def flush_failed(self, error: StorageError) -> None:  # noqa: ARG002  every reason is the same
        """Take no more writes."""
        if self._space is not None:
            self._space.fail()

    def _space_changed(self, states: Sequence[SpaceState]) -> None:
        if self.garbage is not None:
            self.garbage.space_changed(states, self._tell_of_shortage)

    def _tell_of_shortage(self) -> None:
        for listener in list(self._shortage_listeners):
            listener()

    def collect_garbage(
        self,
        on_done: DurableCallback,
        token: object,
        *,
        is_forced: bool = False,
        kinds: frozenset[CompactionKind] | None = None,
    ) -> None:
        """Run the collectors, one after the other."""
        garbage, space = self.garbage, self._space
        assert garbage is not None and space is not None and not self._is_closing, "the storage is not open"  # noqa: PT018

        def done(_token: object, error: StorageError | None) -> None:
            space.look(now=True)
            on_done(token, error)

        garbage.collect(done, None, is_forced=is_forced, kinds=kinds)

    def watch_shortage(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` when space runs out, if that is to start a forced run."""
        self._shortage_listeners[listener] = None
        return lambda: self._shortage_listeners.pop(listener, None)

    def _later(self, what: str, act: Callable[[], None]) -> None:
        self._stop_timer(what)
        self._timers[what] = asyncio.get_running_loop().call_soon(act)

    def _stop_timer(self, what: str) -> None:
        if what in self._timers:
            self._timers.pop(what).cancel()

    def _schedule_checkpoint(self) -> None:
        def due() -> None:
            self._schedule_checkpoint()
            assert self.checkpoints is not None
            self.checkpoints.due(self.journals, self.config.mark_gap_s)

        self._timers["interval"] = asyncio.get_running_loop().call_later(self.config.flush_interval_s, due)

    # ----------------------------------------------------------------------------------------------------------- writes

    def _journal(self, ledger_id: int) -> Journal:
        assert self.journals, "the storage is not open"
        assert not self._is_closing, "the storage is being closed"
        return self.journals[ledger_id % len(self.journals)]

    def _journal_key(self, journal: Journal, ledger_id: int) -> None:
        """Journal the ledger's key, once since the start."""
        if ledger_id in self._keyed:
            return
        info = self.store.ledger(ledger_id)
        if info is not None and info.master_key is not None:
            self._keyed.add(ledger_id)
            journal.append(ledger_id, KEY_ID, key_body(ledger_id, info.master_key), None, None)

    def set_master_key(self, ledger_id: int, master_key: bytes) -> None:
        """Create the ledger, or give it its key; journalled with what follows."""
        self.store.set_master_key(ledger_id, master_key)

    def add_entry(
        self,
        ledger_id: int,
        entry_id: int,
        body: bytes,
        on_durable: DurableCallback | None,
        token: object,
        on_written: DurableCallback | None = None,
    ) -> None:
        """Store and journal an entry."""
        journal = self._journal(ledger_id)
        assert self._space is not None
        try:
            self.store.add_entry(ledger_id, entry_id, body)
        except NoSpace:
            self._space.look(now=True)
            raise
        self._space.look()
        if ledger_id not in self._keyed:
            self._journal_key(journal, ledger_id)
        if self.config.journal.write_data:
            journal.append(ledger_id, entry_id, body, on_durable, token, on_written)
            return
        self._unjournalled[ledger_id, entry_id] = None
        for callback in (on_written, on_durable):
            if callback is not None:
                self._acknowledge(callback, token)

    def _acknowledge(self, callback: DurableCallback, token: object) -> None:
        """Call back in a later turn, unless the storage has crashed by then."""
        journals = self.journals

        def call() -> None:
            if self.journals is journals:
                callback(token, None)

        asyncio.get_running_loop().call_soon(call)

    def fence(self, ledger_id: int, on_durable: DurableCallback, token: object) -> None:
        """Fence the ledger."""
        journal = self._journal(ledger_id)
        self.store.set_fenced(ledger_id)
        if Quirk.KEYLESS_FENCES not in self._quirks:
            self._journal_key(journal, ledger_id)
        journal.append(ledger_id, FENCE_ID, fence_body(ledger_id), on_durable, token)

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether the ledger's content is uncertain; journals have no record of that, so it waits for a checkpoint."""
        self.store.set_limbo(ledger_id, in_limbo=in_limbo)

    def set_explicit_lac(
        self, ledger_id: int, lac: int, body: bytes, on_durable: DurableCallback, token: object
    ) -> None:
        """Keep the packet."""
        journal = self._journal(ledger_id)
        self.store.set_explicit_lac(ledger_id, lac, body)
        if Quirk.KEYLESS_FENCES not in self._quirks:
            self._journal_key(journal, ledger_id)
        journal.append(ledger_id, EXPLICIT_LAC_ID, explicit_lac_body(ledger_id, body), on_durable, token)

    def force(self, ledger_id: int, on_durable: DurableCallback, token: object) -> None:
        """Wait for the ledger's journal; fails if its queue is full."""
        if not self._journal(ledger_id).force(ledger_id, on_durable, token):
            asyncio.get_running_loop().call_soon(on_durable, token, StorageError("the queue of the journal is full"))

    def delete_ledger(self, ledger_id: int) -> None:
        """Forget the ledger; durable with the next checkpoint, until then a restart brings it back."""
        self.store.delete_ledger(ledger_id)
        self._keyed.discard(ledger_id)

    # ------------------------------------------------------------------------------------------------------------ reads

    def ledger(self, ledger_id: int) -> LedgerInfo | None:
        """What is known of a ledger."""
        return self.store.ledger(ledger_id)

    def read_entry(self, ledger_id: int, entry_id: int, on_read: ReadCallback, token: object) -> None:
        """Look up an entry."""
        self.store.read_entry(ledger_id, entry_id, on_read, token)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The packet kept last."""
        return self.store.explicit_lac(ledger_id)

    def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of the stored entries, ascending."""
        return self.store.entry_ids(ledger_id)

    def count_runs(self, ledger_id: int) -> int:
        """How many runs there are."""
        return self.store.count_runs(ledger_id)

    def entry_runs(self, ledger_id: int) -> tuple[array[int], array[int]]:
        """The first and the last ids of the runs."""
        return self.store.entry_runs(ledger_id)

    def ledger_ids(self) -> list[int]:
        """All ledgers, ascending."""
        return self.store.ledger_ids()

    def capacity(self) -> Capacity:
        """What the disks of the ledger folders have."""
        return capacity_of(self.ledger_folders)
