"""Group commit on the loop's clock: many records, one write, one sync.

A record waits in the *buffer* for its group, then is *written* (a process crash keeps it), then *synced* (a power loss keeps it
too). The first record of a group starts the group's only timer; when it fires, or when the group is large, the group is
written. One sync runs at a time and covers everything written before it started, so groups written during a slow sync share
the next one. With no waiting time configured a group is what arrives within one turn of the loop.

The model of time is the loop's: writing costs nothing, a sync costs ``sync_latency_s``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from simbookie.storage.base import CrashMode, DurableCallback

__all__ = ["GroupCommit", "JournalConfig", "JournalDisk"]

Record = TypeVar("Record")
Waiter = tuple[DurableCallback, object]


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """How a journal groups, writes and syncs. Times in seconds, sizes in bytes."""

    #: How long the first record of a group may wait for company.
    group_wait_max_s: float = 0.0
    #: A group is written without further waiting once it holds more than this.
    group_bytes_max: int = 524_288
    #: How long one sync takes.
    sync_latency_s: float = 0.0
    #: Whether entries are journalled at all; without, they are acknowledged at once and any crash loses them.
    entries_enabled: bool = True
    #: Whether acknowledgements wait for the sync; without, only for the write, and a power loss loses them.
    sync_enabled: bool = True
    #: How long written records may stay unsynced where acknowledgements do not wait for the sync.
    page_cache_flush_interval_s: float = 1.0

    def __post_init__(self) -> None:
        for name in ("group_wait_max_s", "sync_latency_s", "page_cache_flush_interval_s", "group_bytes_max"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"journal: {name} must be >= 0, got {getattr(self, name)}")


class JournalDisk(Protocol[Record]):
    """Where a journal's records go: a log with a synced prefix, addressed by ever growing positions."""

    def write(self, records: list[Record]) -> int:
        """Append ``records``; returns the position after them."""
        ...

    def sync(self, position: int) -> None:
        """Make everything before ``position`` survive a power loss."""
        ...

    def crash(self, mode: CrashMode) -> list[Record]:
        """Drop what does not survive and return it."""
        ...


class GroupCommit(Generic[Record]):
    """The pipeline buffer -> written -> synced in front of one disk, from one start of a bookie to its end.

    ``position`` is where the disk's log ends, all of it synced. ``disk`` ``None`` keeps the timing but no record.
    Must be created inside a running loop. Dead after :meth:`crash`, and after :meth:`close` has finished.
    """

    def __init__(self, disk: JournalDisk[Record] | None, config: JournalConfig, position: int = 0) -> None:
        self._disk = disk
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._alive = True
        self._on_closed: Callable[[], None] | None = None
        # buffer
        self._records: list[Record] = []
        self._bytes = 0
        self._waiters: list[Waiter] = []
        self._early_waiters: list[Waiter] = []
        self._group_timer: asyncio.Handle | None = None
        self._group_is_due = False
        # written, synced
        self._position = position
        self._synced_position = position
        self._written_waiters: list[Waiter] = []
        self._sync_timer: asyncio.TimerHandle | None = None
        self._is_syncing = False
        self._called_back: list[Waiter] = []
        #: What a sync takes beyond its latency, in seconds; may be changed at any time.
        self.stall_s = 0.0

    def append(
        self,
        record: Record,
        size: int,
        on_durable: DurableCallback | None,
        token: object,
        on_written: DurableCallback | None = None,
    ) -> None:
        """Queue ``record`` of ``size`` bytes; ``on_written`` runs after the write, ``on_durable`` after the sync."""
        assert self._on_closed is None, "closed"
        if self._disk is not None:
            self._records.append(record)
        self._bytes += size
        if on_durable is not None:
            self._waiters.append((on_durable, token))
        if on_written is not None:
            self._early_waiters.append((on_written, token))
        if not self._group_is_due:
            self._schedule_group()

    def mark(self, on_durable: DurableCallback, token: object) -> None:
        """Run ``on_durable`` once everything queued so far is synced; writes nothing."""
        assert self._on_closed is None, "closed"
        self._waiters.append((on_durable, token))
        if not self._group_is_due:
            self._schedule_group()

    def close(self, on_closed: Callable[[], None]) -> None:
        """Write and sync everything, run its callbacks, then ``on_closed``."""
        assert self._on_closed is None, "closed"
        self._on_closed = on_closed
        if not self._group_is_due:
            self._make_group_due()

    def crash(self, mode: CrashMode) -> list[Record]:
        """Stop dead; returns the records that did not survive, in order."""
        self._alive = False
        for timer in (self._group_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()
        self._called_back.clear()  # ends the loop over it, which may be further up the stack
        unwritten, self._records = self._records, []
        return [*(self._disk.crash(mode) if self._disk is not None else ()), *unwritten]

    def _schedule_group(self) -> None:
        if self._config.group_wait_max_s == 0 or self._bytes > self._config.group_bytes_max:
            self._make_group_due()
        elif self._group_timer is None:
            self._group_timer = self._loop.call_later(self._config.group_wait_max_s, self._write_group)

    def _make_group_due(self) -> None:
        # call_soon instead of a direct call: no callback ever runs inside the call that queued it
        if self._group_timer is not None:
            self._group_timer.cancel()
        self._group_is_due = True
        self._group_timer = self._loop.call_soon(self._write_group)

    def _write_group(self) -> None:
        self._group_timer, self._group_is_due, self._bytes = None, False, 0
        if self._records:
            records, self._records = self._records, []
            assert self._disk is not None
            self._position = self._disk.write(records)
        waiters, self._waiters = self._waiters, []
        early, self._early_waiters = self._early_waiters, []
        if not self._call_back(early):
            return
        if self._config.sync_enabled:
            self._written_waiters += waiters
        elif not self._call_back(waiters):
            return
        self._go_on()

    def _go_on(self) -> None:
        """Start whatever comes next: a sync, a sync in a while, the end, or nothing."""
        if self._is_syncing:
            return
        is_dirty = self._position > self._synced_position
        if self._written_waiters or (is_dirty and (self._config.sync_enabled or self._on_closed is not None)):
            self._start_sync()
        elif is_dirty and self._sync_timer is None:
            self._sync_timer = self._loop.call_later(self._config.page_cache_flush_interval_s, self._start_sync)
        elif self._on_closed is not None and not self._group_is_due:
            self._alive = False
            self._on_closed()

    def _start_sync(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None
        self._is_syncing = True
        covered, self._written_waiters = self._written_waiters, []
        latency_s = self._config.sync_latency_s + self.stall_s
        if latency_s == 0:
            self._finish_sync(self._position, covered)
        else:
            self._sync_timer = self._loop.call_later(latency_s, self._finish_sync, self._position, covered)

    def _finish_sync(self, position: int, covered: list[Waiter]) -> None:
        self._sync_timer = None
        self._is_syncing = False
        self._synced_position = position
        if self._disk is not None:
            self._disk.sync(position)
        if self._call_back(covered):
            self._go_on()

    def _call_back(self, waiters: list[Waiter]) -> bool:
        """Call back everyone; false if one of them crashed the bookie, which ends everything here."""
        self._called_back = waiters
        for callback, token in waiters:
            callback(token, None)
        return self._alive
