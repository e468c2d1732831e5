"""Running a recovery: the shell around :class:`~bkclient.protocol.recovery.RecoveryMachine`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bkclient._client.core import ClientCore, entry_codec_for
from bkclient._client.defects import defect, ends_operation
from bkclient._client.exchange import answers
from bkclient._client.measure import observed
from bkclient.entry import Entry
from bkclient.errors import BookKeeperError
from bkclient.ledger import BookieId, Ensemble, LedgerState, Versioned
from bkclient.observability import log
from bkclient.observability import stats as names
from bkclient.placement import LedgerShape
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.recovery import EntryVerdict, RecoveryMachine
from bkclient.protocol.update import UpdateHandle
from bkclient.transport.adds import adds_over
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import LAST_ENTRY, AddTemplate, ReadRequest, ReadResponse, Request, Response

__all__ = ["recover_ledger"]


async def recover_ledger(core: ClientCore, metadata: Versioned, codec: EntryCodec | None = None) -> Versioned:
    """Close the ledger at its last recoverable entry and return the closed metadata.

    Raises :class:`~bkclient.errors.RequestTimeout`, :class:`~bkclient.errors.UnauthorizedAccess` and
    :class:`~bkclient.errors.ClientClosed` as such, everything else as :class:`~bkclient.errors.LedgerRecoveryFailed`
    (REC-40), whose ``__cause__`` is the error behind it (H-33). A recovery that fails closes nothing and can be repeated,
    and so can one that is cancelled; if that happens while it closes the ledger, the close may still take effect. Every
    request has its timeout, the recovery as a whole has none: ``docs/using/recovery.md`` shows how to bound and repeat it (H-34).
    """
    return await observed(core, names.RECOVER, _Recovery(core, metadata, codec).run(), metadata.metadata.ledger_id)


class _Recovery:
    """The ports of one recovery."""

    def __init__(self, core: ClientCore, metadata: Versioned, codec: EntryCodec | None) -> None:
        self._core = core
        self._codec = codec or entry_codec_for(metadata.metadata)
        self._ledger_id = metadata.metadata.ledger_id
        self._submit = core.transport.submit
        template = AddTemplate(
            ledger_id=self._ledger_id, master_key=self._codec.master_key, recovery=True, high_priority=True
        )
        self._adds = adds_over(core.transport, template, self)
        self.note_failure = core.watcher.on_request_failed
        self._machine = RecoveryMachine(metadata, self, read_ahead=core.config.reading.recovery_read_ahead_entries)
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_abandoned = False
        self._found = self._written = 0
        self._last_written = -1
        #: False if a bookie was asked for the last entry, which tells the length, and none has given it.
        self._is_length_known = True

    async def run(self) -> Versioned:
        loop = asyncio.get_running_loop()
        began = loop.time()
        log.RECOVERY_STARTED(ledger_id=self._ledger_id)
        self._machine.start()
        try:
            await self._finished
        except BookKeeperError as error:
            seconds = loop.time() - began
            log.RECOVERY_FAILED(ledger_id=self._ledger_id, code=error.code, reason=error.message, seconds=seconds)
            raise
        finally:
            self._is_abandoned = True
            if self._core.stats is not None:
                self._core.stats.event(names.RECOVERY_READS, self._found)
                self._core.stats.event(names.RECOVERED_ENTRIES, self._written)
        closed = self._machine.local.value
        end = closed.metadata.last_entry_id
        if not self._is_length_known:
            log.RECOVERY_LENGTH_UNCERTAIN(ledger_id=self._ledger_id, entry_id=end, length=closed.metadata.length)
        log.RECOVERY_FINISHED(
            ledger_id=self._ledger_id,
            entry_id=end,
            found=self._found,
            written=self._written,
            seconds=loop.time() - began,
        )
        return closed

    # Ports -------------------------------------------------------------------------------------------------------

    def run_update(self, number: int) -> None:
        self._core.run_update(UpdateHandle(self._machine, number), self._on_update_done)

    @ends_operation
    def _on_update_done(self, update: UpdateHandle) -> None:
        if self._is_abandoned:
            return
        observer = self._core.observer
        if observer is not None and update.cause == "recover" and update.error is None:
            value = self._machine.local.value
            if value.metadata.state is LedgerState.IN_RECOVERY:
                observer.recovery_started(value)
        self._machine.on_update_done(update.number)

    def send_fence(self, bookie_id: BookieId) -> None:
        request = ReadRequest(self._ledger_id, LAST_ENTRY, fence_key=self._codec.master_key, high_priority=True)
        self._submit(bookie_id, request, self._on_fence_reply)

    def _decode(self, request: Request, response: Response | None) -> Entry:
        assert isinstance(request, ReadRequest), "only reads are answered here"
        assert isinstance(response, ReadResponse), "a read is answered by a read response"
        entry_id = None if request.entry_id == LAST_ENTRY else request.entry_id
        return self._codec.decode(response.body or b"", entry_id)

    @answers(_decode)
    def _on_fence_reply(self, bookie_id: BookieId, _request: Request, code: int, entry: Entry | None) -> None:
        if self._is_abandoned:
            return
        if entry is None:
            self._machine.on_fence_reply(bookie_id, code)
        else:
            length_before = max(0, entry.ledger_length - len(entry.payload))
            self._machine.on_fence_reply(bookie_id, code, entry.last_add_confirmed, length_before)

    def send_read(self, entry_id: int, bookie_id: BookieId, *, fence: bool) -> None:
        fence_key = self._codec.master_key if fence else None
        self._is_length_known &= fence
        request = ReadRequest(self._ledger_id, entry_id, fence_key=fence_key, high_priority=fence)
        self._submit(bookie_id, request, self._on_read_reply)

    @answers(_decode)
    def _on_read_reply(self, bookie_id: BookieId, request: Request, code: int, entry: Entry | None) -> None:
        if self._is_abandoned:
            return
        assert isinstance(request, ReadRequest), "only reads are answered here"
        if entry is None:
            self._machine.on_read_reply(bookie_id, request.entry_id, code)
        else:
            self._is_length_known |= request.fence_key is None
            self._machine.on_read_reply(bookie_id, request.entry_id, code, entry.payload, entry.ledger_length)

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        if entry.entry_id > self._last_written:
            self._last_written = entry.entry_id
            self._written += 1
        header = self._codec.encode_header(entry.entry_id, entry.last_add_confirmed, entry.length, entry.payload)
        self._adds.send(bookies, entry.entry_id, header, entry.payload)

    @ends_operation
    def on_adds_stored(self, bookie_id: BookieId, entry_ids: Sequence[int]) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`."""
        if not self._is_abandoned:
            self._machine.acknowledged(bookie_id, entry_ids)

    @ends_operation
    def on_add_failed(self, bookie_id: BookieId, entry_id: int, code: int) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`."""
        self.note_failure(bookie_id, code)
        if not self._is_abandoned:
            self._machine.on_add_reply(bookie_id, entry_id, code)

    def replace_bookie(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        shape = LedgerShape.of(self._machine.metadata)
        return self._core.watcher.replace(shape, ensemble, position, excluded)

    def entry_decided(self, entry_id: int, verdict: EntryVerdict, bookies: tuple[BookieId, ...]) -> None:
        self._found += verdict is EntryVerdict.POSITIVE
        if self._core.observer is not None:
            self._core.observer.entry_decided(self._ledger_id, entry_id, verdict, bookies)

    def recovery_finished(self, error: BookKeeperError | None) -> None:
        if self._finished.done():
            return
        if error is None:
            self._finished.set_result(None)
        else:
            self._finished.set_exception(error)

    # Defects -----------------------------------------------------------------------------------------------------

    def on_defect(self, error: Exception) -> None:
        """A handler raised, so the machine is not to be relied upon: the recovery fails and closes nothing (REC-40)."""
        failure = defect(error, "the recovery", ledger_id=self._ledger_id)
        if not self._finished.done():
            self._is_abandoned = True
            self._finished.set_exception(failure)
