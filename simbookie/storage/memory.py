"""A ledger storage in memory with an honest journal.

Entries are readable at once and acknowledged when their journal group is synced (:mod:`simbookie.storage.group_commit`). What
survives a crash is a :class:`RecordLog`, the log of the records written and synced so far: a crash drops the rest, opening
replays it. Without a disk the timing is the same and nothing survives.

Not modelled: files, caches, indexes, checkpoints, the cost of reading. The log is cleaned when most of it belongs to deleted
ledgers. A duplicate add replaces the stored copy, as BookKeeper's DbLedgerStorage does.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from bkclient.wire.messages import LAST_ENTRY
from simbookie.storage.base import (
    Capacity,
    CrashMode,
    CrashReport,
    DurableCallback,
    LedgerInfo,
    NoSpace,
    ReadCallback,
    SpaceListener,
)
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.filled import FilledCapacity
from simbookie.storage.group_commit import GroupCommit, JournalConfig
from simbookie.storage.known import lac_of
from simbookie.storage.runs import EntryRuns
from simbookie.storage.space import check_thresholds

__all__ = ["MemoryStorage", "MemoryStorageConfig", "RecordLog"]


class _Kind(IntEnum):
    ENTRY = 0
    KEY = 1
    FENCE = 2
    EXPLICIT_LAC = 3
    LIMBO = 4
    DELETE = 5


_ENTRY: Final = int(_Kind.ENTRY)

#: ``(kind, ledger_id, number, body)``: the number is the entry id, the LAC or the limbo bit; the body is the entry, the LAC
#: packet or the key. A plain tuple, because one is made for every entry.
_Record = tuple[int, int, int, bytes]


#: Bytes a record costs in the journal beyond its body: length and ids.
_RECORD_OVERHEAD: Final = 20


class RecordLog:
    """The log that outlives a bookie: a synced prefix and a written tail, addressed by positions that only grow."""

    __slots__ = ("_base", "_records", "_synced")

    def __init__(self) -> None:
        self._base = 0
        self._records: list[_Record] = []
        self._synced = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def position(self) -> int:
        """Where the log ends."""
        return self._base + len(self._records)

    def write(self, records: list[_Record]) -> int:
        """Append ``records``; returns the position after them."""
        self._records += records
        return self._base + len(self._records)  # in place of the property, as below: every entry is written and synced

    def sync(self, position: int) -> None:
        """Make everything before ``position`` survive a power loss."""
        assert position <= self._base + len(self._records), "cannot sync what was not written"
        self._synced = max(self._synced, position)

    def crash(self, mode: CrashMode) -> list[_Record]:
        """Drop what does not survive and return it."""
        if mode is CrashMode.PROCESS:
            return []
        keep = self._synced - self._base
        lost = self._records[keep:]
        del self._records[keep:]
        return lost

    def replay(self) -> tuple[_Record, ...]:
        """Everything that is on the disk, now synced."""
        self._synced = self.position
        return tuple(self._records)

    def alter(self, ledger_id: int, entry_id: int, body: bytes) -> None:
        """Replace the body of an entry in all its records, as a disk that rots does."""
        for index, (kind, ledger, number, _) in enumerate(self._records):
            if kind == _Kind.ENTRY and (ledger, number) == (ledger_id, entry_id):
                self._records[index] = (kind, ledger, number, body)

    def wipe(self) -> None:
        """Lose everything, as a replaced disk does. Only while no storage has it open."""
        self._base = self._synced = self.position
        self._records.clear()

    def drop_fence(self, ledger_id: int) -> None:
        """Lose the fence of a ledger. Only while no storage has it open."""
        synced = self._synced - self._base
        is_kept = [record[:2] != (_Kind.FENCE, ledger_id) for record in self._records]
        self._base += is_kept[:synced].count(False)
        self._records = [record for record, kept in zip(self._records, is_kept, strict=True) if kept]

    def clean(self) -> None:
        """Drop the records of deleted ledgers from the synced part; nothing readable changes."""
        synced = self._synced - self._base
        deleted: dict[int, None] = {}
        kept: list[_Record] = []
        for record in reversed(self._records[:synced]):
            if record[0] == _Kind.DELETE:
                deleted[record[1]] = None
            elif record[1] not in deleted:
                kept.append(record)
        kept.reverse()
        self._base += synced - len(kept)
        self._records[:synced] = kept

    def entries(self) -> Iterable[tuple[int, int]]:
        """The (ledger, entry) of every entry record."""
        return ((ledger_id, number) for kind, ledger_id, number, _ in self._records if kind == _Kind.ENTRY)


@dataclass(frozen=True, slots=True)
class MemoryStorageConfig:
    """Limits and timing of a :class:`MemoryStorage`."""

    journal: JournalConfig = field(default_factory=JournalConfig)
    #: Bytes that fit: bodies of entries, keys, explicit LACs, and ``ledger_bytes`` for each ledger.
    capacity_bytes: int = 1 << 30
    #: What a ledger costs without anything in it.
    ledger_bytes: int = 1_024
    #: Above this share of the capacity the bookie turns read-only.
    full_above: float = 0.95
    #: At or below this share it turns writable again.
    writable_below: float = 0.90

    def __post_init__(self) -> None:
        if self.capacity_bytes < 0:
            raise ValueError(f"storage: capacity_bytes must be >= 0, got {self.capacity_bytes}")
        check_thresholds(self.full_above, self.writable_below)


@dataclass(slots=True, eq=False)
class _Ledger:
    master_key: bytes | None = field(default=None, repr=False)
    fenced: bool = False
    in_limbo: bool = False
    explicit_lac: bytes | None = field(default=None, repr=False)
    entries: dict[int, bytes] = field(default_factory=dict, repr=False)
    last_entry_id: int = LAST_ENTRY
    runs: EntryRuns = field(default_factory=EntryRuns, repr=False)
    #: Highest LAC of what was replayed; the running bookie keeps its own.
    lac: int = -1


class MemoryStorage:
    """Implements :class:`simbookie.storage.base.LedgerStorage`; see there for the meaning of the methods."""

    def __init__(self, config: MemoryStorageConfig | None = None, disk: RecordLog | None = None) -> None:
        self.config = config if config is not None else MemoryStorageConfig()
        self.disk = disk
        self._stall_s = 0.0
        self._journals_entries = self.config.journal.entries_enabled
        self._journal: GroupCommit[_Record] | None = None
        self._instant: GroupCommit[_Record] | None = None
        self._on_space: SpaceListener | None = None
        self._set_capacity(self.config.capacity_bytes)
        self._filled = FilledCapacity(self.config.capacity_bytes, self._set_capacity)
        self._reset()

    def _reset(self) -> None:
        self._ledgers: dict[int, _Ledger] = {}
        self._used = 0
        self._is_full = False
        self._unjournalled: list[_Record] = []
        self._dead_records = 0

    @property
    def acks_are_durable(self) -> bool:
        """See :class:`LedgerStorage`; a storage without a disk promises what its journal would."""
        return self.config.journal.entries_enabled and self.config.journal.sync_enabled

    # ------------------------------------------------------------------------------------------------ life and death

    @property
    def has_high_priority_room(self) -> bool:
        """There is, to the last byte."""
        return True

    def open(self, on_open: Callable[[], None], on_space: SpaceListener) -> None:
        """Replay the disk."""
        assert self._journal is None, "already open"
        self._reset()
        position = 0
        if self.disk is not None:
            self.disk.clean()
            for record in self.disk.replay():
                self._replay(record)
            position = self.disk.position
        self._journal = GroupCommit(self.disk, self.config.journal, position)
        self._journal.stall_s = self._stall_s
        self._instant = GroupCommit(None, JournalConfig())
        self._on_space = on_space
        self._check_space()
        on_open()

    def shutdown(self, on_closed: Callable[[], None]) -> None:
        """Flush and sync the journal; entries that bypassed it are saved too."""
        journal, instant = self._opened(), self._instant
        assert instant is not None

        def close() -> None:
            self._journal = self._instant = None
            on_closed()

        for record in self._unjournalled:
            journal.append(record, len(record[3]) + _RECORD_OVERHEAD, None, None)
        self._unjournalled.clear()
        instant.close(lambda: journal.close(close))

    def crash(self, mode: CrashMode) -> CrashReport:
        """Drop the memory and everything the disk does not keep in this kind of crash."""
        journal, instant = self._opened(), self._instant
        assert instant is not None
        instant.crash(mode)
        lost = [*journal.crash(mode), *self._unjournalled]
        if self.disk is None:
            entries = [
                (ledger_id, entry_id) for ledger_id in self.ledger_ids() for entry_id in self.entry_ids(ledger_id)
            ]
            fences = [ledger_id for ledger_id in self.ledger_ids() if self._ledgers[ledger_id].fenced]
        else:
            missing = {(ledger_id, number): None for kind, ledger_id, number, _ in lost if kind == _Kind.ENTRY}
            if missing:
                for key in self.disk.entries():
                    missing.pop(key, None)
            entries = list(missing)
            fences = [ledger_id for kind, ledger_id, _, _ in lost if kind == _Kind.FENCE]
        self._journal = self._instant = None
        self._reset()
        return CrashReport(tuple(entries), tuple(fences))

    def _opened(self) -> GroupCommit[_Record]:
        assert self._journal is not None, "the storage is not open"
        return self._journal

    def _replay(self, record: _Record) -> None:
        kind, ledger_id, number, body = record
        if kind == _Kind.DELETE:
            self._drop(ledger_id)
            return
        is_known = ledger_id in self._ledgers
        ledger = self._ledgers.setdefault(ledger_id, _Ledger())
        before = self._size_without_entries(ledger) if is_known else 0
        if kind == _Kind.ENTRY:
            self._put(ledger, number, body)
            ledger.lac = max(ledger.lac, lac_of(body))
        elif kind == _Kind.KEY:
            ledger.master_key = body
        elif kind == _Kind.FENCE:
            ledger.fenced = True
        elif kind == _Kind.EXPLICIT_LAC:
            ledger.explicit_lac = body
            ledger.lac = max(ledger.lac, number)
        else:
            ledger.in_limbo = bool(number)
        self._used += self._size_without_entries(ledger) - before

    # ---------------------------------------------------------------------------------------------------- the ledger

    def ledger(self, ledger_id: int) -> LedgerInfo | None:
        """What is known of a ledger."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return None
        return LedgerInfo(ledger.master_key, ledger.fenced, ledger.in_limbo, ledger.lac)

    def set_master_key(self, ledger_id: int, master_key: bytes) -> None:
        """Create the ledger, or give it its key; :class:`NoSpace` beyond the capacity."""
        ledger = self._ledgers.get(ledger_id)
        assert ledger is None or ledger.master_key is None, f"ledger {ledger_id} has a key"
        self._reserve(len(master_key) + (self.config.ledger_bytes if ledger is None else 0))
        if ledger is None:
            ledger = self._ledgers[ledger_id] = _Ledger()
        ledger.master_key = master_key
        self._log((_Kind.KEY, ledger_id, 0, master_key))

    def fence(self, ledger_id: int, on_durable: DurableCallback, token: object) -> None:
        """Fence the ledger."""
        self._ledgers[ledger_id].fenced = True
        self._log((_Kind.FENCE, ledger_id, 0, b""), on_durable, token)

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether the ledger's content is uncertain."""
        if ledger_id not in self._ledgers:  # operators do that, so it is not refused
            self._ledgers[ledger_id] = _Ledger()
            self._used += self.config.ledger_bytes
        self._ledgers[ledger_id].in_limbo = in_limbo
        self._log((_Kind.LIMBO, ledger_id, int(in_limbo), b""))

    def set_explicit_lac(
        self, ledger_id: int, lac: int, body: bytes, on_durable: DurableCallback, token: object
    ) -> None:
        """Keep the packet; :class:`NoSpace` beyond the capacity."""
        ledger = self._ledgers[ledger_id]
        self._reserve(len(body) - len(ledger.explicit_lac or b""))
        ledger.explicit_lac = body
        self._log((_Kind.EXPLICIT_LAC, ledger_id, lac, body), on_durable, token)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The packet kept last."""
        return self._ledgers[ledger_id].explicit_lac

    def force(self, ledger_id: int, on_durable: DurableCallback, token: object) -> None:  # noqa: ARG002  one journal
        """Wait for the journal."""
        self._opened().mark(on_durable, token)

    def ledger_ids(self) -> list[int]:
        """All ledgers, ascending."""
        return sorted(self._ledgers)

    def delete_ledger(self, ledger_id: int) -> None:
        """Forget the ledger, and clean the log once that is durable and worth the work."""
        self._unjournalled = [record for record in self._unjournalled if record[1] != ledger_id]
        dead = len(self._ledgers[ledger_id].entries)
        self._drop(ledger_id)
        self._log((_Kind.DELETE, ledger_id, 0, b""), self._delete_is_durable, dead)
        self._check_space()

    def _delete_is_durable(self, dead_records: int, _error: object) -> None:
        self._dead_records += dead_records
        if self.disk is not None and 2 * self._dead_records > len(self.disk):
            self.disk.clean()
            self._dead_records = 0

    def _drop(self, ledger_id: int) -> None:
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is not None:
            self._used -= sum(map(len, ledger.entries.values())) + self._size_without_entries(ledger)

    def _size_without_entries(self, ledger: _Ledger) -> int:
        return self.config.ledger_bytes + len(ledger.master_key or b"") + len(ledger.explicit_lac or b"")

    def _reserve(self, size: int) -> None:
        if size > 0 and self._used + size > self._capacity:
            raise NoSpace(f"{size} bytes do not fit: {self._used} of {self._capacity} are in use")
        self._used += size
        if self._used > self._full_bytes and not self._is_full:
            self._check_space()

    def _log(self, record: _Record, on_durable: DurableCallback | None = None, token: object = None) -> None:
        self._opened().append(record, len(record[3]) + _RECORD_OVERHEAD, on_durable, token)

    # ------------------------------------------------------------------------------------------------------- entries

    def add_entry(
        self,
        ledger_id: int,
        entry_id: int,
        body: bytes,
        on_durable: DurableCallback | None,
        token: object,
        on_written: DurableCallback | None = None,
    ) -> None:
        """Store and journal an entry; :class:`NoSpace` beyond the capacity."""
        journal = self._journal
        assert journal is not None, "the storage is not open"
        size = len(body)
        if self._used + size > self._capacity:
            raise NoSpace(f"{size} bytes do not fit: {self._used} of {self._capacity} are in use")
        ledger = self._ledgers[ledger_id]
        if entry_id == ledger.last_entry_id + 1:  # as _put does it, without the call
            ledger.last_entry_id = entry_id
            ledger.entries[entry_id] = body
            self._used += size
        else:
            self._put(ledger, entry_id, body)
        record = (_ENTRY, ledger_id, entry_id, body)
        if self._journals_entries:
            journal.append(record, size + _RECORD_OVERHEAD, on_durable, token, on_written)
        else:
            assert self._instant is not None
            self._unjournalled.append(record)
            self._instant.append(record, 0, on_durable, token, on_written)
        if self._used > self._full_bytes and not self._is_full:
            self._check_space()

    def _put(self, ledger: _Ledger, entry_id: int, body: bytes) -> None:
        entries, last = ledger.entries, ledger.last_entry_id
        if entry_id > last:
            if entry_id != last + 1:
                ledger.runs.skip_to(entry_id, last)
            ledger.last_entry_id = entry_id
        elif entry_id in entries:
            self._used -= len(entries[entry_id])
        else:
            ledger.runs.insert(entry_id)
        entries[entry_id] = body
        self._used += len(body)

    def read_entry(self, ledger_id: int, entry_id: int, on_read: ReadCallback, token: object) -> None:
        """Look up an entry; calls back at once."""
        ledger = self._ledgers[ledger_id]
        if entry_id == LAST_ENTRY:
            entry_id = ledger.last_entry_id
        on_read(token, ledger.entries.get(entry_id), None)

    def alter(self, ledger_id: int, entry_id: int, byte: int) -> None:
        """Flip a bit of a stored entry, in memory and on the disk, in byte ``byte`` of its body, counted round and round."""
        entries = self._ledgers[ledger_id].entries
        body = bytearray(entries[entry_id])
        body[byte % len(body)] ^= 1
        entries[entry_id] = bytes(body)
        if self.disk is not None:
            self.disk.alter(ledger_id, entry_id, entries[entry_id])

    def lose(self, ledger_id: int, entry_id: int) -> None:
        """Lose a stored entry, as with a damaged index; what is on the disk comes back with a restart."""
        ledger = self._ledgers[ledger_id]
        self._used -= len(ledger.entries.pop(entry_id))
        kept, ledger.entries = ledger.entries, {}
        ledger.runs, ledger.last_entry_id = EntryRuns(), LAST_ENTRY
        for number in sorted(kept):
            self._used -= len(kept[number])
            self._put(ledger, number, kept[number])

    def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of the stored entries, ascending."""
        return sorted(self._ledgers[ledger_id].entries)

    def count_runs(self, ledger_id: int) -> int:
        """How many runs there are."""
        return len(self._ledgers[ledger_id].runs) + 1

    def entry_runs(self, ledger_id: int) -> tuple[array[int], array[int]]:
        """The first and the last ids of the runs."""
        ledger = self._ledgers[ledger_id]
        return ledger.runs.runs(ledger.last_entry_id)

    def stall(self, by_s: float) -> None:
        """Have every sync of the journal take so much longer from now on."""
        self._stall_s = by_s
        if self._journal is not None:
            self._journal.stall_s = by_s

    def fill(self, left: int) -> Callable[[], None]:
        """Have other data fill the disk up to ``left`` bytes; returns what removes that."""
        return self._filled.fill(self._used + left)

    def _set_capacity(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._full_bytes = int(capacity_bytes * self.config.full_above)
        self._writable_bytes = int(capacity_bytes * self.config.writable_below)
        if self._journal is not None:
            self._check_space()

    def capacity(self) -> Capacity:
        """The configured capacity and what is left of it."""
        return Capacity(self._capacity, max(0, self._capacity - self._used))

    def collect_garbage(
        self,
        on_done: DurableCallback,
        token: object,
        *,
        is_forced: bool = False,  # noqa: ARG002
        kinds: frozenset[CompactionKind] | None = None,  # noqa: ARG002
    ) -> None:
        """Nothing is left to do: what is deleted takes no space."""
        asyncio.get_running_loop().call_soon(on_done, token, None)

    def watch_shortage(self, listener: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Never calls: collecting brings nothing."""
        return lambda: None

    def _check_space(self) -> None:
        is_full = self._used > (self._writable_bytes if self._is_full else self._full_bytes)
        if is_full != self._is_full:
            self._is_full = is_full
            if self._on_space is not None:
                self._on_space(is_full)
