"""A log that takes what is alive in another one, and becomes a log like others when it is complete.

Its names tell how far it is: ``ID.log.compacting`` while it is filled, ``ID.log.SOURCE.compacted`` from when it is complete
and durable until the source is not needed any more, and ``ID.log`` beside that from when entries may be read from it. So a
compaction that is interrupted is begun anew, or taken up where locations are set.
"""

from __future__ import annotations

from simbookie.storage.base import DurableCallback, StorageIOError
from simbookie.storage.entry_logs.format import compacted_name, compacting_name, log_name
from simbookie.storage.entry_logs.log import WritableLog
from simbookie.storage.folders import Folder

__all__ = ["CompactionLog"]


class CompactionLog:
    """The log ``log_id`` in ``folder``, made of ``source_id``; ``log`` is ``None`` if it was complete before."""

    def __init__(
        self, log_id: int, source_id: int, folder: Folder, log: WritableLog | None, *, final_name: str | None = None
    ) -> None:
        self.log_id = log_id
        self.source_id = source_id
        self.folder = folder
        self._log = log
        self._compacting = compacting_name(log_id)
        self._compacted = compacted_name(log_id, source_id)
        self._final = final_name if final_name is not None else log_name(log_id)

    def add(self, ledger_id: int, entry: bytes) -> int:
        """Append an entry; returns its location."""
        assert self._log is not None, "complete"
        return self._log.append(ledger_id, entry)

    def flush(self, on_done: DurableCallback) -> None:
        """Complete the log, and make it durable."""
        assert self._log is not None, "complete"
        log, self._log = self._log, None
        try:
            log.seal()
        except StorageIOError as error:
            on_done(None, error)
        else:
            log.file.sync(on_done, None)
        log.file.close()

    def mark_compacted(self) -> None:
        """Name it as complete."""
        self.folder.link(self._compacting, self._compacted)
        self.folder.discard(self._compacting)

    def make_available(self) -> None:
        """Name it as a log that may be read."""
        self.folder.link(self._compacted, self._final)

    def finish(self) -> None:
        """Let the log be one like others."""
        self.folder.discard(self._compacted)

    def abort(self) -> None:
        """Remove what there is of it; it was not available yet."""
        if self._log is not None:
            self._log.file.close()
            self._log = None
        self.folder.discard(self._compacting)
        self.folder.discard(self._compacted)
