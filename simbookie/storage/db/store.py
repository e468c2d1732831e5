"""A ledger store with write caches, read caches and an index in a database: BookKeeper's ``DbLedgerStorage``.

There is one part for each folder (:mod:`simbookie.storage.db.shard`), and every ledger belongs to one of them, by its id. The
parts share nothing: while one is full, the others take entries. Checkpoints are made at intervals, and go through the parts
one after the other.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from simbookie.storage.base import CrashMode, DurableCallback, LedgerInfo, ReadCallback, StorageError
from simbookie.storage.db.key_value import KeyValueStore, OpenDatabase
from simbookie.storage.db.log_database import LogDatabase
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.shard import DbShard
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.ledger_store import Checkpoint, OnStep, StoreOwner, no_step
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence

__all__ = ["DbLedgerStore"]


class DbLedgerStore:
    """Implements :class:`simbookie.storage.ledger_store.LedgerStore`; see there for the meaning of the methods.

    ``databases`` tells how to open those of a folder; without, they are kept on its disk, in no format that BookKeeper knows.
    The databases of each folder are in the one at the same place of ``index_folders``, or in itself.
    """

    def __init__(
        self,
        folders: Folders,
        config: DbConfig | None = None,
        *,
        databases: Callable[[Folder], OpenDatabase] | None = None,
        index_folders: Folders | None = None,
        on_step: OnStep = no_step,
        quirks: frozenset[Quirk] = REPAIRED,
    ) -> None:
        self.config = config if config is not None else DbConfig()
        count = len(folders.all)
        share = replace(
            self.config,
            write_cache_bytes=self.config.write_cache_bytes // count,
            read_cache_bytes=self.config.read_cache_bytes // count,
            entry_log=_share_of_logs(self.config.entry_log, count),
        )

        def logs(folder: Folder) -> OpenDatabase:
            def open_log(name: str) -> KeyValueStore:
                return LogDatabase(Folder(folder.disk, folder.file(name)), on_step=on_step)

            return open_log

        of_folder = databases if databases is not None else logs
        self.shards = [
            DbShard(each, share, of_folder(index), is_only=count == 1, on_step=on_step, quirks=quirks)
            for each, index in zip(folders.each_alone(), (index_folders or folders).all, strict=True)
        ]
        self._flushing: Sequence | None = None

    @property
    def asks_for_checkpoints(self) -> bool:
        """It does not."""
        return False

    @property
    def collected(self) -> list[DbShard]:
        """All parts."""
        return self.shards

    def open(self, owner: StoreOwner) -> None:
        """Open all parts."""
        opened: list[DbShard] = []
        try:
            for shard in self.shards:
                shard.open(owner)
                opened.append(shard)
        except StorageError:
            for shard in opened:
                shard.close()
            raise

    def close(self) -> None:
        """Let go of all files."""
        self._cancel()
        for shard in self.shards:
            shard.close()

    def crash(self, mode: CrashMode) -> None:
        """Forget what is in memory."""
        self._cancel()
        for shard in self.shards:
            shard.crash(mode)

    def _cancel(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._flushing = None

    def shard(self, ledger_id: int) -> DbShard:
        """The part that a ledger belongs to."""
        return self.shards[ledger_id % len(self.shards)]

    def ledger(self, ledger_id: int) -> LedgerInfo | None:
        """What is known of a ledger."""
        return self.shard(ledger_id).ledger(ledger_id)

    def set_master_key(self, ledger_id: int, master_key: bytes) -> None:
        """Create the ledger, or give it its key."""
        self.shard(ledger_id).set_master_key(ledger_id, master_key)

    def set_fenced(self, ledger_id: int) -> bool:
        """Fence the ledger."""
        return self.shard(ledger_id).set_fenced(ledger_id)

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether the ledger's content is uncertain."""
        self.shard(ledger_id).set_limbo(ledger_id, in_limbo=in_limbo)

    def set_explicit_lac(self, ledger_id: int, lac: int, body: bytes) -> None:
        """Keep the packet."""
        self.shard(ledger_id).set_explicit_lac(ledger_id, lac, body)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The packet kept last."""
        return self.shard(ledger_id).explicit_lac(ledger_id)

    def add_entry(self, ledger_id: int, entry_id: int, body: bytes) -> None:
        """Put an entry into the write cache of its part."""
        self.shard(ledger_id).add_entry(ledger_id, entry_id, body)

    def read_entry(self, ledger_id: int, entry_id: int, on_read: ReadCallback, token: object) -> None:
        """Look up an entry."""
        self.shard(ledger_id).read_entry(ledger_id, entry_id, on_read, token)

    def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of the stored entries, ascending."""
        return self.shard(ledger_id).entry_ids(ledger_id)

    def count_runs(self, ledger_id: int) -> int:
        """How many runs there are."""
        return self.shard(ledger_id).count_runs(ledger_id)

    def entry_runs(self, ledger_id: int) -> tuple[array[int], array[int]]:
        """The first and the last ids of the runs."""
        return self.shard(ledger_id).entry_runs(ledger_id)

    def ledger_ids(self) -> list[int]:
        """All ledgers, ascending."""
        return sorted(ledger_id for shard in self.shards for ledger_id in shard.ledger_ids())

    def delete_ledger(self, ledger_id: int) -> None:
        """Forget the ledger."""
        self.shard(ledger_id).delete_ledger(ledger_id)

    def checkpoint(self, checkpoint: Checkpoint, on_done: DurableCallback, token: object) -> None:
        """Make one of each part, in turn."""
        self._flushing = Sequence(
            [partial(_in_turn, partial(shard.checkpoint, checkpoint)) for shard in self.shards], on_done, token
        )

    def flush(self, on_done: DurableCallback, token: object) -> None:
        """Flush each part, in turn."""
        self._flushing = Sequence([partial(_in_turn, shard.flush) for shard in self.shards], on_done, token)


def _in_turn(act: Callable[[DurableCallback, object], None], go_on: DurableCallback) -> None:
    act(go_on, None)


def _share_of_logs(config: EntryLogConfig, count: int) -> EntryLogConfig:
    """What each of ``count`` parts has of the buffers of direct logs; one block it has at least."""
    direct = config.direct
    if direct is None:
        return config
    read_bytes = max(direct.read_bytes // count, direct.block_bytes)
    return replace(
        config, direct=replace(direct, write_bytes=max(direct.write_bytes // count, 1), read_bytes=read_bytes)
    )
