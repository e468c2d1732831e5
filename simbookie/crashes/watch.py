"""What is looked at while a bookie runs: at every step, with every answer, after every run of its garbage collector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simbookie.crashes import after
from simbookie.storage.base import StorageError
from simbookie.storage.entry_logs.format import log_id_of
from simbookie.storage.entry_logs.scan import scan
from simbookie.storage.ledger_store import CollectedStore
from simbookie.storage.sorted import SortedLedgerStore

if TYPE_CHECKING:
    from simbookie.crashes.subject import Subject

__all__ = ["Watch"]

_Log = tuple[int, int]
"""The part of a store that a log is of, and its id."""

#: BookKeeper's bookies let an add wait for so long, and poll each millisecond.
THROTTLE_MAX_S = 10.001


class Watch:
    """Implements :class:`simbookie.observer.BookieObserver`, and is told of steps."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.restart()

    def restart(self) -> None:
        """Another life begins."""
        self._flushes = 0
        self._lacs: dict[int, int] = {}
        self._compactions: dict[int, tuple[int, int]] = {}
        self._before_removal: tuple[set[_Log], set[_Log]] | None = None
        self._written_from: dict[int, int] | None = None

    # ---------------------------------------------------------------------------------------------------------- steps

    def step(self, name: str) -> None:
        """A step comes next."""
        subject = self._subject
        self.removed_logs()
        if name == "flush.index":
            self._flushes += 1
            if self._flushes > 1:
                subject.violated("I12", "two flushes are under way")
        elif name == "flush.done":
            self._flushes -= 1
        elif name == "log.remove":
            self._before_removal = (self._logs(), self._logs_in_use())
        elif name in ("memtable.write", "memtable.written"):
            self.flush_order(name)
        for journal in subject.storage.journals:
            bound = 2 * subject.settings.journal.queue_size  # as many again may be taken out and not written yet
            if journal.queued > bound:
                subject.violated("I16", f"{journal.queued} records are queued, {bound} at most may be")
        store = subject.storage.store
        if isinstance(store, SortedLedgerStore) and store.taken_bytes > 2 * store.config.memtable_bytes:
            subject.violated("I16", f"memtables have {store.taken_bytes} bytes")

    @property
    def _parts(self) -> Sequence[CollectedStore]:
        return self._subject.storage.store.collected

    def flush_order(self, name: str) -> None:
        """I8: between the two steps, records of each active log ascend."""
        logs = self._parts[0].logger.active.all  # a store with memtables has one part
        if name == "memtable.write":
            self._written_from = {log.log_id: log.position for log in logs}
            return
        before, self._written_from = self._written_from, None
        for log in logs:
            if before is None or log.log_id not in before:
                continue  # in two logs, or in none that is still written
            entries = _entries(log.content(), before[log.log_id])
            keys = [(int.from_bytes(entry[:8]), int.from_bytes(entry[8:16])) for entry in entries]
            if keys != sorted(keys):
                self._subject.violated("I8", f"a memtable was written out of order: {keys}")

    def _logs(self) -> set[_Log]:
        return {(number, log_id) for number, part in enumerate(self._parts) for log_id in part.logger.ids()}

    def _logs_in_use(self) -> set[_Log]:
        """Logs that locations of ledgers that exist lead to, in memory, or durably where no journal has the entry."""
        subject = self._subject
        # a location of an entry that was not acknowledged may lead nowhere since a power loss
        used = {
            (number, log_id_of(location))
            for key in subject.promises.entries
            for number, part in enumerate(self._parts)
            for location in part.places(*key)
            if self._leads_to_entry(part, *key, location)
        }
        return used | after.logs_durably_in_use(subject)

    def _leads_to_entry(self, part: CollectedStore, ledger_id: int, entry_id: int, location: int) -> bool:
        """Whether the entry is there. It may never have come to be before a power loss, and was stored again elsewhere."""
        try:
            part.logger.read_now(ledger_id, entry_id, location)
        except StorageError:
            return False
        return True

    def removed_logs(self) -> None:
        """I10: what went since the last step was in use by nobody."""
        before, self._before_removal = self._before_removal, None
        if before is None:
            return
        gone = before[0] - self._logs()
        for _, log_id in sorted(gone & before[1]):
            self._subject.violated("I10", f"entry log {log_id:x} was removed while locations lead to it")

    # -------------------------------------------------------------------------------------------------------- answers

    def add_waited(self, seconds: float) -> None:
        """I13: an add waited for room."""
        if seconds > THROTTLE_MAX_S:
            self._subject.violated("I13", f"an add waited {seconds:.3f} s for room")

    def lac_told(self, ledger_id: int) -> None:
        """I17: what the bookie tells of a ledger's LAC."""
        try:
            info = self._subject.storage.ledger(ledger_id)
        except StorageError:
            return
        if info is not None:
            if info.lac < self._lacs.get(ledger_id, -1):
                text = f"the LAC of ledger {ledger_id} fell from {self._lacs[ledger_id]} to {info.lac}"
                self._subject.violated("I17", text)
            self._lacs[ledger_id] = info.lac

    def collected(self, now: float) -> None:
        """I18: a run of the garbage collector ended."""
        garbage = self._subject.storage.garbage
        if garbage is None:
            return
        for number, collector in enumerate(garbage.collectors):
            stats, before = collector.stats, self._compactions.get(number, (0, 0))
            major, minor = stats.major_compactions - before[0], stats.minor_compactions - before[1]
            self._compactions[number] = (stats.major_compactions, stats.minor_compactions)
            if major + minor > 1:
                self._subject.violated("I18", f"one run compacted {major + minor} times")
            schedule = collector.schedule
            if major and not schedule.last_major == schedule.last_minor <= now:
                self._subject.violated("I18", "major compaction did not set both timers")

    def before_crash(self) -> None:
        """The bookie is about to be killed."""
        self.removed_logs()
        checkpoints = self._subject.storage.checkpoints
        if checkpoints is not None and checkpoints.done:  # what was read at the start need not be durable
            self._subject.persisted = [(mark.file_id, mark.offset) for mark in checkpoints.persisted]
        after.marks_are_durable(self._subject)

    # ------------------------------------------------------------------------------------------------------- observer

    def ledger_deleted(self, ledger_id: int) -> None:
        """I11: a ledger was collected."""
        if ledger_id in self._subject.promises.ledgers:
            self._subject.violated("I11", f"ledger {ledger_id} was collected although it has metadata")

    def entry_stored(self, ledger_id: int, entry_id: int, body: bytes, recovery: bool, source: str) -> None:  # noqa: FBT001
        """Of no interest, as what follows."""

    def entry_synced(self, ledger_id: int, entry_id: int) -> None:
        """The same."""

    def lac_advanced(self, ledger_id: int, lac: int) -> None:
        """The same."""

    def fence_set(self, ledger_id: int, source: str, durable: bool) -> None:  # noqa: FBT001
        """The same."""

    def limbo_changed(self, ledger_id: int, in_limbo: bool) -> None:  # noqa: FBT001
        """The same."""

    def entry_lost(self, ledger_id: int, entry_id: int, detail: str) -> None:
        """The same: promises are kept elsewhere."""

    def fence_forgotten(self, ledger_id: int, detail: str) -> None:
        """The same."""

    def crashed(self, clean: bool, detail: str) -> None:  # noqa: FBT001
        """The same."""

    def restarted(self, incarnation: int, detail: str) -> None:
        """The same."""


class _Content:
    """Bytes of a log, buffered ones included, as a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read_now(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


def _entries(content: bytes, start: int) -> Iterator[bytes]:
    return (
        record.entry for record in scan(_Content(content), lambda ledger_id: ledger_id >= 0) if record.offset >= start
    )
