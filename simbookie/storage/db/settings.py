"""Limits of a store with a database: every setting of BookKeeper's that has an effect, with BookKeeper's defaults.

Fields are in bytes; :data:`DB_KEYS` names BookKeeper's key for each, whose unit may be another one. BookKeeper's caches are a
share of the memory that its JVM has outside the heap; the defaults here are those of 1 GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

from simbookie.storage.conf_keys import SECOND, parsed, values_of
from simbookie.storage.entry_logs.config import DirectConfig, EntryLogConfig

__all__ = ["DB_KEYS", "DIRECT_IO", "DIRECT_KEYS", "DbConfig"]

_MIB: Final = 1 << 20

#: Field of :class:`DbConfig` -> key in BookKeeper's configuration, and what one unit of the key is in the field's.
DB_KEYS: Final[Mapping[str, tuple[str, float]]] = {
    "write_cache_bytes": ("dbStorage_writeCacheMaxSizeMb", _MIB),
    "read_cache_bytes": ("dbStorage_readAheadCacheMaxSizeMb", _MIB),
    "read_ahead_entries": ("dbStorage_readAheadCacheBatchSize", 1),
    "read_ahead_bytes": ("dbStorage_readAheadCacheBatchBytesSize", 1),
    "batch_rows_max": ("maxOperationNumbersInSingleRocksdbWriteBatch", 1),
    "rocksdb_write_buffer_bytes": ("dbStorage_rocksDB_writeBufferSizeMB", _MIB),
    "rocksdb_block_cache_bytes": ("dbStorage_rocksDB_blockCacheSize", 1),
}
#: The same of :class:`~simbookie.storage.entry_logs.config.DirectConfig`, which counts where the key below is true.
DIRECT_KEYS: Final[Mapping[str, tuple[str, float]]] = {
    "write_bytes": ("dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB", _MIB),
    "read_bytes": ("dbStorage_directIOEntryLoggerTotalReadBufferSizeMB", _MIB),
    "block_bytes": ("dbStorage_directIOEntryLoggerReadBufferSizeMB", _MIB),
    "idle_s": ("dbStorage_directIOEntryLoggerMaxFdCacheTimeSeconds", SECOND),
}
#: Whether entry logs pass by the page cache.
DIRECT_IO: Final = "dbStorage_directIOEntryLogger"
_GROUP: Final = "db store"


@dataclass(frozen=True, slots=True)
class DbConfig:
    """Limits of a :class:`simbookie.storage.db.store.DbLedgerStore`; :class:`ValueError` for what makes no sense."""

    #: Bytes of both write caches of all folders.
    write_cache_bytes: int = 256 * _MIB
    #: Bytes of the read caches of all folders.
    read_cache_bytes: int = 256 * _MIB
    #: Entries that are read ahead at a time, at most.
    read_ahead_entries: int = 100
    #: Bytes that are read ahead at a time before no further entry is; 0 or less: half of the read cache.
    read_ahead_bytes: int = -1
    #: Changes of the database that are made at once, at most.
    batch_rows_max: int = 100_000
    #: What a database of locations in RocksDB writes to a file at a time, and what it keeps of its files in memory.
    rocksdb_write_buffer_bytes: int = 64 * _MIB
    rocksdb_block_cache_bytes: int = 32 * _MIB
    entry_log: EntryLogConfig = field(default_factory=EntryLogConfig)

    def __post_init__(self) -> None:
        for name in ("write_cache_bytes", "read_cache_bytes", "batch_rows_max", "rocksdb_write_buffer_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{_GROUP}: {name} must be >= 1, got {getattr(self, name)}")
        for name in ("read_ahead_entries", "rocksdb_block_cache_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{_GROUP}: {name} must be >= 0, got {getattr(self, name)}")

    @classmethod
    def from_conf(cls, conf: Mapping[str, str], entry_log: EntryLogConfig | None = None) -> DbConfig:
        """The settings that ``conf`` names by BookKeeper's keys, other keys left alone; :class:`ValueError` if it cannot be.

        A key without a value is as good as none: BookKeeper's own file names the sizes of the caches like that.
        """
        named = {key: value for key, value in conf.items() if value.strip()}
        logs = entry_log if entry_log is not None else EntryLogConfig()
        if parsed(_GROUP, DIRECT_IO, named.get(DIRECT_IO, "false").strip(), bool):
            kinds = {each.name: type(getattr(DirectConfig(), each.name)) for each in fields(DirectConfig)}
            direct = DirectConfig(**values_of(_GROUP, DIRECT_KEYS, named, kinds))  # type: ignore[arg-type]
            logs = replace(logs, direct=direct)
        return cls(entry_log=logs, **values_of(_GROUP, DB_KEYS, named, dict.fromkeys(DB_KEYS, int)))  # type: ignore[arg-type]
