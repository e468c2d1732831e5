"""What a reader knows of its ledger, and how it learns of changes: from the metadata store, and from bookies in passing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bkclient._client.core import ClientCore, nobody
from bkclient._client.defects import defect, ends_operation
from bkclient._client.reading.lac import least_lac
from bkclient.entry import Entry
from bkclient.errors import BookKeeperError, ClientClosed, IllegalOperation, NoSuchLedger
from bkclient.ledger import BookieId, LedgerMetadata, LedgerState, Versioned
from bkclient.metadata.base import Cancel
from bkclient.observability import log
from bkclient.observability.stats import LAC_UPDATE_HITS, LAC_UPDATE_MISSES

__all__ = ["FollowedLedger"]


class FollowedLedger:
    """A :class:`~bkclient._client.reading.entry_reads.LedgerView` that follows the metadata, once :meth:`follow` was called.

    The owner sets ``on_metadata_changed`` and ``on_client_closed``, which are called from the loop, after the knowledge changed.
    """

    def __init__(
        self, core: ClientCore, value: Versioned, last_add_confirmed: int, told_by: BookieId | None = None
    ) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._stats = core.stats
        self.value = value
        self._is_closed = value.metadata.is_closed  # looked at for every entry
        self.last_add_confirmed = last_add_confirmed
        self.told_by = told_by
        self._confirm_least(value.metadata)
        self.length = value.metadata.length
        self.is_deleted = False
        self.on_metadata_changed: Callable[[], None] = nobody
        self.on_client_closed: Callable[[], None] = nobody
        self._stop_watching: Cancel | None = None
        self._stop_waiting: Cancel | None = None
        self._changed: asyncio.Future[None] | None = None
        self._end_waiters: dict[asyncio.Future[None], None] = {}

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as known now."""
        return self.value.metadata

    @property
    def is_following(self) -> bool:
        """Whether changes of the metadata are learned."""
        return self._stop_watching is not None

    # What bookies tell -------------------------------------------------------------------------------------------

    def on_entries_read(
        self, entries: Sequence[Entry], told: Sequence[int | None] = (), told_by: BookieId | None = None
    ) -> None:
        """The length up to a confirmed entry is one of the ledger (H-18); on a closed ledger nothing is news."""
        if self._is_closed:
            return
        for last_add_confirmed in told:
            if last_add_confirmed is not None:
                self.on_last_add_confirmed(last_add_confirmed, told_by)
        for entry in entries:
            if entry.entry_id <= self.last_add_confirmed and entry.ledger_length > self.length:
                self.length = entry.ledger_length

    def on_last_add_confirmed(self, last_add_confirmed: int, told_by: BookieId | None = None) -> None:
        """LAC-4: it never goes back; and on a closed ledger the end is the end, whatever a bookie stores beyond it."""
        if self._is_closed:
            return
        is_news = last_add_confirmed > self.last_add_confirmed
        if is_news:
            self.last_add_confirmed = last_add_confirmed
        if is_news or (told_by is not None and last_add_confirmed == self.last_add_confirmed >= 0):
            self.told_by = told_by
        if self._stats is not None and last_add_confirmed >= 0:
            self._stats.event(LAC_UPDATE_HITS if is_news else LAC_UPDATE_MISSES)

    # What the store tells ----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Follow ensemble changes and the closing of the ledger (NR-7). Called once."""
        assert self._stop_watching is None, "one watch per reader"
        self._stop_watching = self._core.metadata.watch_ledger(self.metadata.ledger_id, self._on_watched)
        self._stop_waiting = self._core.at_close(self._on_client_closed)

    def stop(self) -> None:
        """Stop following; waiters for the end are told so. Idempotent."""
        for cancel in (self._stop_watching, self._stop_waiting):
            if cancel is not None:
                cancel()
        self._stop_watching = self._stop_waiting = None
        self._end_waits(self._not_following())
        self._wake()

    @ends_operation
    def _on_watched(self, value: Versioned | None) -> None:
        if value is None:
            # NR-7: what was confirmed can still be read for a while; bookies will tell.
            self.is_deleted = True
            self._end_waits(self._deleted())
        elif self._on_metadata(value):
            self.on_metadata_changed()
            if self._is_closed:
                self._end_waits(None)
        self._wake()

    def _on_metadata(self, value: Versioned) -> bool:
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
            self._confirm_least(metadata)
        return True

    def _confirm_least(self, metadata: LedgerMetadata) -> None:
        """What the metadata say to be confirmed is; bookies of a new ensemble hear of it with their first entry."""
        least = least_lac(metadata)
        if least > self.last_add_confirmed:
            self.last_add_confirmed, self.told_by = least, None

    @ends_operation
    def _on_client_closed(self) -> None:
        self._end_waits(ClientClosed(ledger_id=self.metadata.ledger_id))
        self.on_client_closed()
        self._wake()

    def on_defect(self, error: Exception) -> None:
        """A handler raised: what it was told is lost, so its waiters are told that."""
        self._end_waits(defect(error, "a reader", ledger_id=self.metadata.ledger_id))
        self._wake()

    # Waiting for news --------------------------------------------------------------------------------------------

    def changed(self) -> asyncio.Future[None]:
        """Done at the next change of the metadata, and at the end of following; not to be cancelled: others may wait."""
        if self._changed is None or self._changed.done():
            self._changed = self._loop.create_future()
        return self._changed

    async def closed(self) -> None:
        """Wait until the ledger is closed; raises the reason why that will not be learned."""
        if self._is_closed:
            return
        if self.is_deleted:
            raise self._deleted()
        if not self.is_following:
            raise self._not_following()
        waiter: asyncio.Future[None] = self._loop.create_future()
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

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _deleted(self) -> NoSuchLedger:
        return NoSuchLedger("it was deleted", ledger_id=self.metadata.ledger_id)

    def _not_following(self) -> IllegalOperation:
        return IllegalOperation("this reader does not follow its ledger", ledger_id=self.metadata.ledger_id)


def _end_of(metadata: LedgerMetadata) -> tuple[LedgerState, int, int]:
    return metadata.state, metadata.last_entry_id, metadata.length
