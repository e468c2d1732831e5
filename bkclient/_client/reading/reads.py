"""The reads that every handle of a ledger offers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import anyio

from bkclient._backoff import Backoff
from bkclient._client.arguments import LARGEST_ID, check_duration, check_flag
from bkclient._client.core import ClientCore
from bkclient._client.rate_limit import RateLimit
from bkclient._client.reading.batches import read_batch
from bkclient._client.reading.entry_reads import EntryReads, LedgerView, ReadOperation
from bkclient._client.reading.lac import read_last_add_confirmed, try_read_last_add_confirmed
from bkclient._client.reading.polls import Polls
from bkclient._client.reading.window import ReadWindow
from bkclient.entry import Entries, Entry, EntryResult, LastConfirmedAndEntry
from bkclient.errors import ArgumentError, BookKeeperError, ClientClosed, NoSuchEntry, ReadFailed
from bkclient.wire.entry import EntryCodec

__all__ = ["LedgerReads"]

#: A bookie keeps a long poll in memory, so there has to be an end; callers that wait longer poll again.
_LONGEST_POLL_S: Final = 3600.0
#: Between two looks at the LAC where the protocol has no long polls.
_LOOKS: Final = Backoff(0.01, 0.5)


class LedgerReads:
    """Reads of one ledger.

    Reads go up to :attr:`last_add_confirmed`, as this handle knows it when they are called; the entries they return are
    acknowledged and permanent. With ``unconfirmed=True`` they may also return entries that were never acknowledged, which a
    recovery may drop later.

    An entry is read from one replica; the next replica is asked if that one fails or is late. ``parallel=True`` asks all
    replicas at once and takes the first answer.
    """

    __module__ = "bkclient"

    # The owner of the ledger's metadata makes this object, with its view of them, and tells the polls when they changed. The rate
    # limit is shared with whatever else the handle sends.

    def __init__(
        self, core: ClientCore, view: LedgerView, codec: EntryCodec, throttle: RateLimit | None = None
    ) -> None:
        self._core = core
        self._view = view
        self._codec = codec
        self._reads = EntryReads(core, view, codec, throttle)
        self._polls = Polls(self._reads)

    def __repr__(self) -> str:
        return f"<LedgerReads ledger_id={self.ledger_id} last_add_confirmed={self.last_add_confirmed}>"

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        return self._codec.ledger_id

    @property
    def last_add_confirmed(self) -> int:
        """The highest entry id that confirmed reads may read; -1 for none. Never decreases while the ledger is whole."""
        return self._view.last_add_confirmed

    # Single entries and ranges -----------------------------------------------------------------------------------

    async def read(self, entry_id: int, *, unconfirmed: bool = False, parallel: bool = False) -> Entry:
        """Read one entry.

        Raises :class:`~bkclient.errors.ReadFailed` for an id above :attr:`last_add_confirmed`, even if the ledger has grown
        since: :meth:`read_last_add_confirmed` refreshes it. ``unconfirmed`` reads any id. Raises
        :class:`~bkclient.errors.NoSuchEntry` when every replica denies the entry,
        :class:`~bkclient.errors.NoSuchLedgerOnBookie` when the bookie asked last has nothing of the ledger, and otherwise the
        most specific error of its replicas.
        """
        self._check_range(entry_id, entry_id, unconfirmed=unconfirmed)
        return await self._read(entry_id, parallel=parallel)

    async def _read(self, entry_id: int, *, parallel: bool) -> Entry:
        check_flag("parallel", parallel)
        reads = self._reads
        operation = (
            await reads.begin(entry_id, parallel=parallel) if reads.may_wait else ReadOperation(parallel=parallel)
        )
        return await reads.start(entry_id, operation)

    def read_range(
        self, first: int, last: int, *, unconfirmed: bool = False, parallel: bool = False
    ) -> AsyncIterator[Entry]:
        """The entries ``first`` to ``last``, both inclusive, in order, with ``reading.read_ahead_entries`` read ahead.

        Raises as :meth:`read`, at the first entry that cannot be read; arguments are checked before anything is sent.
        """
        self._check_range(first, last, unconfirmed=unconfirmed)
        check_flag("parallel", parallel)
        return self._iterate(first, last, parallel=parallel)

    async def read_entries(
        self, first: int, last: int, *, unconfirmed: bool = False, parallel: bool = False
    ) -> Entries:
        """The entries ``first`` to ``last``, both inclusive, or none: the first that cannot be read fails all of it.

        All of them are held in memory; :meth:`read_range` holds a window.
        """
        found = self.read_range(first, last, unconfirmed=unconfirmed, parallel=parallel)
        return Entries([entry async for entry in found])

    async def _iterate(self, first: int, last: int, *, parallel: bool) -> AsyncIterator[Entry]:
        reads = self._reads
        operation = await reads.begin(first, parallel=parallel)
        window = ReadWindow(reads, operation, first, reads.read_ahead_entries, batches=True)
        try:
            while window.next_entry_id <= last:
                for entry in await window.take_several(last):
                    yield entry
        finally:
            window.clear()

    def read_results(self, first: int, last: int, *, parallel: bool = False) -> AsyncIterator[EntryResult]:
        """What becomes of each of the entries ``first`` to ``last``, in order: one that cannot be read hides no other.

        For tools that examine damaged ledgers. Raises :class:`~bkclient.errors.ClientClosed` only.
        """
        self._check_range(first, last)
        check_flag("parallel", parallel)
        return self._iterate_results(first, last, parallel=parallel)

    async def _iterate_results(self, first: int, last: int, *, parallel: bool) -> AsyncIterator[EntryResult]:
        reads = self._reads
        window = ReadWindow(reads, await reads.begin(first, parallel=parallel), first, reads.read_ahead_entries)
        try:
            for entry_id in range(first, last + 1):
                try:
                    result = EntryResult(entry_id, await window.take(last), None)
                except ClientClosed:
                    raise
                except BookKeeperError as error:
                    window.skip()
                    result = EntryResult(entry_id, None, error)
                yield result
        finally:
            window.clear()

    async def read_batch(
        self, start: int, max_count: int = 0, max_bytes: int = 0, *, unconfirmed: bool = False
    ) -> Entries:
        """The entries from ``start`` on, at least one: up to ``max_count`` entries and ``max_bytes`` bytes.

        0 means no limit but that of a frame. Nothing beyond :attr:`last_add_confirmed` is returned; with ``unconfirmed`` the
        batch ends before the first missing entry instead. It may hold fewer entries than asked for; continue after the last
        one. ``max_bytes`` includes headers and digests.

        The batch is one request if the protocol (version 2) and the bookies support batches and the ledger is not striped;
        otherwise entries are read one by one. Raises as :meth:`read`, for the first entry.
        """
        self._check_batch(start, max_count, max_bytes)
        self._check_range(start, start, unconfirmed=unconfirmed)
        if unconfirmed:
            return await read_batch(self._reads, start, max_count or None, max_bytes)
        confirmed = self._view.last_add_confirmed - start + 1
        return await read_batch(self._reads, start, min(max_count or confirmed, confirmed), max_bytes)

    async def read_last_entry(self) -> Entry:
        """The last confirmed entry, after a refresh of :attr:`last_add_confirmed`.

        :class:`~bkclient.errors.NoSuchEntry` on a ledger without any.
        """
        last = await self.read_last_add_confirmed()
        if last < 0:
            raise NoSuchEntry("the ledger has no confirmed entry", ledger_id=self.ledger_id)
        return await self.read(last)

    # The last add confirmed --------------------------------------------------------------------------------------

    async def read_last_add_confirmed(self) -> int:
        """Ask the ensemble for the last add confirmed, and return it; for a closed ledger no bookie is asked.

        Updates :attr:`last_add_confirmed`, which never decreases. Raises
        :class:`~bkclient.errors.RequestTimeout` and other errors of the bookies when too few of them answer.
        """
        self._reads.check_open()
        view = self._view
        if not view.metadata.is_closed:
            view.on_last_add_confirmed(*await read_last_add_confirmed(self._core, view.metadata, self._codec))
        return view.last_add_confirmed

    async def try_read_last_add_confirmed(self) -> int:
        """Ask the ensemble for the last add confirmed, and return at the first answer that is newer than the known one.

        Faster than :meth:`read_last_add_confirmed`, and one bookie is enough; the answer may be behind what others know.
        """
        self._reads.check_open()
        view = self._view
        if not view.metadata.is_closed:
            known, tell = view.last_add_confirmed, view.on_last_add_confirmed
            tell(*await try_read_last_add_confirmed(self._core, view.metadata, self._codec, known, tell))
        return view.last_add_confirmed

    async def read_last_add_confirmed_and_entry(
        self, entry_id: int, timeout_s: float, *, parallel: bool = False
    ) -> LastConfirmedAndEntry:
        """Wait up to ``timeout_s`` seconds for ``entry_id`` to be confirmed.

        Returns at once if it is, or if the ledger is closed; otherwise when a bookie reports it (with the entry, if that bookie
        has it), when the ledger is closed, or at the timeout, which is not an error. Bookies are polled one after the other, or
        all at once if ``parallel``; protocol version 2 has no long polls, so the LAC is read repeatedly.
        """
        self._check_range(entry_id, entry_id, unconfirmed=True)
        check_flag("parallel", parallel)
        check_duration("timeout_s", timeout_s, _LONGEST_POLL_S)
        self._reads.check_open()
        if entry_id <= self._view.last_add_confirmed:
            entry = await self._read(entry_id, parallel=parallel)
            return LastConfirmedAndEntry(self._view.last_add_confirmed, entry)
        if self._view.metadata.is_closed:
            return LastConfirmedAndEntry(self._view.last_add_confirmed, None)
        if self._reads.protocol_version == 2:
            return await self._look_for(entry_id, timeout_s)
        poll = self._polls.start(entry_id, timeout_s, parallel=parallel)
        try:
            return await poll.future
        finally:
            self._polls.end(poll)

    async def _look_for(self, entry_id: int, timeout_s: float) -> LastConfirmedAndEntry:
        loop = self._reads.loop
        deadline, pause_s = loop.time() + timeout_s, _LOOKS.first_s
        while True:
            lac = await self.read_last_add_confirmed()
            if entry_id <= lac:
                return LastConfirmedAndEntry(lac, await self._read(entry_id, parallel=False))
            left_s = deadline - loop.time()
            if left_s <= 0 or self._view.metadata.is_closed:
                return LastConfirmedAndEntry(lac, None)
            await anyio.sleep(min(pause_s, left_s))
            pause_s = _LOOKS.after(pause_s)

    # Arguments ---------------------------------------------------------------------------------------------------

    def _check_range(self, first: int, last: int, *, unconfirmed: bool = False) -> None:
        check_flag("unconfirmed", unconfirmed)
        for value in (first, last):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ArgumentError(f"an entry id must be an int, got {type(value).__name__}", ledger_id=self.ledger_id)
        if first < 0 or first > last:
            raise ArgumentError(
                f"entry ids must satisfy 0 <= first <= last, got {first} and {last}", ledger_id=self.ledger_id
            )
        if not unconfirmed and last > self._view.last_add_confirmed:
            raise ReadFailed(
                f"the last add confirmed known here is {self._view.last_add_confirmed}",
                ledger_id=self.ledger_id,
                entry_id=last,
            )
        if last > LARGEST_ID:
            raise ArgumentError(f"an entry id must be <= {LARGEST_ID}, got {last}", ledger_id=self.ledger_id)

    def _check_batch(self, start: int, max_count: int, max_bytes: int) -> None:
        for name, value in (("start", start), ("max_count", max_count), ("max_bytes", max_bytes)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ArgumentError(f"{name} must be an int, got {type(value).__name__}", ledger_id=self.ledger_id)
            if value < 0:
                raise ArgumentError(f"{name} must be >= 0, got {value}", ledger_id=self.ledger_id)
            if name != "start" and value >= 2**31:
                raise ArgumentError(f"{name} must be < 2**31, got {value}", ledger_id=self.ledger_id)
