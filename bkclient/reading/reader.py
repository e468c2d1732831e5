"""Reading a ledger, closed or still being written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Self

from bkclient import log
from bkclient.core import ClientCore, entry_codec_for
from bkclient.errors import ArgumentError, BookKeeperError, ClientClosed, IllegalOperation, NoSuchEntry, NoSuchLedger
from bkclient.metadata.base import Cancel
from bkclient.metadata.model import LedgerMetadata, LedgerState, Versioned
from bkclient.reading.entry import Entry
from bkclient.reading.entry_reads import EntryReads
from bkclient.reading.lac import least_lac
from bkclient.reading.polls import Poll
from bkclient.reading.reads import LedgerReads
from bkclient.reading.tail import LedgerTail
from bkclient.stats import LAC_UPDATE_HITS, LAC_UPDATE_MISSES
from bkclient.throttle import Throttle
from bkclient.wire.entry import EntryCodec

__all__ = ["LedgerReader"]

_LONGEST_PATIENCE_S: Final = 86_400.0


class _Knowledge:
    """What a reader knows of its ledger; a :class:`~bkclient.reading.entry_reads.LedgerView`."""

    def __init__(self, core: ClientCore, value: Versioned, last_add_confirmed: int) -> None:
        self._stats = core.stats
        self.value = value
        self._is_closed = value.metadata.is_closed  # looked at for every entry
        self.last_add_confirmed = max(last_add_confirmed, least_lac(value.metadata))
        self.length = value.metadata.length
        self.is_deleted = False

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as known now."""
        return self.value.metadata

    def on_metadata(self, value: Versioned) -> bool:
        """The store has another value; False if it is not newer, or cannot be one of this ledger.

        An id that was deleted may be given to another ledger, and the end of a closed one is final (REC-1): a value that
        says otherwise was not written by a client that keeps to the protocol.
        """
        if self.is_deleted or value.version <= self.value.version:
            return False
        before, metadata = self.value.metadata, value.metadata
        if before.is_closed and _end_of(metadata) != _end_of(before):
            log.END_CHANGED(
                ledger_id=before.ledger_id,
                entry_id=before.last_entry_id,
                state=metadata.state.name,
                stored=metadata.last_entry_id,
            )
            return False
        self.value = value
        self._is_closed = metadata.is_closed
        if metadata.is_closed:
            if metadata.last_entry_id < self.last_add_confirmed:
                log.END_BELOW_CONFIRMED(
                    ledger_id=metadata.ledger_id,
                    entry_id=metadata.last_entry_id,
                    confirmed=self.last_add_confirmed,
                )
            self.last_add_confirmed = metadata.last_entry_id
            self.length = metadata.length
        else:
            self.last_add_confirmed = max(self.last_add_confirmed, least_lac(metadata))
        return True

    def on_entry_read(self, entry_id: int, length: int, last_add_confirmed: int) -> None:
        """The length up to a confirmed entry is one of the ledger (H-18); on a closed ledger nothing is news."""
        if self._is_closed:
            return
        self.on_last_add_confirmed(last_add_confirmed)
        if entry_id <= self.last_add_confirmed and length > self.length:
            self.length = length

    def on_last_add_confirmed(self, last_add_confirmed: int) -> None:
        """LAC-4: it never goes back; and on a closed ledger the end is the end, whatever a bookie stores beyond it."""
        if self._is_closed:
            return
        is_news = last_add_confirmed > self.last_add_confirmed
        if is_news:
            self.last_add_confirmed = last_add_confirmed
        if self._stats is not None and last_add_confirmed >= 0:
            self._stats.event(LAC_UPDATE_HITS if is_news else LAC_UPDATE_MISSES)


def _end_of(metadata: LedgerMetadata) -> tuple[LedgerState, int, int]:
    return metadata.state, metadata.last_entry_id, metadata.length


