"""The interface between a bookie's request semantics and its storage.

On one side the bookie decides who may do what (keys, fences, lanes, read-only mode); on the other a storage keeps bytes and
says when they are safe. A storage knows nothing about clients or statuses, a bookie nothing about journals or files.

Three rules keep it narrow and let the same bookie run in real and in virtual time:

* **Callbacks, not awaitables.** An operation that may wait takes a callback and a ``token`` that is handed back to it, so
  that an add costs neither a task nor a closure. A storage waits on the running loop's clock only.
* **Stored, written, durable.** An entry is readable when :meth:`LedgerStorage.add_entry` returns, *written* when a crash of the
  process cannot lose it, *durable* when a power loss cannot either. Durable callbacks run in the order of the calls, and never
  before the call that takes them has returned.
* **A crash is silence.** After :meth:`LedgerStorage.crash` no callback of an earlier call runs, ever.

Callbacks must not raise. They may call the storage again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from simbookie.storage.compaction.kinds import CompactionKind

__all__ = [
    "Capacity",
    "CrashMode",
    "CrashReport",
    "DurableCallback",
    "LedgerInfo",
    "LedgerStorage",
    "NoSpace",
    "ReadCallback",
    "SpaceListener",
    "StorageError",
    "StorageIOError",
    "WriteCacheFull",
]


class StorageError(Exception):
    """A storage did not carry out an operation."""


class WriteCacheFull(StorageError):
    """The storage cannot take more at present; nothing was stored. The same call may succeed later."""


class StorageIOError(StorageError):
    """Reading or writing failed; says nothing about whether the entry exists (an explicit negative would, REC-21)."""


class NoSpace(StorageIOError):
    """No byte is left, not even for high-priority writes; nothing was stored."""


DurableCallback = Callable[[Any, StorageError | None], None]
"""``(token, error)``: the operation is safe as promised, or failed with ``error``."""

ReadCallback = Callable[[Any, bytes | None, StorageError | None], None]
"""``(token, body, error)``: the entry, ``None`` if it was never stored, or the reason why that cannot be told."""

SpaceListener = Callable[[bool], None]
"""``(full)``: ordinary writes should be refused from now on, or may be accepted again."""


class CrashMode(Enum):
    """How a bookie dies without shutting down."""

    #: The process ends; what it handed to the operating system survives.
    PROCESS = auto()
    #: The machine loses power; only what was synced survives.
    POWER_LOSS = auto()


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """What a storage knows of a ledger apart from its entries.

    ``master_key`` is ``None`` while only a repair has spoken of the ledger. ``lac`` is the highest last-add-confirmed of any
    entry or explicit LAC the storage has (-1 without one); a storage that cannot afford the maximum takes that of the last entry.
    """

    master_key: bytes | None = field(repr=False)
    fenced: bool = False
    in_limbo: bool = False
    lac: int = -1


@dataclass(frozen=True, slots=True)
class Capacity:
    """Disk space in bytes."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What a crash destroyed: entries of which no copy is left, in the order stored, and fences that were not durable.

    ``fences_forgotten`` were durable. A storage that keeps its promises has none.
    """

    entries_lost: tuple[tuple[int, int], ...] = ()
    fences_lost: tuple[int, ...] = ()
    fences_forgotten: tuple[int, ...] = ()

    def __str__(self) -> str:
        told = f"lost {len(self.entries_lost)} entries and {len(self.fences_lost)} fences"
        return f"{told}, forgot {len(self.fences_forgotten)} fences" if self.fences_forgotten else told


class LedgerStorage(Protocol):
    """Entries, keys, fences and explicit LACs of all ledgers of one bookie.

    Unless said otherwise a ledger that a method names must exist; anything else is a defect of the caller.
    """

    @property
    def acks_are_durable(self) -> bool:
        """Whether durable callbacks mean what they say; false where the journal is switched off or not synced."""
        ...

    @property
    def has_high_priority_room(self) -> bool:
        """Whether writes of high priority may be taken while ordinary ones are refused for lack of space."""
        ...

    def open(self, on_open: Callable[[], None], on_space: SpaceListener) -> None:
        """Load what survived, then call ``on_open`` (possibly before returning). Everything loaded counts as durable.

        ``on_space`` is called after every change of whether there is space, beginning with there being some.
        """
        ...

    def shutdown(self, on_closed: Callable[[], None]) -> None:
        """Make everything durable, run the callbacks that waited for it, then ``on_closed`` (never before returning)."""
        ...

    def crash(self, mode: CrashMode) -> CrashReport:
        """Die at once. :meth:`open` may be called again afterwards."""
        ...

    def ledger(self, ledger_id: int) -> LedgerInfo | None:
        """What is known of a ledger; ``None`` if this storage never heard of it."""
        ...

    def set_master_key(self, ledger_id: int, master_key: bytes) -> None:
        """Create the ledger with this key, or give a ledger its key that had none; durable no later than what follows.

        :class:`StorageError` if refused, and nothing was kept.
        """
        ...

    def fence(self, ledger_id: int, on_durable: DurableCallback, token: object) -> None:
        """Fence the ledger for ever. Calling it again writes another record, which serves to retry after an error."""
        ...

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether entries of the ledger may have been lost here; creates an unknown ledger without a key."""
        ...

    def add_entry(
        self,
        ledger_id: int,
        entry_id: int,
        body: bytes,
        on_durable: DurableCallback | None,
        token: object,
        on_written: DurableCallback | None = None,
    ) -> None:
        """Store an entry, replacing an earlier copy; :class:`WriteCacheFull` or :class:`StorageIOError` if refused."""
        ...

    def read_entry(self, ledger_id: int, entry_id: int, on_read: ReadCallback, token: object) -> None:
        """Look up an entry; id -1 means the one with the highest id. ``on_read`` may run before this returns."""
        ...

    def set_explicit_lac(
        self, ledger_id: int, lac: int, body: bytes, on_durable: DurableCallback, token: object
    ) -> None:
        """Keep ``body``, which states ``lac``, as the ledger's explicit LAC; :class:`StorageError` if refused."""
        ...

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The packet last given to :meth:`set_explicit_lac`."""
        ...

    def force(self, ledger_id: int, on_durable: DurableCallback, token: object) -> None:
        """Wait until everything stored so far for the ledger is durable; the ledger need not exist."""
        ...

    def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of the stored entries, ascending."""
        ...

    def count_runs(self, ledger_id: int) -> int:
        """At least as many as there are runs of consecutive ids; takes constant time."""
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

    def capacity(self) -> Capacity:
        """Space in total and left."""
        ...

    def collect_garbage(
        self,
        on_done: DurableCallback,
        token: object,
        *,
        is_forced: bool = False,
        kinds: frozenset[CompactionKind] | None = None,
    ) -> None:
        """Give back space of deleted ledgers, as far as that takes work; one run at a time.

        A *forced* run does what would not be due yet; with ``kinds`` it may do these kinds of compaction, also if they are
        suspended, and no other. Never calls back before it returns, nor after a shutdown has begun.
        """
        ...

    def watch_shortage(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` when garbage should be collected by force because space runs out; returns what ends that."""
        ...
