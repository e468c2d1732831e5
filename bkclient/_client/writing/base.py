"""What the two kinds of writers offer alike: flushing, forcing, closing."""

from __future__ import annotations

import warnings
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import anyio

from bkclient._client.core import ClientCore
from bkclient._client.create import CreatedLedger
from bkclient._client.measure import measured, observed
from bkclient._client.reading.reads import LedgerReads
from bkclient._client.writing.explicit_lac import write_lac
from bkclient._client.writing.force import force_ledger
from bkclient._client.writing.own_reads import OwnReads
from bkclient._client.writing.twins import WriterShell
from bkclient.errors import BookKeeperError, IllegalOperation
from bkclient.ledger import LedgerMetadata
from bkclient.observability import stats as names

__all__ = ["BaseWriter"]

_CLOSE_AFTER_ERROR_S: Final = 5.0


class BaseWriter:
    """The single writer of a ledger; see :class:`~bkclient.LedgerWriter` for how one is used."""

    # There may be a hundred thousand. Subclasses may have any attributes; a dictionary is made for the first.
    __slots__ = ("__dict__", "__weakref__", "_core", "_machine", "_reader", "_shell")

    def __init__(self, core: ClientCore, created: CreatedLedger, *, deferred_sync: bool, entry_ids_given: bool) -> None:
        shell = WriterShell(core, created, deferred_sync=deferred_sync, entry_ids_given=entry_ids_given)
        self._core = core
        self._shell = shell
        self._machine = shell.machine
        self._reader: OwnReads | None = None

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        return self._shell.ledger_id

    @property
    def reader(self) -> LedgerReads:
        """Reads of the ledger, up to what this writer has confirmed, which it knows best: bookies are not asked for it."""
        if self._reader is None:
            self._reader = OwnReads(self._core, self._shell)
        return self._reader

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this writer knows it."""
        return self._machine.metadata

    @property
    def metadata_version(self) -> int:
        """The version of :attr:`metadata` in the store."""
        return self._machine.local.value.version

    @property
    def is_closed(self) -> bool:
        """Whether the end of the ledger is final, as far as this writer knows."""
        return self._machine.metadata.is_closed

    @property
    def is_deferred_sync(self) -> bool:
        """Whether entries are acknowledged before they are durable, so that :meth:`force` is needed."""
        return self._machine.options.deferred_sync

    @property
    def last_add_acknowledged(self) -> int:
        """The highest entry id whose whole prefix is acknowledged; -1 before the first.

        The same as :attr:`last_add_confirmed` unless the ledger has deferred sync.
        """
        return self._machine.last_add_acknowledged

    @property
    def last_add_confirmed(self) -> int:
        """The highest entry id whose whole prefix is acknowledged and durable; -1 before the first (LAC).

        It never moves back. A ledger that another client closed below it has lost entries, which every call reports by
        :class:`~bkclient.errors.LedgerTruncated`.
        """
        return self._machine.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """The highest entry id handed in; -1 before the first (LAP)."""
        return self._machine.last_add_pushed

    @property
    def length(self) -> int:
        """Payload bytes appended so far, entries in flight included."""
        return self._machine.length

    @property
    def in_flight_entries(self) -> int:
        """Entries appended and not yet acknowledged."""
        return self._machine.pending_count

    @property
    def in_flight_bytes(self) -> int:
        """Payload bytes of the entries in flight."""
        return self._shell.window.bytes

    def __repr__(self) -> str:
        machine = self._machine
        if machine.metadata.is_closed:
            state = "closed"
        elif machine.fatal_error is not None:
            state = f"ended by {type(machine.fatal_error).__name__}"
        else:
            state = "open"
        return (
            f"<{type(self).__name__} ledger_id={self.ledger_id} {state} last_add_confirmed={machine.last_add_confirmed} "
            f"last_add_pushed={machine.last_add_pushed}>"
        )

    # Durability --------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until everything appended so far is acknowledged.

        Raises the error of the first append that failed, and :class:`~bkclient.errors.LedgerTruncated` once it is known that
        acknowledged entries were lost.
        """
        await self._shell.flush(self._machine.last_add_pushed)

    async def force(self) -> None:
        """Make durable what is acknowledged now, and advance the last add confirmed to it.

        Entries in flight are not covered: :meth:`flush` first. Needs an answer of every bookie of the ensemble;
        raises the first error of one, and may be repeated then. On a writer that has ended raises the error that ended it. On a
        ledger without deferred sync there is nothing to move, and success says that all bookies answer.
        :class:`~bkclient.errors.IllegalOperation` over wire protocol version 2.
        """
        if self._core.is_closed:
            raise self._shell.refusal()
        if self._core.config.connections.protocol_version == 2:
            raise IllegalOperation("force needs wire protocol version 3", ledger_id=self.ledger_id)
        await measured(
            self._core.stats, names.FORCE, force_ledger(self._core, self._machine, self._shell.ownership.check)
        )
        self._shell.watch_lac()

    async def write_explicit_lac(self) -> int:
        """Tell the bookies the last add confirmed now, so that tailing readers can see the last entries.

        Returns it once an ack quorum knows; -1, with nothing sent, before the first entry. Idle writers do this by
        themselves if the configuration sets an interval. Raises the error of a bookie, which harms nothing. On a writer
        that has ended raises the error that ended it: :class:`~bkclient.errors.LedgerClosed` after :meth:`close`.
        """
        if self._core.is_closed or not self._machine.is_writable:
            raise self._shell.refusal()
        telling = write_lac(self._core, self._shell.codec, self._machine)
        return await measured(self._core.stats, names.WRITE_LAC, telling)

    # The end -----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the writer as leaving ``async with`` does: :meth:`flush`, :meth:`force` if sync is deferred, :meth:`close`.

        Raises the errors of these; the ledger is closed at the last confirmed entry also when the flush fails. Idempotent.
        """
        await self.__aexit__(None, None, None)

    async def close(self) -> None:
        """Close the ledger now, at the last confirmed entry; entries still in flight fail with ``LedgerClosed``.

        :meth:`aclose` waits for them first. On a ledger with deferred sync what was not forced is cut off. Raises
        :class:`~bkclient.errors.MetadataVersionConflict` when another client closed the ledger at another entry,
        :class:`~bkclient.errors.LedgerTruncated` if that is below what was acknowledged,
        :class:`~bkclient.errors.ClientClosed` when the client was closed first. Every call reports the outcome of the first,
        by an exception of its own; cancellation does not stop the closing.
        """
        await observed(self._core, names.CLOSE, self._shell.close(), self.ledger_id)

    def __del__(self) -> None:
        # Of the shell's loop, and perhaps in another thread: whichever one collects garbage.
        shell: WriterShell | None = getattr(self, "_shell", None)
        if shell is None or shell.is_let_go:
            return
        warnings.warn(
            f"the writer of ledger {shell.ledger_id} was dropped without close(); the ledger stays open until it is recovered",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        with suppress(RuntimeError):  # the loop is closed
            shell.loop.call_soon_threadsafe(shell.on_dropped)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is not None:
            await self._seal_after(exc)
            return
        try:
            await self._flush_at_exit()
        except BaseException as error:
            await self._seal_after(error)
            raise
        await self._seal()

    async def _seal_after(self, error: BaseException) -> None:
        """Close although ``error`` ended the block, without hiding it.

        Also when it was cancelled: an ordinary end saves the next reader a recovery, but must not take long.
        """
        with anyio.move_on_after(_CLOSE_AFTER_ERROR_S, shield=True):
            try:
                await self._seal()
            except BookKeeperError as close_error:
                error.add_note(f"closing ledger {self.ledger_id} failed too: {close_error}")

    async def _flush_at_exit(self) -> None:
        await self.flush()

    async def _seal(self) -> None:
        """Close; but force first what is acknowledged, and rather leave the ledger open than cut that off."""
        machine = self._machine
        if self.is_deferred_sync and machine.is_writable and machine.last_add_confirmed < machine.last_add_acknowledged:
            try:
                await self.force()
            except BookKeeperError as error:
                error.add_note(
                    f"ledger {self.ledger_id} was left open, because closing it now would cut off the entries after "
                    f"{machine.last_add_confirmed}; force() and close() it, or open it to recover what its bookies have"
                )
                raise
        await self.close()
