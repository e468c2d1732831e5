"""Where each entry is: the database ``locations``.

A key is the ids of ledger and entry, 8 bytes each; a value is a location, 8 bytes
(:mod:`simbookie.storage.entry_logs.format`). All integers are big-endian, so the entries of a ledger are side by side, in
their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from simbookie.storage.base import DurableCallback, StorageIOError
from simbookie.storage.db.key_value import KeyValueBatch, KeyValueStore
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence, WaitingStep

__all__ = ["LocationBatch", "LocationIndex", "keys_of", "parse_location"]

_KEY: Final = Struct(">QQ")
_LOCATION: Final = Struct(">q")
_ENTRY_ID_MAX: Final = (1 << 63) - 1


def keys_of(ledger_id: int) -> tuple[bytes, bytes]:
    """What the keys of a ledger's entries begin with, and come before."""
    return _KEY.pack(ledger_id, 0), _KEY.pack(ledger_id, _ENTRY_ID_MAX)


def parse_location(key: bytes, value: bytes) -> tuple[int, int, int]:
    """``(ledger id, entry id, location)``; :class:`~simbookie.storage.base.StorageIOError` if it is something else."""
    if len(key) != _KEY.size or len(value) != _LOCATION.size:
        raise StorageIOError(f"a location has {len(key)} bytes of key and {len(value)} of value")
    ledger_id, entry_id = _KEY.unpack(key)
    return ledger_id, entry_id, _LOCATION.unpack(value)[0]


class LocationIndex:
    """The locations of all entries of a store. A deleted ledger has none at once, and none in the database after a flush."""

    def __init__(self, database: KeyValueStore, batch_rows_max: int, quirks: frozenset[Quirk] = REPAIRED) -> None:
        self.database = database
        self._batch_rows_max = batch_rows_max
        self._removes_late = Quirk.RECREATED_LOCATIONS_REMOVED in quirks
        #: Ledgers to remove, each with the number of its deletion.
        self._deleted: dict[int, int] = {}
        self._deletions = 0
        self._writing: Sequence | None = None

    def get(self, ledger_id: int, entry_id: int) -> int:
        """The location of an entry, 0 without one."""
        if ledger_id in self._deleted and not self._removes_late:
            return 0
        value = self.database.get(_KEY.pack(ledger_id, entry_id))
        return parse_location(bytes(_KEY.size), value)[2] if value is not None else 0

    def last_entry(self, ledger_id: int) -> int:
        """The highest entry that has a location; -1 without one."""
        if ledger_id in self._deleted:
            return -1
        found = self.database.last_before(_KEY.pack(ledger_id, _ENTRY_ID_MAX))
        if found is None:
            return -1
        found_ledger, entry_id, _ = parse_location(*found)
        return entry_id if found_ledger == ledger_id else -1

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """The entries that have a location, ascending."""
        if ledger_id in self._deleted:
            return
        for key, value in self.database.items(*keys_of(ledger_id)):
            yield parse_location(key, value)[1]

    def remove(self, ledger_id: int, entry_id: int) -> None:
        """Forget where an entry is; durable after the next sync of the database."""
        self.database.delete(_KEY.pack(ledger_id, entry_id))

    def delete(self, ledger_id: int) -> None:
        """Forget a ledger."""
        self._deletions += 1
        self._deleted[ledger_id] = self._deletions

    def begin(self) -> LocationBatch:
        """A batch of what is to be flushed from now on; the locations of ledgers that were deleted before go first."""
        return LocationBatch(self._batch_rows_max, {} if self._removes_late else dict(self._deleted))

    def write(self, batch: LocationBatch, on_done: DurableCallback) -> None:
        """Make the locations durable."""
        removed, batches = batch.take()
        self._write_all([_removal(removed), *batches] if removed else batches, removed, on_done)

    def move(self, rows: Iterable[tuple[int, int, int]], on_done: DurableCallback) -> None:
        """Make other locations of entries durable: ``(ledger id, entry id, location)``."""
        batch = LocationBatch(self._batch_rows_max, {})
        for row in rows:
            batch.add(*row)
        self.write(batch, on_done)

    def remove_late(self, on_done: DurableCallback) -> None:
        """Remove the locations of all deleted ledgers, new ones among them."""
        removed = dict(self._deleted)
        self._write_all([_removal(removed)] if removed else [], removed, on_done)

    def deleted(self) -> list[int]:
        """The ledgers that were deleted, and have locations in the database."""
        return list(self._deleted)

    def _write_all(self, batches: list[KeyValueBatch], removed: dict[int, int], on_done: DurableCallback) -> None:
        def steps() -> Iterator[WaitingStep]:
            for batch in batches:
                yield lambda go_on, batch=batch: self.database.write(batch, go_on, None)  # type: ignore[misc]  # a default binds it
            yield lambda go_on: self.database.sync(go_on, None)
            for ledger_id, deletion in removed.items():
                if self._deleted.get(ledger_id) == deletion:
                    del self._deleted[ledger_id]

        self._writing = Sequence(steps(), on_done, None)

    def close(self) -> None:
        """Let go of the database."""
        self._cancel()
        self.database.close()

    def crash(self) -> None:
        """Call nobody back."""
        self._cancel()
        self.database.crash()

    def _cancel(self) -> None:
        if self._writing is not None:
            self._writing.cancel()


def _removal(ledgers: dict[int, int]) -> KeyValueBatch:
    batch = KeyValueBatch()
    for ledger_id in ledgers:
        batch.delete_range(*keys_of(ledger_id))
    return batch


class LocationBatch:
    """Locations that are about to be written, in batches of so many rows at most."""

    def __init__(self, rows_max: int, removed: dict[int, int]) -> None:
        self._rows_max = rows_max
        #: Ledgers whose locations go first, with the numbers of their deletions.
        self._removed = removed
        self._batches: list[KeyValueBatch] = []

    @property
    def removed(self) -> list[int]:
        """The ledgers whose locations go first."""
        return list(self._removed)

    @property
    def is_full(self) -> bool:
        """Whether a further row begins another batch."""
        return bool(self._batches) and len(self._batches[-1]) >= self._rows_max

    def add(self, ledger_id: int, entry_id: int, location: int) -> None:
        """Add a row."""
        if not self._batches or self.is_full:
            self._batches.append(KeyValueBatch())
        self._batches[-1].put(_KEY.pack(ledger_id, entry_id), _LOCATION.pack(location))

    def take(self) -> tuple[dict[int, int], list[KeyValueBatch]]:
        """The ledgers to remove, and the batches; neither is kept."""
        taken = self._removed, self._batches
        self._removed, self._batches = {}, []
        return taken
