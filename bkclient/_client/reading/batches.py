"""Reading several entries with one call: in one request where protocol and bookies allow it, one by one where not.

Native batches exist in protocol version 2 only, and only an unstriped ledger has consecutive entries on one bookie (R-25).
Everywhere else the same call reads entry by entry, with the same limits and the same meaning (H-22): at least the first
entry, then as many as fit, up to the first one that cannot be read.
"""

from __future__ import annotations

import asyncio

from bkclient._client.defects import defect
from bkclient._client.exchange import answers
from bkclient._client.reading.entry_reads import EntryReads
from bkclient._client.reading.late import LateTimer
from bkclient._client.reading.window import ReadWindow
from bkclient.entry import Entries, Entry
from bkclient.errors import BookieNotAvailable, BookKeeperError, ClientClosed, DigestMismatch, error_for
from bkclient.ledger import BookieId
from bkclient.observability.stats import READ
from bkclient.protocol.batch_read import BATCH_ENTRY_OVERHEAD, BATCH_OVERHEAD, BatchRead
from bkclient.protocol.read import ReadOutcome
from bkclient.wire.entry import DecodedEntry
from bkclient.wire.messages import BatchReadRequest, BatchReadResponse, Request, Response

__all__ = ["read_batch"]


async def read_batch(reads: EntryReads, first_entry_id: int, max_count: int | None, max_bytes: int) -> Entries:
    """At least the entry ``first_entry_id``, and those after it as far as ``max_count`` and ``max_bytes`` allow (R-28).

    ``max_bytes`` counts what a batch answer would take on the wire: headers, digests and lengths besides the payloads; 0, and
    more than a frame, is as much as a frame takes (R-27).
    """
    max_bytes = min(max_bytes or reads.max_frame_size_bytes, reads.max_frame_size_bytes)
    metadata = reads.view.metadata
    is_striped = metadata.ensemble_size != metadata.write_quorum_size
    if reads.protocol_version == 2 and reads.core.config.reading.batch and not is_striped:
        reads.check_open()
        replicas = reads.replicas(first_entry_id)
        usable = reads.core.memory.batches.usable(replicas, reads.loop.time())
        try:
            if usable:
                await reads.begin(first_entry_id)
                return Entries(await _BatchCall(reads, usable, first_entry_id, max_count, max_bytes).run())
        except BookieNotAvailable:
            pass  # that is also what a bookie without batches looks like
        except BookKeeperError:
            if len(usable) == len(replicas):
                raise
    return Entries(await _read_singly(reads, first_entry_id, max_count, max_bytes))


async def _read_singly(reads: EntryReads, first_entry_id: int, max_count: int | None, max_bytes: int) -> list[Entry]:
    last_entry_id = 2**63 - 1 if max_count is None else first_entry_id + max_count - 1
    window = ReadWindow(reads, await reads.begin(first_entry_id), first_entry_id, limit=1)
    ahead = reads.read_ahead_entries
    entries: list[Entry] = []
    used, largest = BATCH_OVERHEAD, 0
    try:
        while len(entries) < last_entry_id - first_entry_id + 1:
            try:
                entry = await window.take(last_entry_id)
            except ClientClosed:
                raise
            except BookKeeperError:
                if not entries:
                    raise
                break
            size = BATCH_ENTRY_OVERHEAD + reads.codec.overhead + entry.size
            used += size
            if entries and used > max_bytes:
                break
            entries.append(entry)
            largest = max(largest, size)
            # No more is asked for than was found before, nor than fits if what follows is like it: the end may be near.
            window.limit = max(1, min(ahead, len(entries), (max_bytes - used) // largest))
    finally:
        window.clear()
    return entries


class _BatchCall:
    """One native batch: replicas, late answers and errors as for a single read (R-31)."""

    def __init__(
        self,
        reads: EntryReads,
        replicas: tuple[BookieId, ...],
        first_entry_id: int,
        max_count: int | None,
        max_bytes: int,
    ) -> None:
        self._reads = reads
        self._machine = BatchRead(first_entry_id, max_count, replicas)
        self._request = BatchReadRequest(reads.codec.ledger_id, first_entry_id, max_count or 0, max_bytes)
        self._late = LateTimer(self, reads.speculation, reads.loop, reads.stats)
        self._future: asyncio.Future[None] = reads.loop.create_future()

    async def run(self) -> list[Entry]:
        reads, machine = self._reads, self._machine
        began = 0.0 if reads.stats is None else reads.stats.now()
        try:
            self._send(prepaid=1)
            self._late.start()
            await self._future
        finally:
            self._late.stop()
        if reads.stats is not None:
            reads.stats.operation(READ, reads.stats.now() - began, machine.code)
        if machine.outcome is not ReadOutcome.FOUND:
            raise error_for(
                machine.code,
                ledger_id=self._request.ledger_id,
                entry_id=machine.entry_id,
                bookie_id=machine.code_from,
            )
        if machine.tried > 1:
            reads.on_found(machine)
        return [Entry.of(decoded) for decoded in machine.entries]

    def _send(self, prepaid: int = 0) -> None:
        reads = self._reads
        bookies = self._machine.to_ask()
        if reads.throttle is not None and len(bookies) > prepaid:
            reads.throttle.take(len(bookies) - prepaid)
        for bookie_id in bookies:
            reads.submit(bookie_id, self._request, self._on_reply)

    def ask_another(self) -> bool:
        """See :class:`~bkclient._client.reading.late.LateTimer`."""
        if not self._machine.on_late():
            return False
        self._send()
        return True

    def _decode(self, _request: Request, response: Response | None) -> tuple[DecodedEntry, ...]:
        assert isinstance(response, BatchReadResponse), "a batch read is answered by a batch"
        entries = self._machine.verified(response.bodies, self._reads.codec.decode)
        if not entries:
            raise DigestMismatch(ledger_id=self._request.ledger_id)
        return entries

    def note_failure(self, bookie_id: BookieId, code: int) -> None:
        """See :class:`~bkclient._client.exchange.Requester`."""
        reads = self._reads
        reads.on_request_failed(bookie_id, self._machine.entry_id, code)
        reads.core.memory.batches.on_batch_failed(bookie_id, code, reads.loop.time())

    @answers(_decode)
    def _on_reply(
        self, bookie_id: BookieId, _request: Request, code: int, entries: tuple[DecodedEntry, ...] | None
    ) -> None:
        reads, machine = self._reads, self._machine
        outcome = machine.on_reply(bookie_id, code) if entries is None else machine.on_entries(bookie_id, entries)
        if self._future.done():
            return
        if outcome is ReadOutcome.WAITING:
            self._send()
        else:
            for decoded in machine.entries:
                reads.view.on_entry_read(decoded.entry_id, decoded.length, -1)
            self._future.set_result(None)

    def on_defect(self, error: Exception) -> None:
        """A handler raised; see :func:`~bkclient._client.defects.ends_operation`."""
        request = self._request
        failure = defect(error, "a batch read", ledger_id=request.ledger_id, entry_id=request.entry_id)
        if not self._future.done():
            self._future.set_exception(failure)
