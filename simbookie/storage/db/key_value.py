"""What the indexes are kept in: an ordered database of keys and values, both bytes.

In BookKeeper this is RocksDB. Two ways lead into it, and their difference is what a crash can tell:

* **A batch** is carried out as a whole or not at all, and durable when it calls back.
* **Single changes** are visible at once and survive the end of the process; a power loss keeps those up to some moment, at the
  earliest the last sync.

Keys are compared byte by byte. What was loaded when the database was opened counts as changed and not synced, because the
database may have found it in the page cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from simbookie.storage.base import DurableCallback

__all__ = ["KeyValueBatch", "KeyValueStore", "OpenDatabase"]


class KeyValueBatch:
    """Changes that belong together, in their order."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        #: ``(key, value)`` sets a value, ``(key, None)`` removes it, ``(first, end, None)`` removes all from ``first`` to
        #: before ``end``.
        self.changes: list[tuple[bytes, bytes | None] | tuple[bytes, bytes, None]] = []

    def __len__(self) -> int:
        return len(self.changes)

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value."""
        self.changes.append((key, value))

    def delete(self, key: bytes) -> None:
        """Remove a key, which need not exist."""
        self.changes.append((key, None))

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Remove the keys from ``first`` on that come before ``end``."""
        self.changes.append((first, end, None))


class KeyValueStore(Protocol):
    """One open database. Errors are :class:`~simbookie.storage.base.StorageIOError`."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        ...

    def last_before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The highest key that comes before ``key``, with its value."""
        ...

    def items(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys from ``first`` on that come before ``end``, ascending, with their values; not while the database changes."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value; durable after a :meth:`sync`."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a key, which need not exist; durable after a :meth:`sync`."""
        ...

    def write(self, batch: KeyValueBatch, on_done: DurableCallback, token: object) -> None:
        """Carry out a batch, durably. Never calls back before it returns."""
        ...

    def sync(self, on_done: DurableCallback, token: object) -> None:
        """Make durable what was changed before the call. Never calls back before it returns."""
        ...

    def compact(self, on_done: DurableCallback, token: object) -> None:
        """Give back the space of what was removed, as far as that takes work. Never calls back before it returns."""
        ...

    def close(self) -> None:
        """Let go of all files. Syncs nothing."""
        ...

    def crash(self) -> None:
        """The process dies: no callback runs any more."""
        ...


OpenDatabase = Callable[[str], KeyValueStore]
"""``(name)``: open the database of this name, which is made if it is missing."""
