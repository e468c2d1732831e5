"""Limits of entry logs: every setting of BookKeeper's that has an effect, with BookKeeper's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simbookie.storage.entry_logs.format import LOG_SIZE_MAX, RECORD_HEAD

__all__ = ["DIRECT_WRITE_BUFFERS", "DirectConfig", "EntryLogConfig"]

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
#: The memory for writing is divided by this, and one log has one such part.
DIRECT_WRITE_BUFFERS: Final = 8


@dataclass(frozen=True, slots=True)
class DirectConfig:
    """Buffers of entry logs that pass by the page cache, in bytes; defaults are those of a JVM with 1 GiB outside its heap."""

    #: All write buffers together (``dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB``); an eighth is one buffer.
    write_bytes: int = 128 * _MIB
    #: All read buffers together (``dbStorage_directIOEntryLoggerTotalReadBufferSizeMB``).
    read_bytes: int = 128 * _MIB
    #: What is read at a time, and kept for each log (``dbStorage_directIOEntryLoggerReadBufferSizeMB``).
    block_bytes: int = 8 * _MIB
    #: Seconds after which a log that nobody reads is closed (``dbStorage_directIOEntryLoggerMaxFdCacheTimeSeconds``).
    idle_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("write_bytes", "block_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"direct entry log: {name} must be >= 1, got {getattr(self, name)}")
        if self.read_bytes < self.block_bytes:
            raise ValueError(
                f"direct entry log: read_bytes must be >= block_bytes, {self.block_bytes}, got {self.read_bytes}: no log "
                f"could be kept open"
            )
        if not self.idle_s > 0:
            raise ValueError(f"direct entry log: idle_s must be > 0, got {self.idle_s}")


@dataclass(frozen=True, slots=True)
class EntryLogConfig:
    """Sizes in bytes; the defaults are BookKeeper's."""

    #: A log that would grow beyond this is rotated first (``logSizeLimit``).
    log_size_max: int = _GIB
    #: A log never grows beyond this, not even within the flush of a memtable.
    log_size_hard_max: int = LOG_SIZE_MAX
    #: What is written to the file at a time (``writeBufferSizeBytes``).
    write_buffer_bytes: int = 65_536
    #: What is read from the file at a time, at least (``readBufferSizeBytes``).
    read_buffer_bytes: int = 512
    #: So much unsynced starts a sync of the active log, 0 for never (``flushEntrylogBytes``).
    sync_after_bytes: int = 0
    #: Whether the next log's file is made in advance (``entryLogFilePreallocationEnabled``).
    preallocates: bool = True
    #: Whether each ledger has logs of its own (``entryLogPerLedgerEnabled``).
    per_ledger: bool = False
    #: Then so many are written at a time (``maximumNumberOfActiveEntryLogs``).
    active_logs_max: int = 500
    #: And one that got nothing for so many seconds is rotated (``entrylogMapAccessExpiryTimeInSeconds``).
    active_idle_s: float = 300.0
    #: Logs that are open to be read, at most.
    open_logs_max: int = 500
    #: Where every folder is full, a log is made in one with so much room left (``minUsableSizeForEntryLogCreation``).
    #: None: what a log and a fifth of one take.
    usable_bytes_min: int | None = None
    #: The share of a disk above which it is full (``diskUsageThreshold``).
    full_above: float = 0.95
    #: Whether, and with which buffers, logs pass by the page cache; a store with a database has such ones.
    direct: DirectConfig | None = None

    def __post_init__(self) -> None:
        if not 0 < self.log_size_max <= _GIB:
            raise ValueError(f"entry log: log_size_max must be from 1 to {_GIB}, got {self.log_size_max}")
        if not self.log_size_max <= self.log_size_hard_max <= LOG_SIZE_MAX:
            raise ValueError(
                f"entry log: log_size_hard_max must be from log_size_max to {LOG_SIZE_MAX}, got {self.log_size_hard_max}"
            )
        if self.write_buffer_bytes < 1 or self.read_buffer_bytes < RECORD_HEAD.size:
            raise ValueError(
                f"entry log: write_buffer_bytes must be >= 1 and read_buffer_bytes >= {RECORD_HEAD.size}, "
                f"got {self.write_buffer_bytes} and {self.read_buffer_bytes}"
            )
        if self.sync_after_bytes < 0:
            raise ValueError(f"entry log: sync_after_bytes must be >= 0, got {self.sync_after_bytes}")
        for name in ("active_logs_max", "open_logs_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"entry log: {name} must be >= 1, got {getattr(self, name)}")
        if self.usable_bytes_min is not None and self.usable_bytes_min < 0:
            raise ValueError(f"entry log: usable_bytes_min must be >= 0, got {self.usable_bytes_min}")
        if not self.active_idle_s > 0:
            raise ValueError(f"entry log: active_idle_s must be > 0, got {self.active_idle_s}")
        if self.per_ledger and self.direct is not None:
            raise ValueError("entry log: per_ledger and direct exclude each other: there is one direct log at a time")

    def reserve(self, *, is_smaller: bool = False) -> int:
        """Bytes that a full disk must have left for a new log; with ``is_smaller`` the default is that of BookKeeper's code."""
        if self.usable_bytes_min is not None:
            return self.usable_bytes_min
        return self.log_size_max if is_smaller else self.log_size_max * 6 // 5
