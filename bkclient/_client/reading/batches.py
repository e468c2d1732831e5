"""Reading several entries with one call: in one request where protocol and bookies allow it, one by one where not.

Native batches exist in protocol version 2 only, and only an unstriped ledger has consecutive entries on one bookie (R-25).
Everywhere else the same call reads entry by entry, with the same limits and the same meaning (H-22): at least the first
entry, then as many as fit, up to the first one that cannot be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bkclient._client.reading.batch_call import BatchCall
from bkclient._client.reading.entry_reads import EntryReads
from bkclient._client.reading.window import ReadWindow
from bkclient.entry import Entries, Entry
from bkclient.errors import BookieNotAvailable, BookKeeperError, ClientClosed
from bkclient.ledger import BookieId
from bkclient.protocol.batch_read import BATCH_ENTRY_OVERHEAD, BATCH_OVERHEAD

__all__ = ["read_batch"]


async def read_batch(reads: EntryReads, first_entry_id: int, max_count: int | None, max_bytes: int) -> Entries:
    """At least the entry ``first_entry_id``, and those after it as far as ``max_count`` and ``max_bytes`` allow (R-28).

    ``max_bytes`` counts what a batch answer would take on the wire: headers, digests and lengths besides the payloads; 0, and
    more than a frame, is as much as a frame takes (R-27).
    """
    max_bytes = min(max_bytes or reads.max_frame_size_bytes, reads.max_frame_size_bytes)
    if reads.may_batch:
        reads.check_open()
        replicas = reads.replicas(first_entry_id)
        usable = reads.core.memory.batches.usable(replicas, reads.loop.time())
        try:
            if usable:
                await reads.begin(first_entry_id)
                return Entries(await _read_natively(reads, usable, first_entry_id, max_count, max_bytes))
        except BookieNotAvailable:
            pass  # that is also what a bookie without batches looks like
        except BookKeeperError:
            if len(usable) == len(replicas):
                raise
    return Entries(await _read_singly(reads, first_entry_id, max_count, max_bytes))


async def _read_natively(
    reads: EntryReads, replicas: tuple[BookieId, ...], first_entry_id: int, max_count: int | None, max_bytes: int
) -> Sequence[Entry]:
    ended: asyncio.Future[None] = reads.loop.create_future()

    def on_end(_call: BatchCall) -> None:
        if not ended.done():  # as it is once it is cancelled
            ended.set_result(None)

    call = BatchCall(reads, replicas, first_entry_id, max_count, max_bytes, on_end)
    try:
        call.start()
        await ended
    finally:
        call.abandon()
    if call.error is not None:
        raise call.error
    return call.entries


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
