"""Marks of ledgers that lack copies, and the locks by which workers share them: what auto-recovery's programs agree by.

An auditor *marks* a ledger, naming bookies that are without their copies. A worker *locks* a marked ledger, repairs it and
removes the mark, but only if it still is what the worker saw when it locked it: a mark renewed meanwhile has news
that the repair may not have met. Locks are ephemeral, so those of a dead worker disappear. They save work and are
not what makes repairs safe: a worker whose session ended goes on for a while unknowingly, beside the one that took over, and both
change the ledger's metadata by compare-and-set.

Everything lies below ``underreplication``, named and encoded as BookKeeper's own auto-recovery does it, so that both can work
on one cluster side by side::

    LAYOUT                                  type and version of all this
    ledgers/hhhh/hhhh/hhhh/hhhh/urL<id>     a mark; the directories are the id in hexadecimal
    locks/urL<id>                           an ephemeral lock
    disable                                 there while auto-recovery is switched off
    lostBookieRecoveryDelay                 seconds an audit waits for a single lost bookie
    checkallledgersctime, ...               when the last complete checks ended
    auditorelection/V_<number>              see bkclient.repair.underreplication.election
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from bkclient.errors import ArgumentError, MetadataOutcomeUnknown, MetadataSerializationError, MetadataStoreError
from bkclient.ledger import BookieId
from bkclient.metadata.base import Cancel
from bkclient.metadata.paths import LEDGER_ID_MAX, check_ledger_id, under_replicated_ledger_path
from bkclient.metadata.tree import NodeTree
from bkclient.repair.underreplication.formats import (
    check_layout,
    decode_check_time,
    decode_delay,
    decode_holder,
    decode_mark,
    encode_check_time,
    encode_holder,
    encode_layout,
    encode_mark,
)

__all__ = ["CheckKind", "LedgerLock", "LedgerMark", "UnderReplication"]

_BASE: Final = "underreplication"
_LEDGERS: Final = f"{_BASE}/ledgers"
_LOCKS: Final = f"{_BASE}/locks"
_DISABLE: Final = f"{_BASE}/disable"
_DELAY: Final = f"{_BASE}/lostBookieRecoveryDelay"
_DEPTH: Final = 4
_DIRECTORY: Final = re.compile(r"[0-9a-f]{4}")
_MARK: Final = re.compile(r"urL([0-9]{1,19})")
_ATTEMPTS_MAX: Final = 100
"""Conflicts of one change in a row; more than any number of programs causes by accident."""


class CheckKind(Enum):
    """The periodic checks whose times are kept, by the names of their nodes."""

    LEDGERS = "checkallledgersctime"
    PLACEMENT = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"


@dataclass(frozen=True, slots=True)
class LedgerMark:
    """A ledger that lacks copies on the bookies ``missing``; ``marked_ms`` is since 1970, None if unknown."""

    ledger_id: int
    missing: tuple[BookieId, ...]
    marked_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerLock:
    """A mark as it was when its ledger was locked; ``version`` is that of the mark."""

    mark: LedgerMark
    version: int

    @property
    def ledger_id(self) -> int:
        """The locked ledger."""
        return self.mark.ledger_id


class UnderReplication:
    """One program's access to the marks of a cluster.

    ``name`` is what locks say about their holder. ``wall_clock_ms`` tells milliseconds since 1970 for the records. ``rng`` makes
    workers try marks in different orders. Methods raise :class:`~bkclient.errors.MetadataStoreError` if the service does not
    answer and :class:`~bkclient.errors.MetadataSerializationError` for records that cannot be read.
    """

    def __init__(self, tree: NodeTree, *, name: str, wall_clock_ms: Callable[[], int], rng: Random) -> None:
        self._tree = tree
        self._name = name
        self._wall_clock_ms = wall_clock_ms
        self._rng = rng
        self._held: dict[int, LedgerLock] = {}
        #: Ledgers that may be locked by this session although no caller holds them: the answer was lost, or not awaited.
        self._doubtful: dict[int, None] = {}

    async def open(self) -> None:
        """Make what is missing of the directories and check their layout. Call it before everything else."""
        layout = f"{_BASE}/LAYOUT"
        await self._tree.create(layout, encode_layout())
        node = await self._tree.get(layout)
        if node is not None:
            check_layout(node.data)
        for path in (_LEDGERS, _LOCKS):
            await self._tree.create(path)

    # ---- marks ------------------------------------------------------------------------------------------------------

    async def mark(self, ledger_id: int, missing: Collection[BookieId]) -> bool:
        """Mark a ledger, or add to its mark; whether that changed anything. The time of a mark is that of its first."""
        path = _mark_path(ledger_id)
        _check_names(missing)
        named = tuple(dict.fromkeys(missing))
        for _ in range(_ATTEMPTS_MAX):
            node = await self._tree.get(path)
            try:
                if node is None:
                    if await self._tree.create(path, encode_mark(named, self._wall_clock_ms())) is not None:
                        return True
                    continue
                present, marked_ms = _content(node.data)
                merged = tuple(dict.fromkeys((*present, *named)))
                if merged == present:
                    return False
                if await self._tree.write(path, encode_mark(merged, marked_ms), node.version):
                    return True
            except MetadataOutcomeUnknown:
                continue  # reading tells
        raise MetadataStoreError("its mark changes as often as it is read", ledger_id=ledger_id)

    async def marks(self) -> AsyncIterator[LedgerMark]:
        """All marks, by ledger id; not a snapshot. One that cannot be read is a mark that names no bookie."""
        async for ledger_id in self._marked_ids(lambda names: names):
            node = await self._tree.get(_mark_path(ledger_id))
            if node is not None:
                yield LedgerMark(ledger_id, *_content(node.data))

    def watch_marks(self, listener: Callable[[], None]) -> Cancel:
        """Call ``listener`` soon, and when the first ledger is marked. Later marks may go unreported: look now and then."""
        return self._tree.watch(_LEDGERS, listener)

    # ---- locks ------------------------------------------------------------------------------------------------------

    async def acquire(self, *, passing_over: Collection[int] = ()) -> LedgerLock | None:
        """Lock a marked ledger that is not locked, any but those to be passed over; None if there is none.

        Locks of this session that are not held any more, because an earlier call failed half-way, are removed first.
        """
        for ledger_id in [ledger_id for ledger_id in self._doubtful if ledger_id not in self._held]:
            await self._remove_lock(ledger_id)
        locked = {match[1] for name in await self._tree.children(_LOCKS) if (match := _MARK.fullmatch(name))}
        async for ledger_id in self._marked_ids(self._shuffled):
            if f"{ledger_id:010d}" in locked or ledger_id in passing_over:
                continue
            lock = await self.try_lock(ledger_id)
            if lock is not None:
                return lock
        return None

    async def try_lock(self, ledger_id: int) -> LedgerLock | None:
        """Lock a ledger; None if it is not marked or locked already, by this program too."""
        mark_path = _mark_path(ledger_id)
        if ledger_id in self._held:
            return None
        # Read before it is locked: whatever is marked from now on changes the version.
        node = await self._tree.get(mark_path)
        if node is None:
            return None
        lock = LedgerLock(LedgerMark(ledger_id, *_content(node.data)), node.version)
        if not await self._take(ledger_id):
            return None
        del self._doubtful[ledger_id]
        self._held[ledger_id] = lock
        return lock

    async def _take(self, ledger_id: int) -> bool:
        """Make the lock of a ledger, which is doubtful until the caller says otherwise; false if another program has it."""
        path = _lock_path(ledger_id)
        self._doubtful[ledger_id] = None
        if await self._tree.create(path, encode_holder(self._name), is_ephemeral=True) is None:
            present = await self._tree.get(path)
            if present is None or not present.is_own:
                del self._doubtful[ledger_id]
                return False  # otherwise it is this very creation, whose answer was lost
        return True

    async def block(self, ledger_id: int) -> bool:
        """Keep workers from a ledger, whether it is marked or not; false if one is at work on it. Ended by :meth:`unblock`."""
        if ledger_id in self._held or ledger_id in self._doubtful:
            return False
        return await self._take(ledger_id)

    async def unblock(self, ledger_id: int) -> None:
        """Let workers have the ledger again."""
        await self._remove_lock(ledger_id)

    async def release(self, lock: LedgerLock) -> None:
        """Unlock a ledger; its mark stays. Idempotent, and leaves the lock of another session alone.

        If it fails, or is cancelled, the lock is removed by the next :meth:`acquire` or :meth:`release_all`, or with the session.
        """
        self._held.pop(lock.ledger_id, None)
        await self._remove_lock(lock.ledger_id)

    async def release_all(self) -> None:
        """Unlock every ledger that was locked here, and those that may be because a call failed or was cancelled half-way."""
        doubtful = dict.fromkeys((*self._held, *self._doubtful))
        self._held.clear()
        outcomes = await asyncio.gather(*map(self._remove_lock, doubtful), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def mark_replicated(self, lock: LedgerLock) -> bool:
        """Remove the mark if it is the one that was locked, and unlock; whether the ledger is unmarked now."""
        try:
            is_gone = await self._tree.delete(_mark_path(lock.ledger_id), lock.version)
            if is_gone:
                await self._remove_directories(lock.ledger_id)
        finally:
            await self.release(lock)
        return is_gone

    async def holder(self, ledger_id: int) -> str | None:
        """The name of the program that has locked a ledger, None if it is not locked."""
        node = await self._tree.get(_lock_path(ledger_id))
        return None if node is None else decode_holder(node.data)

    # ---- switches and times -----------------------------------------------------------------------------------------

    async def is_enabled(self) -> bool:
        """Whether auto-recovery may work on this cluster."""
        return await self._tree.get(_DISABLE) is None

    async def enable(self) -> None:
        """Let auto-recovery work, in all programs. Idempotent."""
        await self._tree.delete(_DISABLE)

    async def disable(self) -> None:
        """Have all programs pause auto-recovery; what is being copied is finished. Idempotent."""
        await self._tree.create(_DISABLE)

    def watch_enabled(self, listener: Callable[[], None]) -> Cancel:
        """Call ``listener`` soon, and when auto-recovery was switched on or off."""
        return self._tree.watch(_DISABLE, listener)

    async def lost_bookie_recovery_delay_s(self) -> int | None:
        """How long the audit of a single lost bookie waits; None if it was never set."""
        node = await self._tree.get(_DELAY)
        return None if node is None else decode_delay(node.data)

    async def set_lost_bookie_recovery_delay_s(self, delay_s: int, *, only_first: bool = False) -> None:
        """Set the delay for the whole cluster; the present value, and 0, have an auditor audit at once.

        With ``only_first`` a value that is set already stands.
        """
        _check_delay(delay_s)
        await self._put(_DELAY, str(delay_s).encode(), only_first=only_first)

    def watch_lost_bookie_recovery_delay(self, listener: Callable[[], None]) -> Cancel:
        """Call ``listener`` soon, and whenever the delay was set, to the same value too."""
        return self._tree.watch(_DELAY, listener)

    async def lost_bookie_recovery_delay_version(self) -> int:
        """A number that grows each time the delay is set; -1 while it is not."""
        node = await self._tree.get(_DELAY)
        return -1 if node is None else node.version

    async def checked_ms(self, kind: CheckKind) -> int | None:
        """When the last complete check of its kind ended, in milliseconds since 1970; None if there was none."""
        node = await self._tree.get(f"{_BASE}/{kind.value}")
        return None if node is None else decode_check_time(node.data)

    async def set_checked_ms(self, kind: CheckKind, at_ms: int) -> None:
        """Remember the end of a check, for the auditors to come."""
        await self._put(f"{_BASE}/{kind.value}", encode_check_time(at_ms))

    # ---- inside -----------------------------------------------------------------------------------------------------

    async def _remove_lock(self, ledger_id: int) -> None:
        self._doubtful[ledger_id] = None
        path = _lock_path(ledger_id)
        present = await self._tree.get(path)
        if present is not None and present.is_own:
            await self._tree.delete(path, present.version)
        self._doubtful.pop(ledger_id, None)

    async def _put(self, path: str, data: bytes, *, only_first: bool = False) -> None:
        for _ in range(_ATTEMPTS_MAX):
            if await self._tree.create(path, data) is not None or only_first:
                return
            node = await self._tree.get(path)
            try:
                if node is not None and await self._tree.write(path, data, node.version):
                    return
            except MetadataOutcomeUnknown:
                continue  # writing the same again does no harm
        raise MetadataStoreError(f"{path} changes as often as it is read")

    async def _marked_ids(self, ordered: Callable[[list[str]], list[str]]) -> AsyncIterator[int]:
        directories = [(_LEDGERS, 0)]
        while directories:
            directory, depth = directories.pop()
            names = ordered(await self._tree.children(directory))
            if depth < _DEPTH:
                directories += [(f"{directory}/{name}", depth + 1) for name in reversed(names) if _is_directory(name)]
                continue
            for name in names:
                match = _MARK.fullmatch(name)
                if match is not None and int(match[1]) <= LEDGER_ID_MAX:
                    yield int(match[1])

    def _shuffled(self, names: list[str]) -> list[str]:
        self._rng.shuffle(names)
        return names

    async def _remove_directories(self, ledger_id: int) -> None:
        """Best effort, as all programs do it: an empty directory does no harm."""
        directory = _mark_path(ledger_id)
        for _ in range(_DEPTH):
            directory = directory.rpartition("/")[0]
            if not await self._tree.delete(directory):
                return


def _check_names(missing: object) -> None:
    is_one = isinstance(missing, str | bytes)
    if is_one or not isinstance(missing, Collection) or not all(isinstance(name, str) for name in missing):
        raise ArgumentError(f"missing must be a collection of bookie ids, got {missing!r}")


def _check_delay(delay_s: object) -> None:
    if isinstance(delay_s, bool) or not isinstance(delay_s, int) or not 0 <= delay_s < 2**31:
        raise ArgumentError(f"delay_s must be a whole number of seconds >= 0, got {delay_s!r}")


def _content(data: bytes) -> tuple[tuple[BookieId, ...], int | None]:
    """What a mark says. That it is there is what counts: an unreadable one must neither stop workers nor stay for ever."""
    try:
        return decode_mark(data)
    except MetadataSerializationError:
        return (), None


def _is_directory(name: str) -> bool:
    return _DIRECTORY.fullmatch(name) is not None


def _mark_path(ledger_id: int) -> str:
    return under_replicated_ledger_path("", ledger_id).removeprefix("/")


def _lock_path(ledger_id: int) -> str:
    return f"{_LOCKS}/urL{check_ledger_id(ledger_id):010d}"
