"""The index files in the folders of a store, as they are found when it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simbookie.storage.folders import Folder, Folders
from simbookie.storage.indexes.index_file import ledger_of

__all__ = ["index_files"]

_RELOCATED: Final = ".rloc"


def index_files(folders: Folders) -> Iterator[tuple[int, Folder, str]]:
    """Of each index file its ledger, its folder, and where it is below that.

    A file that was being moved to another folder is given its name, or removed if the ledger has a file already.
    """
    for folder in folders.all:
        for upper in folder.disk.folders(folder.path):
            for lower in folder.disk.folders(folder.file(upper)):
                below = f"{upper}/{lower}"
                yield from ((ledger_id, folder, below) for ledger_id in _ledgers_in(folders, folder, below))


def _ledgers_in(folders: Folders, folder: Folder, below: str) -> Iterator[int]:
    names = folder.disk.names(folder.file(below))
    for name in names:
        final = name.removesuffix(_RELOCATED)
        if final != name:  # a file that was moved to another folder, and not given its name any more
            if final in names or folders.find(f"{below}/{final}") is not None:
                folder.remove(f"{below}/{name}")
                continue
            folder.disk.rename(folder.file(f"{below}/{name}"), folder.file(f"{below}/{final}"))
        ledger_id = ledger_of(final)
        if ledger_id is not None:
            yield ledger_id
