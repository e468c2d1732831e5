"""The ledgers of a running bookie: keys, fences, LACs, and the memory of ledgers that are gone.

A :class:`LedgerHandle` is what a running bookie knows of a ledger besides its entries. It is made when a request first touches
the ledger, from what the storage knows, and dies with the process. Rules kept here and nowhere else:

* the first keyed request for an unknown ledger creates it with that key; every later one must present an equal key;
* a ledger once fenced stays fenced, and a fence counts as durable only when its record is;
* the known LAC never falls while the bookie runs;
* a ledger that was fenced and then deleted is remembered for a while, so that a late add cannot bring it back unfenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from bkclient.wire.messages import Status
from simbookie.config import BookieConfig
from simbookie.observer import BookieObserver
from simbookie.storage.base import (
    DurableCallback,
    LedgerStorage,
    StorageError,
    StorageIOError,
    WriteCacheFull,
)

__all__ = ["FencedGraveyard", "LedgerHandle", "LedgerTable", "LimboTold", "status_of"]

WakeUp = Callable[["LedgerHandle", bool], None]
"""``(handle, everyone)``: the LAC rose, or everyone who waits for it need wait no longer."""


def status_of(error: StorageError) -> Status:
    """What a client is told about a failure of the storage."""
    if isinstance(error, WriteCacheFull):
        return Status.TOO_MANY_REQUESTS
    return Status.IO_ERROR if isinstance(error, StorageIOError) else Status.BAD_REQUEST


class _Fence(Enum):
    NONE = auto()
    PENDING = auto()
    DURABLE = auto()
    #: Set in memory, but the record could not be written; the next fencing request tries again.
    FAILED = auto()


_FENCING: Final = (_Fence.PENDING, _Fence.DURABLE)


class LedgerHandle:
    """One ledger on a running bookie.

    ``master_key`` is ``None`` while no keyed request has come for a ledger that only a repair has spoken of. ``polls`` are the
    long polls that wait for the LAC, in order of arrival.
    """

    __slots__ = (
        "fence_state",
        "fence_waiters",
        "fenced",
        "fenced_by",
        "in_limbo",
        "lac",
        "ledger_id",
        "master_key",
        "polls",
    )

    def __init__(self, ledger_id: int, master_key: bytes | None, lac: int, *, fenced: bool, in_limbo: bool) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        self.lac = lac
        self.fenced = fenced
        self.in_limbo = in_limbo
        self.fence_state = _Fence.DURABLE if fenced else _Fence.NONE
        self.fenced_by = ""
        self.fence_waiters: list[tuple[DurableCallback, object]] = []
        self.polls: dict[Any, None] = {}


class FencedGraveyard:
    """Ids of ledgers that were fenced and then deleted, each kept until it was not asked for for a while."""

    def __init__(self, keep_s: float, size_max: int) -> None:
        self._keep_s = keep_s
        self._size_max = size_max
        self._last_access: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._last_access)

    def bury(self, ledger_id: int, now: float) -> None:
        """Remember the ledger; forgets the one not asked for longest when there are too many."""
        self._last_access.pop(ledger_id, None)
        self._last_access[ledger_id] = now
        if len(self._last_access) > self._size_max:
            del self._last_access[next(iter(self._last_access))]

    def holds(self, ledger_id: int, now: float) -> bool:
        """Whether the ledger is remembered; asking counts as an access."""
        last_access = self._last_access.pop(ledger_id, None)
        if last_access is None or now - last_access >= self._keep_s:
            return False
        self._last_access[ledger_id] = now
        return True


def _wake_nobody(_handle: LedgerHandle, _everyone: bool) -> None:  # noqa: FBT001
    """Stands in until somebody listens."""


class LedgerTable:
    """All handles of one run of a bookie."""

    def __init__(self, storage: LedgerStorage, config: BookieConfig, observer: BookieObserver | None) -> None:
        self._storage = storage
        self._observer = observer
        self._wake: WakeUp = _wake_nobody
        self._loop = asyncio.get_running_loop()
        self._graveyard = FencedGraveyard(config.deleted_memory_s, config.deleted_memory_max)
        self._master_key_bytes_max = config.master_key_bytes_max
        self.handles: dict[int, LedgerHandle] = {}
        #: False once the bookie has stopped; the table of its next run is another one.
        self.is_alive = True

    def on_wake(self, wake: WakeUp) -> None:
        """Call ``wake`` for a ledger with long polls whenever these may have something to see."""
        self._wake = wake

    def find(self, ledger_id: int) -> LedgerHandle | None:
        """The handle of a ledger that exists on this bookie."""
        handle = self.handles.get(ledger_id)
        if handle is None:
            info = self._storage.ledger(ledger_id)
            if info is not None:
                handle = LedgerHandle(ledger_id, info.master_key, info.lac, fenced=info.fenced, in_limbo=info.in_limbo)
                self.handles[ledger_id] = handle
        return handle

    def open(self, ledger_id: int, master_key: bytes) -> LedgerHandle | Status:
        """The handle for a request that presents a key, creating the ledger if it is unknown.

        ``NO_LEDGER``: fenced and deleted before. ``UNAUTHORIZED``: the key is not the ledger's. ``BAD_REQUEST``: the key is too
        long for a ledger that has none yet. Otherwise the storage refused.
        """
        handle = self.handles.get(ledger_id)
        if handle is not None and handle.master_key == master_key:
            return handle
        if handle is None:
            handle = self.find(ledger_id)
        if handle is None:
            if self._graveyard.holds(ledger_id, self._loop.time()):
                return Status.NO_LEDGER
            return self._give_key(LedgerHandle(ledger_id, None, -1, fenced=False, in_limbo=False), master_key)
        if handle.master_key is None:
            return self._give_key(handle, master_key)
        return handle if handle.master_key == master_key else Status.UNAUTHORIZED

    def _give_key(self, handle: LedgerHandle, master_key: bytes) -> LedgerHandle | Status:
        if len(master_key) > self._master_key_bytes_max:
            return Status.BAD_REQUEST
        try:
            self._storage.set_master_key(handle.ledger_id, master_key)
        except StorageError as error:
            return status_of(error)
        handle.master_key = master_key
        self.handles[handle.ledger_id] = handle
        return handle

    def fence(self, handle: LedgerHandle, source: str) -> None:
        """Fence the ledger and wake everyone who waits for its LAC; nothing happens the second time."""
        if handle.fence_state in _FENCING:
            return
        is_first = handle.fence_state is _Fence.NONE
        handle.fenced = True
        handle.fence_state = _Fence.PENDING
        if is_first:
            handle.fenced_by = source
            if self._observer is not None:
                self._observer.fence_set(handle.ledger_id, source, False)  # noqa: FBT003
        try:
            self._storage.fence(handle.ledger_id, self._fence_is_durable, handle)
        except StorageError as error:
            self._fence_is_durable(handle, error)
        if handle.polls:
            self._wake(handle, True)  # noqa: FBT003

    def when_fence_is_durable(self, handle: LedgerHandle, callback: DurableCallback, token: object) -> None:
        """Call back once the fence record is safe (at once if it is) or could not be written."""
        assert handle.fenced, f"ledger {handle.ledger_id} is not fenced"
        if handle.fence_state is _Fence.DURABLE:
            callback(token, None)
        elif handle.fence_state is _Fence.PENDING:
            handle.fence_waiters.append((callback, token))
        else:
            callback(token, StorageIOError("the fence record could not be written"))

    def _fence_is_durable(self, handle: LedgerHandle, error: StorageError | None) -> None:
        handle.fence_state = _Fence.DURABLE if error is None else _Fence.FAILED
        if error is None and self._observer is not None:
            self._observer.fence_set(handle.ledger_id, handle.fenced_by, True)  # noqa: FBT003
        waiters, handle.fence_waiters = handle.fence_waiters, []
        for callback, token in waiters:
            if not self.is_alive:  # one of them crashed the bookie
                return
            callback(token, error)

    def advance_lac(self, handle: LedgerHandle, lac: int) -> None:
        """Raise the known LAC to ``lac`` if that is higher."""
        if lac > handle.lac:
            handle.lac = lac
            if self._observer is not None:
                self._observer.lac_advanced(handle.ledger_id, lac)
            if handle.polls:
                self._wake(handle, False)  # noqa: FBT003

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> LedgerHandle:
        """Note whether this bookie can vouch for the ledger's content; in limbo, an unknown ledger is created without a key."""
        handle = self.find(ledger_id)
        if handle is None:
            handle = LedgerHandle(ledger_id, None, -1, fenced=False, in_limbo=False)
        if handle.in_limbo != in_limbo:
            self.handles[ledger_id] = handle
            handle.in_limbo = in_limbo
            self._storage.set_limbo(ledger_id, in_limbo=in_limbo)
            if self._observer is not None:
                self._observer.limbo_changed(ledger_id, in_limbo)
        return handle

    def delete(self, ledger_id: int) -> bool:
        """Remove the ledger; false if there is none. Remembered if it was fenced."""
        handle = self.find(ledger_id)
        if handle is None:
            return False
        if handle.fenced:
            self._graveyard.bury(ledger_id, self._loop.time())
        del self.handles[ledger_id]
        self._storage.delete_ledger(ledger_id)
        if self._observer is not None:
            self._observer.ledger_deleted(ledger_id)
        if handle.polls:
            self._wake(handle, True)  # noqa: FBT003
        return True


class LimboTold:
    """What the observer was told last of ledgers that entered or left limbo; not durable at once, so a crash may forget it."""

    def __init__(self, observer: BookieObserver | None) -> None:
        self.last: dict[int, bool] = {}
        self._observer = observer

    def correct(self, storage: LedgerStorage) -> None:
        """Tell what the storage says otherwise, after a restart."""
        for ledger_id, told in sorted(self.last.items()):
            info = storage.ledger(ledger_id)
            in_limbo = info is not None and info.in_limbo
            if in_limbo != told:
                self.last[ledger_id] = in_limbo
                if self._observer is not None:
                    self._observer.limbo_changed(ledger_id, in_limbo)
