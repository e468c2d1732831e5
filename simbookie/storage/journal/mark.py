"""How far a journal is done with: up to its mark, everything is durable in the ledger store.

A mark is the id of a journal file and an offset in it. Its file, ``lastMark`` (``lastMark.0``, ``lastMark.1``, ... where there
are several journals), is in every ledger folder: 16 bytes. A copy that a crash cut short does not count, and of the others the
greatest does; without any a journal is replayed from its first file.

A mark is written to a file beside it, which takes its name when it is durable. BookKeeper cuts and writes it in place. A process
that is killed meanwhile leaves none, so its next life replays everything, which moves entries that were durable to a new place;
if the power fails before that is durable, the old mark is back, and the old place of these entries may be gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from simbookie.storage.base import DurableCallback, StorageError
from simbookie.storage.folders import Folder
from simbookie.storage.ledger_store import OnStep, no_step
from simbookie.storage.sequence import Sequence as Steps
from simbookie.storage.sequence import WaitingStep

__all__ = ["LogMark", "mark_name", "read_mark", "write_mark"]

_MARK: Final = Struct(">qq")
_BESIDE: Final = ".new"


class LogMark(NamedTuple):
    """A position in a journal; compared like any tuple."""

    file_id: int = 0
    offset: int = 0

    def encode(self) -> bytes:
        """The content of a mark's file."""
        return _MARK.pack(self.file_id, self.offset)

    @classmethod
    def decode(cls, data: bytes) -> LogMark | None:
        """The mark in a file's content; ``None`` if the file was cut short."""
        return cls(*_MARK.unpack_from(data)) if len(data) >= _MARK.size else None


def mark_name(index: int, journals: int) -> str:
    """The name of the mark's file of one of so many journals."""
    return "lastMark" if journals == 1 else f"lastMark.{index}"


def read_mark(folders: Sequence[Folder], name: str) -> LogMark:
    """The greatest mark of those in ``folders`` that can be read; the beginning if there is none."""
    found = LogMark()
    for folder in folders:
        try:
            data = folder.read_small(name)
        except StorageError:
            continue
        mark = LogMark.decode(data) if data is not None else None
        if mark is not None and mark > found:
            found = mark
    return found


class _Copies:
    """Writes the copies of one mark, one after the other."""

    def __init__(self, mark: LogMark, name: str, on_step: OnStep, *, sync_folders: bool, in_place: bool) -> None:
        self._data = mark.encode()
        self._name = name
        self._step = on_step
        self._sync_folders = sync_folders
        self._in_place = in_place
        self.written = 0
        self.error: StorageError | None = None

    def steps(self, folders: Sequence[Folder]) -> Iterator[WaitingStep]:
        for folder in folders:
            yield partial(self._write, folder)
            if self._sync_folders:
                yield partial(self._sync_folder, folder)

    def _write(self, folder: Folder, on_done: DurableCallback) -> None:
        name = self._name if self._in_place else self._name + _BESIDE
        try:
            self._step("mark.open")
            file = folder.open_or_create(name)
            self._step("mark.truncate")
            file.truncate(0)
            self._step("mark.write")
            file.write(0, self._data)
            self._step("mark.sync")
        except StorageError as error:
            self.error = error
            on_done(None, None)
            return

        def synced(_token: object, error: StorageError | None) -> None:
            file.close()
            if error is None and not self._in_place:
                error = self._renamed(folder, name)
            if error is None:
                self.written += 1
            else:
                self.error = error
            on_done(None, None)

        file.sync(synced, None)

    def _renamed(self, folder: Folder, name: str) -> StorageError | None:
        self._step("mark.rename")
        try:
            folder.rename(name, self._name)
        except StorageError as error:
            return error
        return None

    def _sync_folder(self, folder: Folder, on_done: DurableCallback) -> None:
        folder.sync(lambda _token, _error: on_done(None, None))


def write_mark(
    folders: Sequence[Folder],
    name: str,
    mark: LogMark,
    on_done: DurableCallback,
    token: object,
    *,
    on_step: OnStep = no_step,
    ignore_errors: bool = False,
    sync_folders: bool = True,
    in_place: bool = False,
) -> Steps:
    """Write the mark to every folder, one after the other; ``on_done`` gets an error if no copy was written.

    With ``ignore_errors`` it gets none; ``in_place`` writes it as BookKeeper does. Steps: ``mark.open``, ``mark.truncate``,
    ``mark.write``, ``mark.sync``, ``mark.rename``, for each folder.
    """
    copies = _Copies(mark, name, on_step, sync_folders=sync_folders, in_place=in_place)

    def done(_token: object, _error: StorageError | None) -> None:
        failed = copies.error if not copies.written and not ignore_errors else None
        on_done(token, failed)

    return Steps(copies.steps(folders), done, None)