class LedgerReader(LedgerReads):
    """Reads a ledger, from :meth:`bkclient.BookKeeper.open_ledger`.

    Entries up to :attr:`last_add_confirmed` can be read; they are acknowledged and stay. On a closed ledger that is its
    last entry. On an open one it advances with :meth:`read_last_add_confirmed`, with what bookies tell in passing
    (LAC-3), and when the ledger is closed. ``async for entry in reader`` yields everything up to it, ``async for entry in
    reader.tail()`` goes on with what is written later.

    The reader of an open ledger follows its metadata, so it learns of new ensembles and of the close from the metadata
    store, whatever bookies answer (NR-7, NR-10); of a closed one if it was opened with ``keep_metadata_updated`` (NR-9).

    A ledger that is closed below what its bookies told to be confirmed has lost entries, which the protocol rules out. If it
    happens all the same, the reader logs it as an error and keeps to the end of the ledger, the one time that
    :attr:`last_add_confirmed` goes back; a tail that has delivered more fails.
    """

    def __init__(
        self, core: ClientCore, metadata: Versioned, last_add_confirmed: int, codec: EntryCodec | None = None
    ) -> None:
        self._known = _Knowledge(core, metadata, last_add_confirmed)
        codec = codec or entry_codec_for(metadata.metadata)
        super().__init__(core, self._known, codec, Throttle.of(core.config))
        self._stop_watching: Cancel | None = None
        self._stop_waiting: Cancel | None = None
        self._changed: asyncio.Future[None] | None = None
        self._end_waiters: dict[asyncio.Future[None], None] = {}

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this reader knows it."""
        return self._known.value.metadata

    @property
    def metadata_version(self) -> int:
        """The version of :attr:`metadata` in the store."""
        return self._known.value.version

    @property
    def is_closed(self) -> bool:
        """Whether the end of the ledger is final."""
        return self._known.value.metadata.is_closed

    @property
    def is_deleted(self) -> bool:
        """Whether this reader, while it followed the ledger, saw it deleted. Bookies drop its entries some time later."""
        return self._known.is_deleted

    @property
    def is_following(self) -> bool:
        """Whether this reader learns what becomes of the ledger."""
        return self._stop_watching is not None

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; of an open one those up to the last confirmed entry read here (H-18)."""
        return self._known.length

    @property
    def room(self) -> EntryReads:
        """Where entries are read; for the other modules of this package."""
        return self._room

    # Reading -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Entry]:
        if self.last_add_confirmed < 0:
            return _nothing()
        return self._iterate(0, self.last_add_confirmed, parallel=False)

    async def read_last_entry(self) -> Entry:
        """The entry at :attr:`last_add_confirmed`; :class:`~bkclient.errors.NoSuchEntry` on an empty ledger (R-22)."""
        if not self.is_closed:
            await self.read_last_add_confirmed()
        if self.last_add_confirmed < 0:
            raise NoSuchEntry("the ledger has no confirmed entry", ledger_id=self.ledger_id)
        return await self.read(self.last_add_confirmed)

    def tail(self, first_entry_id: int = 0, *, patience_s: float = 60.0) -> LedgerTail:
        """The entries from ``first_entry_id`` on, each once and in order, as they are confirmed, until the ledger is closed.

        Bookies that fail and ensembles that change are lived through; :meth:`~bkclient.reading.tail.LedgerTail.__anext__` raises
        the error of the bookies once nothing but failures came for ``patience_s`` seconds, and at once what repeating does
        not help against. After the ledger was deleted it raises :class:`~bkclient.errors.NoSuchLedger` where it would have
        to wait.
        """
        self._check_range(first_entry_id, first_entry_id, is_confirmed=False)
        if isinstance(patience_s, bool) or not isinstance(patience_s, int | float):
            raise ArgumentError(f"patience_s is a number of seconds, not {patience_s!r}")
        if not 0 <= patience_s <= _LONGEST_PATIENCE_S:
            raise ArgumentError(f"patience_s is between 0 and {_LONGEST_PATIENCE_S} seconds, {patience_s!r} is not")
        return LedgerTail(self, first_entry_id, patience_s)

    def start_poll(self, entry_id: int, timeout_s: float, *, parallel: bool) -> Poll:
        """For :class:`~bkclient.reading.tail.LedgerTail`."""
        return self._start_poll(entry_id, timeout_s, parallel=parallel)

    def end_poll(self, poll: Poll) -> None:
        """For :class:`~bkclient.reading.tail.LedgerTail`."""
        self._end_poll(poll)

    # Following the metadata --------------------------------------------------------------------------------------

    def follow_metadata(self) -> None:
        """Follow ensemble changes and the closing of the ledger (NR-7). Called once, by the client."""
        assert self._stop_watching is None, "one watch per reader"
        self._stop_watching = self._core.metadata.watch_ledger(self.ledger_id, self._on_metadata)
        self._stop_waiting = self._core.at_close(self._on_client_closed)

    def _on_metadata(self, value: Versioned | None) -> None:
        if value is None:
            # NR-7: what was confirmed can still be read for a while; bookies will tell.
            self._known.is_deleted = True
            self._end_waits(NoSuchLedger("it was deleted", ledger_id=self.ledger_id))
        elif self._known.on_metadata(value):
            self.metadata_changed()
            if self.is_closed:
                self._end_waits(None)
        self._wake()

    def changed(self) -> asyncio.Future[None]:
        """Done at the next change of the metadata, and when the reader is closed; not to be cancelled: others may wait."""
        if self._changed is None or self._changed.done():
            self._changed = self._room.loop.create_future()
        return self._changed

    async def closed(self) -> None:
        """Wait until the ledger is closed: its end is final, and :attr:`last_add_confirmed` tells it.

        Returns at once if it is. Raises :class:`~bkclient.errors.NoSuchLedger` when the ledger is deleted instead,
        :class:`~bkclient.errors.ClientClosed` when the client is closed, and :class:`~bkclient.errors.IllegalOperation`
        when this reader is, or never followed its ledger.
        """
        if self.is_closed:
            return
        self._room.check_open()
        if self.is_deleted:
            raise NoSuchLedger("it was deleted", ledger_id=self.ledger_id)
        if not self.is_following:
            raise self._not_following()
        waiter: asyncio.Future[None] = self._room.loop.create_future()
        self._end_waiters[waiter] = None
        try:
            await waiter
        finally:
            self._end_waiters.pop(waiter, None)

    def _end_waits(self, error: BookKeeperError | None) -> None:
        for waiter in self._end_waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _not_following(self) -> IllegalOperation:
        return IllegalOperation("this reader does not follow its ledger", ledger_id=self.ledger_id)

    def _on_client_closed(self) -> None:
        self._end_waits(ClientClosed(ledger_id=self.ledger_id))
        self._room.stop()
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def close(self) -> None:
        """Stop following the metadata. The ledger itself is not touched, and can be read as before. Idempotent."""
        for cancel in (self._stop_watching, self._stop_waiting):
            if cancel is not None:
                cancel()
        self._stop_watching = self._stop_waiting = None
        self._end_waits(self._not_following())
        self._wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def _nothing() -> AsyncIterator[Entry]:
    return
    yield
