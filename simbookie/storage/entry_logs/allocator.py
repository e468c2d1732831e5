"""Ids and files for new entry logs.

Ids count up from one start of a bookie to the next; an id that has a file is never given out. The next log's file is there before
it is needed, and empty until then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from simbookie.storage.base import StorageIOError
from simbookie.storage.entry_logs.compaction_log import CompactionLog
from simbookie.storage.entry_logs.config import DIRECT_WRITE_BUFFERS, EntryLogConfig
from simbookie.storage.entry_logs.direct_log import DirectLog
from simbookie.storage.entry_logs.format import (
    LAST_ID_FILE,
    compacted_ids,
    compacting_name,
    decode_last_id,
    encode_last_id,
    id_after,
    is_compacting,
    last_id_in,
    log_ids,
    log_name,
    parse_compacted_name,
)
from simbookie.storage.entry_logs.log import WritableLog
from simbookie.storage.folders import Folder, Folders, Room
from simbookie.storage.quirks import Quirk
from simbookie.storage.steps import OnStep

__all__ = ["LogAllocator"]

_NONE_GIVEN: Final = -1


class LogAllocator:
    """Makes the logs of one store. ``crowd`` says how many logs a folder has already, where new ones go to the emptiest."""

    def __init__(
        self,
        folders: Folders,
        config: EntryLogConfig,
        crowd: Callable[[Folder], int] | None,
        on_step: OnStep,
        quirks: frozenset[Quirk],
    ) -> None:
        self._folders = folders
        self._config = config
        self._crowd = crowd
        self._step = on_step
        self._quirks = quirks
        self._room = Room(config.full_above, config.reserve(is_smaller=Quirk.SMALLER_RESERVE in quirks))
        self._last_id = _NONE_GIVEN
        self._next: WritableLog | None = None

    def open(self) -> int:
        """Find out which ids were given out; returns the last."""
        self._last_id = max(map(_last_id_of, self._folders.all))
        return self._last_id

    def forget(self) -> WritableLog | None:
        """Forget the log that was made in advance, and return it."""
        log, self._next = self._next, None
        return log

    def prepare(self) -> WritableLog:
        """The next log, made now if it was not in advance. It is the next until it is taken."""
        if self._next is None:
            folder, log_id = self._next_id()
            self._next = self._new_log(folder, log_id, log_name(log_id))
        return self._next

    def take(self) -> WritableLog:
        """The next log, which is in use from now on."""
        log = self.prepare()
        self._next = None
        return log

    def prepare_in_advance(self) -> WritableLog | None:
        """Make the next log, if logs are made in advance and it can be."""
        if not self._config.preallocates or self._config.direct is not None:
            return None
        with suppress(StorageIOError):  # tried again when it is needed
            return self.prepare()
        return None

    def _next_id(self) -> tuple[Folder, int]:
        """An id that has no file, given out now, and the folder for its log."""
        folder = self._folders.choose(self._crowd, self._room)
        log_id = id_after(self._last_id)
        while self._folders.find(log_name(log_id)) is not None:
            log_id = id_after(log_id)
        self._last_id = log_id
        return folder, log_id

    def _new_log(self, folder: Folder, log_id: int, name: str) -> WritableLog:
        file = folder.create(name)
        self._step("log.allocated")
        try:
            for each in self._folders.all:
                each.write_small(LAST_ID_FILE, encode_last_id(log_id))
            direct = self._config.direct
            if direct is not None:
                return DirectLog(
                    log_id,
                    folder,
                    file,
                    buffer_bytes=direct.write_bytes // DIRECT_WRITE_BUFFERS,
                    tells_first=Quirk.EMPTY_MAP_BELIEVED in self._quirks,
                    on_step=self._step,
                )
            return WritableLog(
                log_id,
                folder,
                file,
                buffer_bytes=self._config.write_buffer_bytes,
                shifts=Quirk.SHIFTED_AFTER_PARTIAL_WRITE in self._quirks,
            )
        except StorageIOError:
            file.close()
            with suppress(StorageIOError):  # the error told is the first
                folder.discard(name)
            raise

    def begin_compaction(self, source_id: int) -> CompactionLog:
        """A log for what is alive in another one, under a name that logs do not have."""
        folder, log_id = self._next_id()
        log = self._new_log(folder, log_id, compacting_name(log_id))
        return CompactionLog(log_id, source_id, folder, log)

    def unfinished_compactions(self) -> list[CompactionLog]:
        """Those that were complete when their bookie died, ascending; what of others is left is removed."""
        found = []
        for folder in self._folders.all:
            for name in folder.names():
                if is_compacting(name):
                    folder.remove(name)
                ids = parse_compacted_name(name)
                if ids is not None:
                    in_decimal = Quirk.DECIMAL_LOG_NAMES in self._quirks
                    found.append(CompactionLog(*ids, folder, None, final_name=f"{ids[0]}.log" if in_decimal else None))
        return sorted(found, key=lambda log: log.log_id)


def _last_id_of(folder: Folder) -> int:
    """The id given out last in a folder: what its ``lastId`` says, unless a file there has a higher one."""
    names = folder.names()
    said = decode_last_id(folder.read_small(LAST_ID_FILE) or b"")
    if not said:
        said = max(log_ids(names), default=-1)
    return max(said, last_id_in([*log_ids(names), *compacted_ids(names)]))
