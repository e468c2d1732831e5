"""A :class:`~simbookie.storage.db.key_value.KeyValueStore` in RocksDB. BookKeeper's bookies open ours, and we open theirs.

What decides about the bytes is set as BookKeeper sets it: the order of keys (bytes), the version of the tables' format, their
checksums, compression and Bloom filters. RocksDB's log survives the end of the process without a sync, and a batch is one
record of it.

Writes and reads are calls on the loop's thread; they meet memory, mostly. Syncs run on a thread. The binding is the package
``rocksdict``, which only this module needs; it leaves a small file of its own in the folder, which RocksDB does not mind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from simbookie.storage.base import DurableCallback, StorageError, StorageIOError
from simbookie.storage.db.key_value import KeyValueBatch, OpenDatabase
from simbookie.storage.db.settings import DbConfig

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, WriteBatch

__all__ = ["RocksDatabase", "RocksDbMissing", "is_rocks_database", "require_rocksdb", "rocks_databases"]

_MIB: Final = 1 << 20
#: Every database has this file; and the binding leaves the other one, wherever it is used.
_CURRENT: Final = "CURRENT"
_OWN_FILE: Final = "rocksdict-config.json"
#: The newest that every supported release of BookKeeper reads.
_TABLE_FORMAT: Final = 5
_BLOOM_BITS_PER_KEY: Final = 10
_BLOCK_BYTES: Final = 64 << 10


class RocksDbMissing(StorageError):
    """The package that brings RocksDB is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "a store with a database needs the package rocksdict, which is not installed; "
            "run: pip install 'bkclient[rocksdb]'"
        )


def require_rocksdb() -> None:
    """:class:`RocksDbMissing` without the package, before anything is begun."""
    try:
        import_module("rocksdict")
    except ModuleNotFoundError as error:
        if error.name != "rocksdict":
            raise
        raise RocksDbMissing from None


def rocks_databases(folder: Path, config: DbConfig | None = None) -> OpenDatabase:
    """Opens databases in a folder of the file system."""
    return lambda name: RocksDatabase(folder / name, many_rows=name == "locations", config=config)


def is_rocks_database(path: Path) -> bool:
    """Whether a folder holds the files of one."""
    return (path / _CURRENT).is_file()


