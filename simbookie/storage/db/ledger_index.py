"""What is known of each ledger: the database ``ledgers``, and all of it in memory.

A key is a ledger id, 8 bytes big-endian; a value is a ``LedgerData`` (``ledger_data.proto``). Negative keys are no ledgers: a
bookie of BookKeeper keeps flags under one of them, which stay as they are. What changes is changed in memory, and waits for a
flush.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from simbookie.storage.base import DurableCallback, StorageIOError
from simbookie.storage.db.key_value import KeyValueStore
from simbookie.storage.db.ledger_data_pb2 import LedgerData
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence, WaitingStep

__all__ = ["LedgerIndex", "LedgerRecord", "ledger_key", "parse_ledger_id"]

_KEY: Final = Struct(">q")


def ledger_key(ledger_id: int) -> bytes:
    """The key of a ledger."""
    return _KEY.pack(ledger_id)


def parse_ledger_id(key: bytes) -> int:
    """The ledger of a key, negative if it is none's; :class:`~simbookie.storage.base.StorageIOError` if it is no key."""
    if len(key) != _KEY.size:
        raise StorageIOError(f"the key of a ledger has {_KEY.size} bytes, got {len(key)}")
    ledger_id: int = _KEY.unpack(key)[0]
    return ledger_id


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What is known of a ledger apart from its entries. Without a key, the key is ``None``, and empty in the database."""

    master_key: bytes | None = field(default=None, repr=False)
    fenced: bool = False
    in_limbo: bool = False
    explicit_lac: bytes | None = field(default=None, repr=False)

    def encode(self) -> bytes:
        """The value."""
        data = LedgerData(exists=True, fenced=self.fenced, masterKey=self.master_key or b"")
        if self.explicit_lac is not None:
            data.explicitLac = self.explicit_lac
        if self.in_limbo:
            data.limbo = True
        return data.SerializeToString()

    @classmethod
    def decode(cls, value: bytes) -> LedgerRecord:
        """The record of a value; :class:`~simbookie.storage.base.StorageIOError` if it is damaged."""
        try:
            data = LedgerData.FromString(value)
        except DecodeError as error:
            raise StorageIOError(f"what is known of a ledger is damaged: {error}") from error
        return cls(
            data.masterKey or None,
            data.fenced,
            data.limbo,
            data.explicitLac if data.HasField("explicitLac") else None,
        )


class LedgerIndex:
    """What is known of all ledgers of a store; a ledger that a method names must exist unless said otherwise."""

    def __init__(self, database: KeyValueStore, quirks: frozenset[Quirk] = REPAIRED) -> None:
        self.database = database
        self._drops_unwritten = Quirk.LEDGER_CHANGES_DROPPED in quirks
        self._records: dict[int, LedgerRecord] = {}
        for key, value in database.items():
            ledger_id = parse_ledger_id(key)
            if ledger_id >= 0:
                self._records[ledger_id] = LedgerRecord.decode(value)
        #: What is not durable.
        self._changed: dict[int, LedgerRecord] = {}
        self._deleted: dict[int, None] = {}
        self._writing: Sequence | None = None

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._records

    def get(self, ledger_id: int) -> LedgerRecord | None:
        """What is known of a ledger, if anything."""
        return self._records.get(ledger_id)

    def ledger_ids(self) -> list[int]:
        """All ledgers, ascending."""
        return sorted(self._records)

    def _set(self, ledger_id: int, record: LedgerRecord) -> None:
        self._records[ledger_id] = self._changed[ledger_id] = record
        self._deleted.pop(ledger_id, None)

    def set_master_key(self, ledger_id: int, master_key: bytes) -> None:
        """Create the ledger with this key, or give it the key."""
        known = self._records.get(ledger_id)
        self._set(ledger_id, replace(known, master_key=master_key) if known is not None else LedgerRecord(master_key))

    def set_fenced(self, ledger_id: int) -> bool:
        """Fence the ledger; returns whether it was not."""
        known = self._records[ledger_id]
        if known.fenced:
            return False
        self._set(ledger_id, replace(known, fenced=True))
        return True

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether the ledger is in limbo; it is created without a key if it does not exist."""
        self._set(ledger_id, replace(self._records.get(ledger_id, LedgerRecord()), in_limbo=in_limbo))

    def set_explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """Keep the packet."""
        self._set(ledger_id, replace(self._records[ledger_id], explicit_lac=packet))

    def delete(self, ledger_id: int) -> None:
        """Forget the ledger."""
        self._records.pop(ledger_id, None)
        self._changed.pop(ledger_id, None)
        self._deleted[ledger_id] = None

    # ------------------------------------------------------------------------------------------------------- flushing

    def flush(self, on_done: DurableCallback) -> None:
        """Make durable what was changed before the call, deletions apart."""
        self._writing = Sequence(self._flush_steps(), on_done, None)

    def _flush_steps(self) -> Iterator[WaitingStep]:
        written = dict(self._changed)
        if self._drops_unwritten:
            self._changed.clear()

        def put(go_on: DurableCallback) -> None:
            try:
                for ledger_id, record in written.items():
                    self.database.put(ledger_key(ledger_id), record.encode())
            except StorageIOError as error:
                go_on(None, error)
            else:
                go_on(None, None)

        yield put
        yield lambda go_on: self.database.sync(go_on, None)
        for ledger_id, record in written.items():
            if self._changed.get(ledger_id) is record:
                del self._changed[ledger_id]

    def remove_deleted(self, ledger_ids: Iterable[int], on_done: DurableCallback) -> None:
        """Remove the rows of these, where they are deleted.

        Their locations must be gone: those of a ledger without a row would be another ledger's some day.
        """
        removed = [ledger_id for ledger_id in ledger_ids if ledger_id in self._deleted]
        self._writing = Sequence(self._removal_steps(removed), on_done, None)

    def _removal_steps(self, removed: list[int]) -> Iterator[WaitingStep]:
        if not removed:
            return

        def delete(go_on: DurableCallback) -> None:
            try:
                for ledger_id in removed:
                    if ledger_id in self._deleted:
                        self.database.delete(ledger_key(ledger_id))
            except StorageIOError as error:
                go_on(None, error)
            else:
                go_on(None, None)

        yield delete
        yield lambda go_on: self.database.sync(go_on, None)
        for ledger_id in removed:
            self._deleted.pop(ledger_id, None)

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
