"""Which ledger store a bookie has behind its journals: BookKeeper's three, by name, by class, and by the files they leave."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from simbookie.storage.disk.base import Disk
from simbookie.storage.folders import Folder

__all__ = ["STORAGE_CLASS", "StoreKind"]

#: BookKeeper's key for the kind.
STORAGE_CLASS: Final = "ledgerStorageClass"
_PACKAGE: Final = "org.apache.bookkeeper.bookie."
_INDEX_SUFFIX: Final = ".idx"
_DATABASE: Final = "locations"


class StoreKind(Enum):
    """A kind of ledger store; the value is its name."""

    #: Entries are sorted in memory; an index file for each ledger. BookKeeper's default.
    SORTED = "sorted"
    #: Entries are written as they come; the same index files.
    INTERLEAVED = "interleaved"
    #: Write caches, and an index in a database.
    DB = "db"

    @property
    def class_name(self) -> str:
        """BookKeeper's class."""
        package = f"{_PACKAGE}storage.ldb." if self is StoreKind.DB else _PACKAGE
        return f"{package}{self.value.capitalize()}LedgerStorage"

    @classmethod
    def of_class(cls, name: str) -> StoreKind:
        """The kind of one of BookKeeper's classes; :class:`ValueError` for others."""
        for kind in cls:
            if kind.class_name == name:
                return kind
        known = ", ".join(kind.class_name for kind in cls)
        raise ValueError(f"storage: {STORAGE_CLASS} must be one of {known}, got {name!r}")

    def reads(self, other: StoreKind) -> bool:
        """Whether a store of this kind finds what one of the other has stored."""
        return (self is StoreKind.DB) == (other is StoreKind.DB)

    @classmethod
    def found_in(cls, folder: Folder) -> StoreKind | None:
        """Whose files are in a folder; ``None`` without any. Sorted and interleaved stores leave the same files."""
        if _DATABASE in folder.disk.folders(folder.path):
            return cls.DB
        return cls.SORTED if _has_index_file(folder.disk, folder.path) else None


def _has_index_file(disk: Disk, path: str, depth: int = 2) -> bool:
    """Index files are in folders of folders, named in hexadecimal."""
    if depth == 0:
        return any(name.endswith(_INDEX_SUFFIX) for name in disk.names(path))
    inside: Sequence[str] = [name for name in disk.folders(path) if all(each in "0123456789abcdef" for each in name)]
    return any(_has_index_file(disk, f"{path}/{name}", depth - 1) for name in inside)
