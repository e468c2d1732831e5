"""The sync thread of a bookie: flushes and checkpoints of its ledger store, one at a time, and the marks after each.

A checkpoint is done in this order: the store makes durable what it had when the checkpoint was taken, the marks are written, and
journal files that nobody needs any more are removed. If the store fails, the marks stay where they are, and the next checkpoint
makes up for it. A mark never goes back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simbookie.storage.base import StorageError
from simbookie.storage.folders import Folder
from simbookie.storage.journal.journal import Journal
from simbookie.storage.journal.mark import LogMark, mark_name, write_mark
from simbookie.storage.journal.replay import remove_old_files
from simbookie.storage.ledger_store import Checkpoint, LedgerStore, OnStep, no_step
from simbookie.storage.quirks import Quirk
from simbookie.storage.sequence import Sequence as Steps

__all__ = ["Checkpoints"]


@dataclass(slots=True, eq=False)
class _Job:
    checkpoint: Checkpoint
    #: Everything is flushed, not only what the checkpoint covers; no file is removed, and this is called in the end.
    on_flushed: Callable[[], None] | None = None


class Checkpoints:
    """Flushes ``store`` and keeps the marks of the journals in ``journal_folders``, copies of which are in ``mark_folders``.

    Steps: ``checkpoint.store``, ``checkpoint.marks``, ``checkpoint.done``, and those of marks and of removing files.
    """

    def __init__(
        self,
        store: LedgerStore,
        journal_folders: Sequence[Folder],
        mark_folders: Sequence[Folder],
        persisted: Sequence[LogMark],
        *,
        backups_max: int,
        quirks: frozenset[Quirk],
        on_step: OnStep = no_step,
        on_failed: Callable[[StorageError], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._journal_folders = journal_folders
        self._mark_folders = mark_folders
        #: The marks on disk.
        self.persisted = list(persisted)
        self._backups_max = backups_max
        self._quirks = quirks
        self._step = on_step
        self._on_failed = on_failed
        self._jobs: deque[_Job] = deque()
        self._running: _Job | None = None
        self._marks: Steps | None = None
        #: The look at the next journal, while a checkpoint is taken that is due.
        self._looking: asyncio.Handle | None = None
        self._is_alive = True
        #: How many were done, and how many failed.
        self.done = 0
        self.failed = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or waits."""
        return self._running is None and not self._jobs

    def request(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint when it is its turn; must not be called from within a call of the store but by :meth:`run`'s."""
        self._jobs.append(_Job(checkpoint))

    def due(self, journals: Sequence[Journal], gap_s: float) -> None:
        """Make a checkpoint at the marks of ``journals``, looked at one after the other with ``gap_s`` seconds in between."""
        if self._looking is None:
            self._look(journals, gap_s, ())

    def _look(self, journals: Sequence[Journal], gap_s: float, taken: Checkpoint) -> None:
        self._looking = None
        while len(taken) < len(journals):
            mark = journals[len(taken)].mark
            taken = (*taken, (mark.file_id, mark.offset))
            if gap_s > 0 and len(taken) < len(journals):
                self._looking = asyncio.get_running_loop().call_later(gap_s, self._look, journals, gap_s, taken)
                return
        self.request(taken)
        self.run()

    def _look_no_more(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def flush(self, checkpoint: Checkpoint, on_flushed: Callable[[], None]) -> None:
        """Flush everything, then have ``on_flushed`` called, whether that went well or not."""
        self._look_no_more()
        self._jobs.append(_Job(checkpoint, on_flushed))
        self.run()

    def run(self) -> None:
        """Begin with what waits, unless something is under way."""
        if self._running is not None or not self._jobs or not self._is_alive:
            return
        job = self._running = self._jobs.popleft()
        self._step("checkpoint.store")
        if job.on_flushed is not None:
            self._store.flush(self._stored, job)
        else:
            self._store.checkpoint(job.checkpoint, self._stored, job)

    def crash(self) -> None:
        """Stop dead."""
        self._is_alive = False
        self._look_no_more()
        if self._marks is not None:
            self._marks.cancel()

    def _stored(self, job: _Job, error: StorageError | None) -> None:
        if not self._is_alive:
            return
        if error is not None:
            self._finish(job, error)
            return
        self._step("checkpoint.marks")
        self._write_mark(job, 0)

    def _write_mark(self, job: _Job, index: int) -> None:
        """Write the mark of one journal, then of the next."""
        while index < len(self._journal_folders) and LogMark(*job.checkpoint[index]) < self.persisted[index]:
            index += 1
        if index == len(self._journal_folders):
            self._finish(job, None)
            return
        mark = LogMark(*job.checkpoint[index])

        def written(_token: object, error: StorageError | None) -> None:
            self._marks = None
            if error is not None:
                self._finish(job, error)
                return
            self.persisted[index] = mark
            if job.on_flushed is None:
                self._remove_old_files(index)
            self._write_mark(job, index + 1)

        self._marks = write_mark(
            self._mark_folders,
            mark_name(index, len(self._journal_folders)),
            mark,
            written,
            None,
            on_step=self._step,
            ignore_errors=Quirk.MARK_ERRORS_IGNORED in self._quirks,
            sync_folders=Quirk.FOLDERS_UNSYNCED not in self._quirks,
            in_place=Quirk.MARKS_IN_PLACE in self._quirks,
        )

    def _remove_old_files(self, index: int) -> None:
        try:
            remove_old_files(self._journal_folders[index], self.persisted[index], self._backups_max, self._step)
        except StorageError:
            return  # they go with a later checkpoint

    def _finish(self, job: _Job, error: StorageError | None) -> None:
        if error is not None:
            self.failed += 1
            self._on_failed(error)
        else:
            self._step("checkpoint.done")
            self.done += 1
        self._running = None
        if job.on_flushed is not None:
            job.on_flushed()
        self.run()
