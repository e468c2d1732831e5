"""What a bookie that starts does with its journals, and which files it may let go.

Files are read in the order of their ids, that of the mark from the mark on. A mark that names a file which is not there means
that records are missing, and then nothing is replayed at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from simbookie.storage.base import DurableCallback, StorageError, StorageIOError
from simbookie.storage.folders import Folder
from simbookie.storage.journal.mark import LogMark
from simbookie.storage.journal.reader import JournalScan
from simbookie.storage.journal.records import JournalFormatError, JournalRecord, file_id_of, file_name, parse_body
from simbookie.storage.ledger_store import OnStep, no_step
from simbookie.storage.sequence import WaitingStep

__all__ = ["JournalReplay", "file_ids", "remove_old_files", "surviving_records", "sync_files"]


def file_ids(folder: Folder) -> list[int]:
    """The ids of the journal files in ``folder``, ascending."""
    return sorted(file_id for name in folder.names() if (file_id := file_id_of(name)) is not None)


class JournalReplay:
    """The records after ``mark``: iterate over it. ``mark`` follows, file by file.

    :class:`~simbookie.storage.base.StorageIOError` if the file of the mark is missing, or for a damaged file; with
    ``skip_invalid`` a damaged file is given up at the damage.
    """

    def __init__(self, folder: Folder, mark: LogMark, *, skip_invalid: bool = False) -> None:
        self.folder = folder
        self.mark = mark
        #: The files that were read to their end.
        self.files: list[int] = []
        self._skip_invalid = skip_invalid

    def __iter__(self) -> Iterator[JournalRecord]:
        """The records in order."""
        start = self.mark
        ids = [file_id for file_id in file_ids(self.folder) if file_id >= start.file_id]
        if start.file_id > 0 and (not ids or ids[0] != start.file_id):
            raise StorageIOError(f"journal {file_name(start.file_id)} is missing in {self.folder.path}")
        for file_id in ids:
            yield from self._file(file_id, start.offset if file_id == start.file_id else 0)

    def _file(self, file_id: int, position: int) -> Iterator[JournalRecord]:
        file = self.folder.open(file_name(file_id))
        try:
            scan = JournalScan(file, position)
            try:
                for _, body in scan:
                    yield parse_body(body, scan.version)
            except JournalFormatError:
                if not self._skip_invalid:
                    raise
        except JournalFormatError as error:
            raise StorageIOError(f"{file.path}: {error}") from error
        finally:
            file.close()
        self.mark = LogMark(file_id, scan.position)
        self.files.append(file_id)


def sync_files(folder: Folder, ids: Iterable[int]) -> Iterator[WaitingStep]:
    """Make files durable that were replayed, content and name."""

    def sync(file_id: int, on_done: DurableCallback) -> None:
        try:
            file = folder.open(file_name(file_id))
        except StorageError as error:
            on_done(None, error)
            return
        file.sync(on_done, None)
        file.close()

    for file_id in ids:
        yield partial(sync, file_id)
    yield folder.sync


def remove_old_files(folder: Folder, mark: LogMark, backups_max: int, on_step: OnStep = no_step) -> list[int]:
    """Remove the files before ``mark`` but the newest ``backups_max``; returns the ids. Step: ``journal.remove`` for each."""
    old = [file_id for file_id in file_ids(folder) if file_id < mark.file_id]
    gone = old[: max(0, len(old) - backups_max)]
    for file_id in gone:
        on_step("journal.remove")
        folder.remove(file_name(file_id))
    return gone


def surviving_records(folder: Folder, mark: LogMark) -> list[JournalRecord]:
    """The records that a replay would find; none if it fails."""
    try:
        return list(JournalReplay(folder, mark, skip_invalid=True))
    except StorageIOError:
        return []