class RocksDatabase:
    """Implements :class:`simbookie.storage.db.key_value.KeyValueStore`; made in ``path`` if it is missing.

    ``many_rows`` has it laid out for very many, with the buffers that ``config`` grants. With ``is_read_only`` nothing is made
    or changed, and another process may have it open. :class:`RocksDbMissing` without the package, and
    :class:`~simbookie.storage.base.StorageIOError` if another process has it open, or it is damaged.
    """

    def __init__(
        self, path: Path, *, many_rows: bool = True, is_read_only: bool = False, config: DbConfig | None = None
    ) -> None:
        require_rocksdb()
        self._path = path
        rows_in = (config if config is not None else DbConfig()) if many_rows else None
        with self._errors("open"):
            self._database = _opened_to_read(path) if is_read_only else _opened(path, rows_in)
        self._is_dirty = False
        self._failed: StorageIOError | None = None
        #: What is under way on threads.
        self._syncing = 0
        self._is_closed = False

    @contextmanager
    def _errors(self, what: str) -> Generator[None]:
        try:
            yield
        except Exception as error:  # the binding raises nothing narrower
            raise StorageIOError(f"could not {what} the database {self._path}: {error}") from error

    # ----------------------------------------------------------------------------------------------------------- reads

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        with self._errors("read"):
            return cast("bytes | None", self._database.get(key))

    def last_before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The highest key before ``key``."""
        with self._errors("read"):
            rows = self._database.iter()
            rows.seek_for_prev(key)
            if rows.valid() and rows.key() == key:
                rows.prev()
            rows.status()
            return (rows.key(), rows.value()) if rows.valid() else None

    def items(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys from ``first`` to before ``end``."""
        with self._errors("read"):
            rows = self._database.iter()
            rows.seek(first)
        while True:
            with self._errors("read"):
                if not rows.valid():
                    rows.status()
                    return
                key, value = rows.key(), rows.value()
                rows.next()
            if end is not None and key >= end:
                return
            yield key, value

    # --------------------------------------------------------------------------------------------------------- changes

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value."""
        self._is_dirty = True
        with self._errors("write"):
            self._database.put(key, value)

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        self._is_dirty = True
        with self._errors("write"):
            self._database.delete(key)

    def write(self, batch: KeyValueBatch, on_done: DurableCallback, token: object) -> None:
        """Carry out a batch, then sync it."""
        self._is_dirty = True
        try:
            with self._errors("write"):
                made = _new_batch()
                for change in batch.changes:
                    if len(change) == 3:
                        made.delete_range(change[0], change[1])
                    elif change[1] is None:
                        made.delete(change[0])
                    else:
                        made.put(change[0], change[1])
                self._database.write(made)
        except StorageIOError as error:
            self._call_back(on_done, token, error)
        else:
            self.sync(on_done, token)

    def sync(self, on_done: DurableCallback, token: object) -> None:
        """Make durable what was changed."""
        if self._failed is not None or not (self._is_dirty or self._syncing):
            self._call_back(on_done, token, self._failed)
            return
        self._is_dirty = False
        self._syncing += 1

        def synced(outcome: asyncio.Future[None]) -> None:
            self._syncing -= 1
            error = outcome.exception()
            if isinstance(error, StorageIOError):
                self._failed = error
            if self._is_closed:
                self._close_if_idle()
            else:
                on_done(token, self._failed)

        asyncio.get_running_loop().run_in_executor(None, self._sync).add_done_callback(synced)

    def _sync(self) -> None:
        with self._errors("sync"):
            self._database.flush_wal(sync=True)

    def compact(self, on_done: DurableCallback, token: object) -> None:
        """Compact all rows, on a thread."""
        self._syncing += 1

        def compacted(outcome: asyncio.Future[None]) -> None:
            self._syncing -= 1
            error = outcome.exception()
            if self._is_closed:
                self._close_if_idle()
            else:
                on_done(token, error if isinstance(error, StorageIOError) else None)

        asyncio.get_running_loop().run_in_executor(None, self._compact).add_done_callback(compacted)

    def _compact(self) -> None:
        with self._errors("compact"):
            self._database.compact_range(None, None)

    def _call_back(self, on_done: DurableCallback, token: object, error: StorageIOError | None) -> None:
        def call() -> None:
            if not self._is_closed:
                on_done(token, error)

        asyncio.get_running_loop().call_soon(call)

    def close(self) -> None:
        """Let go of the folder, after a sync that is under way."""
        self._is_closed = True
        self._close_if_idle()

    def crash(self) -> None:
        """The same: RocksDB's log has what was written."""
        self.close()

    def _close_if_idle(self) -> None:
        if not self._syncing:
            with self._errors("close"):
                self._database.close()


def _opened(path: Path, rows_in: DbConfig | None) -> Rdict:
    from rocksdict import Rdict  # noqa: PLC0415  optional

    path.mkdir(parents=True, exist_ok=True)
    return Rdict(str(path), _options(rows_in))


def _opened_to_read(path: Path) -> Rdict:
    from rocksdict import AccessType, Options, Rdict  # noqa: PLC0415  optional

    own_file = path / _OWN_FILE
    was_there = own_file.exists()
    if not (path / _CURRENT).exists():
        raise FileNotFoundError("there is none")
    try:
        return Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only(error_if_log_file_exist=False))
    finally:
        if not was_there:
            own_file.unlink(missing_ok=True)


def _new_batch() -> WriteBatch:
    from rocksdict import WriteBatch  # noqa: PLC0415  optional

    return WriteBatch(raw_mode=True)


def _options(rows_in: DbConfig | None) -> Options:
    """Those for very many rows, with its buffers, or for few."""
    from rocksdict import BlockBasedOptions, Cache, ChecksumType, DBCompressionType, Options  # noqa: PLC0415  optional

    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_keep_log_file_num(30)
    tables = BlockBasedOptions()
    tables.set_format_version(_TABLE_FORMAT)
    tables.set_checksum_type(ChecksumType.xxhash())
    if rows_in is not None:
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(rows_in.rocksdb_write_buffer_bytes)
        options.set_max_write_buffer_number(4)
        options.set_max_total_wal_size(512 * _MIB)
        options.set_max_bytes_for_level_base(256 * _MIB)
        options.set_target_file_size_base(64 * _MIB)
        options.set_level_compaction_dynamic_level_bytes(True)
        tables.set_block_size(_BLOCK_BYTES)
        tables.set_block_cache(Cache(rows_in.rocksdb_block_cache_bytes))
        tables.set_bloom_filter(_BLOOM_BITS_PER_KEY, block_based=False)
        tables.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(tables)
    return options
