"""The interface between a bookie's journals and what lies behind them: entry logs, indexes, caches.

A store keeps entries and what is known of ledgers, readable at once and durable later, all together, by a *flush* or a
*checkpoint*. Until then the journals have what was acknowledged. The storage around it, which owns the journals, joins the two:

* **The store first, the journal second.** What a journal has synced the store has had before. So a position in the journals
  stands for a moment of the store: that is a :data:`Checkpoint`.
* **A checkpoint is taken before it is made.** :meth:`LedgerStore.checkpoint` gets one that was taken earlier and makes durable
  what the store had at that moment, not what came since. When it is done the storage may persist the checkpoint and let older
  journals go.
* **A store may know best when.** Stores that make durable what no longer changes ask for checkpoints themselves
  (:meth:`StoreOwner.request_checkpoint`); the others are given one at intervals (:attr:`LedgerStore.asks_for_checkpoints`).
* **Steps have names.** A store that is given an ``on_step`` calls it before every step that a crash may come between, also in the
  middle of a call. A schedule that wants the bookie killed there crashes the disk and raises :class:`CrashPoint`, which passes
  through everything: the store is dead then, and the disk has what such a bookie leaves.

Callbacks are those of :mod:`simbookie.storage.base`; they never run before the call that takes them has returned, unless said so.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from simbookie.storage.base import CrashMode, DurableCallback, LedgerInfo, ReadCallback, StorageError
from simbookie.storage.entry_logs.logger import EntryLogger
from simbookie.storage.steps import CrashPoint, OnStep, no_step

__all__ = [
    "LATEST",
    "Checkpoint",
    "CollectedStore",
    "CrashPoint",
    "LedgerStore",
    "OnStep",
    "StoreOwner",
    "ToCompact",
    "no_step",
]

Checkpoint = tuple[tuple[int, int], ...]
"""``(file id, offset)`` in each journal, in the order of the journals; compared like any tuple."""

#: Later than every checkpoint that is taken.
LATEST: Final[Checkpoint] = ((1 << 63, 0),)


class StoreOwner(Protocol):
    """What a store asks of the storage around it. Each may be called from within a call of the store."""

    def take_checkpoint(self) -> Checkpoint:
        """How far the journals are synced at this moment."""
        ...

    def request_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Have ``checkpoint`` made soon: call :meth:`LedgerStore.checkpoint`, but not before this returns."""
        ...

    def room_was_made(self) -> None:
        """What was refused with :class:`~simbookie.storage.base.WriteCacheFull` may be tried again."""
        ...

    def flush_failed(self, error: StorageError) -> None:
        """What was stored could not be flushed, and nobody waits for it; the bookie should take no more writes."""
        ...


class ToCompact(Protocol):
    """Something that takes less space after it is compacted."""

    def begin(self) -> None:
        """Compact it, beside everything else, unless that is under way."""
        ...


class CollectedStore(Protocol):
    """Entry logs and the index that says where in them entries are: what a garbage collector of its own looks after."""

    @property
    def logger(self) -> EntryLogger:
        """The entry logs."""
        ...

    @property
    def location_compaction(self) -> ToCompact | None:
        """The index, if it is a database that can be compacted."""
        ...

    def has_ledger(self, ledger_id: int) -> bool:
        """Whether a ledger exists, so that its entries have to stay."""
        ...

    def places(self, ledger_id: int, entry_id: int) -> tuple[int, ...]:
        """Where in the logs an entry is. There may be two places: one that counts, and one that will when it is durable.

        May raise :class:`~simbookie.storage.base.StorageIOError`.
        """
        ...

    def move_entries(
        self,
        log_id: int,
        ledger_ids: Collection[int],
        moved: list[tuple[int, int, int]],
        on_done: DurableCallback,
        token: object,
        *,
        are_durable: bool = False,
    ) -> None:
        """Have entries of a log found where they were copied to: ``(ledger, entry, location)``; the log may be removed then.

        The copies are made durable first, unless they are, then the locations, but for those that do not point to the log any
        more. ``ledger_ids`` are the ledgers that have entries in the log: what is known of their locations is durable, too, in
        the end, and not only in the page cache since a bookie was killed.
        """
        ...


class LedgerStore(Protocol):
    """Entries, keys, fences, explicit LACs and limbo of all ledgers of one bookie.

    Unless said otherwise a ledger that a method names must exist; anything else is a defect of the caller.
    """

    @property
    def asks_for_checkpoints(self) -> bool:
        """Whether the store requests checkpoints; otherwise they are made at intervals."""
        ...

    @property
    def collected(self) -> Sequence[CollectedStore]:
        """The entry logs in it that have a garbage collector each."""
        ...

    def open(self, owner: StoreOwner) -> None:
        """Load what survived; :class:`~simbookie.storage.base.StorageIOError` if that is impossible."""
        ...

    def close(self) -> None:
        """Let go of everything. What was not flushed is lost. Not while a flush or a checkpoint is under way."""
        ...

    def crash(self, mode: CrashMode) -> None:
        """Die at once, with the disk; :meth:`open` may be called again afterwards."""
        ...

    def ledger(self, ledger_id: int) -> LedgerInfo | None:
        """What is known of a ledger; ``None`` if this store never heard of it. The LAC may cost reading its last entry."""
        ...

    def set_master_key(self, ledger_id: int, master_key: bytes) -> None:
        """Create the ledger with this key, or replace the key that it has."""
        ...

    def set_fenced(self, ledger_id: int) -> bool:
        """Fence the ledger; returns whether it was not fenced before."""
        ...

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether entries of the ledger may have been lost here; creates an unknown ledger without a key."""
        ...

    def set_explicit_lac(self, ledger_id: int, lac: int, body: bytes) -> None:
        """Keep ``body``, which states ``lac``."""
        ...

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The packet last given to :meth:`set_explicit_lac`."""
        ...

    def add_entry(self, ledger_id: int, entry_id: int, body: bytes) -> None:
        """Store an entry, which is readable when this returns.

        :class:`~simbookie.storage.base.WriteCacheFull` if a flush has to make room first, and
        :class:`~simbookie.storage.base.StorageIOError` if it failed; nothing was stored then.
        """
        ...

    def read_entry(self, ledger_id: int, entry_id: int, on_read: ReadCallback, token: object) -> None:
        """Look up an entry; id -1 means the one with the highest id. ``on_read`` may run before this returns."""
        ...

    def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of the stored entries, ascending."""
        ...

    def count_runs(self, ledger_id: int) -> int:
        """At least as many as there are runs of consecutive ids; takes constant time once a ledger was asked about."""
        ...

    def entry_runs(self, ledger_id: int) -> tuple[array[int], array[int]]:
        """The first and the last ids of the runs of consecutive ids, ascending; the caller's to keep."""
        ...

    def ledger_ids(self) -> list[int]:
        """All ledgers, ascending."""
        ...

    def delete_ledger(self, ledger_id: int) -> None:
        """Forget the ledger with everything in it."""
        ...

    def checkpoint(self, checkpoint: Checkpoint, on_done: DurableCallback, token: object) -> None:
        """Make durable what the store had when ``checkpoint`` was taken. One flush or checkpoint at a time."""
        ...

    def flush(self, on_done: DurableCallback, token: object) -> None:
        """Make durable everything stored before the call: after a replay, and before :meth:`close`."""
        ...
