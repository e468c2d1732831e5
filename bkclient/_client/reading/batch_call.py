"""One request for several consecutive entries: replicas, late answers and errors are as for a single read (R-31)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bkclient._client.defects import defect
from bkclient._client.exchange import answers
from bkclient._client.reading.entry_reads import EntryReads, ReadOperation
from bkclient._client.reading.late import LateTimer
from bkclient.entry import Entry
from bkclient.errors import BookKeeperError, DigestMismatch, error_for
from bkclient.ledger import BookieId
from bkclient.observability.stats import READ
from bkclient.protocol.batch_read import BatchRead
from bkclient.protocol.read import ReadOutcome
from bkclient.wire.messages import BatchReadRequest, BatchReadResponse, Request, Response

__all__ = ["BatchCall"]


class BatchCall:
    """A batch on its way. Compared by identity.

    ``on_end`` is called once, unless the call was abandoned: then there are :attr:`entries`, or an :attr:`error`. ``operation``
    is that of other reads that the batch belongs to.
    """

    def __init__(
        self,
        reads: EntryReads,
        replicas: tuple[BookieId, ...],
        first_entry_id: int,
        count: int | None,
        max_bytes: int,
        on_end: Callable[[BatchCall], None],
        operation: ReadOperation | None = None,
    ) -> None:
        self._reads = reads
        self._machine = BatchRead(first_entry_id, count, replicas)
        self._request = BatchReadRequest(reads.codec.ledger_id, first_entry_id, count or 0, max_bytes)
        self._late = LateTimer(self, reads.speculation, reads.loop, reads.stats)
        self._on_end = on_end
        self._operation = ReadOperation() if operation is None else operation
        self._seen = self._operation.answers
        self._began = 0.0
        self._is_over = False
        self.entry_id = first_entry_id
        #: How many entries were asked for; 0 without a limit.
        self.count = count or 0
        #: What was found, at least the first entry if there is no error.
        self.entries: Sequence[Entry] = ()
        self.error: BookKeeperError | None = None

    def start(self) -> None:
        """Send the first request; the permit for it was taken before."""
        if self._reads.stats is not None:
            self._began = self._reads.stats.now()
        self._send(prepaid=1)
        self._late.start()

    def abandon(self) -> None:
        """Nobody wants the entries any more: no further replica is asked. Idempotent."""
        self._is_over = True
        self._late.stop()

    def _send(self, prepaid: int = 0) -> None:
        reads = self._reads
        bookies = self._machine.to_ask()
        if len(bookies) > prepaid:
            reads.take_permits(len(bookies) - prepaid)
        for bookie_id in bookies:
            reads.submit(bookie_id, self._request, self._on_reply)

    def ask_another(self) -> bool:
        """See :class:`~bkclient._client.reading.late.LateTimer`; not if one of those asked answers others (R-11)."""
        answering = [b for b, number in self._operation.answering.items() if number > self._seen]
        if not self._machine.on_late(answering):
            return False
        self._send()
        return True

    def _decode(self, _request: Request, response: Response | None) -> tuple[Entry, ...]:
        assert isinstance(response, BatchReadResponse), "a batch read is answered by a batch"
        entries = self._machine.verified(response.bodies, self._reads.codec.decode_several)
        if not entries:
            raise DigestMismatch(ledger_id=self._request.ledger_id)
        return entries

    def note_failure(self, bookie_id: BookieId, code: int) -> None:
        """See :class:`~bkclient._client.exchange.Requester`."""
        reads = self._reads
        reads.on_request_failed(bookie_id, self._machine.entry_id, code)
        reads.core.memory.batches.on_batch_failed(bookie_id, code, reads.loop.time())

    @answers(_decode)
    def _on_reply(self, bookie_id: BookieId, _request: Request, code: int, entries: tuple[Entry, ...] | None) -> None:
        machine, operation = self._machine, self._operation
        if entries is None:
            outcome = machine.on_reply(bookie_id, code)
        else:
            outcome = machine.on_entries(bookie_id, entries)
            operation.answers += 1
            operation.answering[bookie_id] = operation.answers
        if self._is_over:
            return
        if outcome is ReadOutcome.WAITING:
            self._send()
            return
        if outcome is ReadOutcome.FOUND:
            self._found()
        else:
            self.error = error_for(
                machine.code,
                ledger_id=self._request.ledger_id,
                entry_id=machine.entry_id,
                bookie_id=machine.code_from,
            )
        self._end()

    def _found(self) -> None:
        reads, machine = self._reads, self._machine
        self.entries = machine.entries
        reads.view.on_entries_read(self.entries)
        if machine.tried > 1:
            reads.on_found(machine)

    def _end(self) -> None:
        self.abandon()
        if self._reads.stats is not None:
            self._reads.stats.operation(READ, self._reads.stats.now() - self._began, self._machine.code)
        self._on_end(self)

    def on_defect(self, error: Exception) -> None:
        """A handler raised; see :func:`~bkclient._client.defects.ends_operation`."""
        request = self._request
        failure = defect(error, "a batch read", ledger_id=request.ledger_id, entry_id=request.entry_id)
        if not self._is_over:
            self.entries, self.error = (), failure
            self.abandon()
            self._on_end(self)
