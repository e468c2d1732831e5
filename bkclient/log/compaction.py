"""Compacting a log by key: the newest message of each key is written to a ledger of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from bkclient import LedgerWriter
from bkclient.errors import MetadataVersionConflict, TooManyRequests
from bkclient.log.compacted_reader import CompactedReader
from bkclient.log.deleting import delete_trimmed
from bkclient.log.errors import NoSuchLog
from bkclient.log.format.compression import Compression
from bkclient.log.format.entry import COMPACTED_BYTES, OVERHEAD_BYTES, encode_compacted
from bkclient.log.format.message import LogMessage, NewMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.compacting import BeginCompaction, FinishCompaction
from bkclient.log.machine.manifest import CompactedLedger, LogManifest
from bkclient.log.partition_reader import end_of
from bkclient.log.store import ManifestStore

__all__ = ["compact_log"]

_BATCH_MESSAGES: Final = 1_000
_BATCH_BYTES: Final = 128 * 1024


async def compact_log(store: ManifestStore, manifest: LogManifest, *, compression: Compression, max_keys: int) -> int:
    """Compact one log, or one partition, up to its end now; how many messages are left."""
    through = await _last_entry(store, manifest)
    known = manifest.compacted
    if through is None or (known is not None and through <= (known.through_ledger_id, known.through_entry_id)):
        await delete_trimmed(store, manifest)
        return 0 if known is None else known.messages
    newest = await _newest(_messages(store, manifest, through), max_keys)
    writer = await _announced(store, manifest)
    async with writer:
        limit = min(_BATCH_BYTES, store.client.max_entry_bytes - OVERHEAD_BYTES)
        await _write(writer, _kept(_messages(store, manifest, through), newest), compression, limit)
    made = CompactedLedger(writer.ledger_id, *through, len(newest))
    # Only after this the one before is deleted: until then readers are told of that.
    await delete_trimmed(store, await store.change(FinishCompaction(manifest.log_id, made)))
    return len(newest)


async def _last_entry(store: ManifestStore, manifest: LogManifest) -> tuple[int, int] | None:
    """The last ledger with an entry that can be read now, and that entry; None if there is none."""
    ledger_id, entry_id = await end_of(store, manifest)
    if entry_id >= 0:
        return ledger_id, entry_id
    ends = [ledger.end for ledger in manifest.ledgers[-2:-1]]  # of a new ledger bookies may tell nothing yet
    return (ends[0].ledger_id, ends[0].last_entry_id) if ends and ends[0] is not None else None


async def _announced(store: ManifestStore, manifest: LogManifest) -> LedgerWriter:
    """A ledger to write to, which the manifest tells of: a compaction that dies from then on leaves one that the next deletes."""
    settings = manifest.settings
    writer = await store.client.create_ledger(
        ensemble_size=settings.ensemble_size,
        write_quorum_size=settings.write_quorum_size,
        ack_quorum_size=settings.ack_quorum_size,
        custom_metadata={
            "application": b"bkclient-log-compacted",
            "log": store.name.encode(),
            "log-id": manifest.log_id.encode(),
        },
    )
    try:
        announced = await store.change(BeginCompaction(manifest.log_id, writer.ledger_id, manifest.compacted))
    except (MetadataVersionConflict, NoSuchLog):
        await store.client.delete_ledger(writer.ledger_id)  # no manifest has it, and none will
        raise
    await delete_trimmed(store, announced)
    return writer


async def _newest(messages: AsyncIterator[LogMessage], max_keys: int) -> dict[str, MessageId]:
    """By key, where its newest message is, unless that deletes the key."""
    newest: dict[str, MessageId] = {}
    async for message in messages:
        if message.key is None:
            continue
        if not message.payload:
            newest.pop(message.key, None)
        else:
            newest[message.key] = message.id
        if len(newest) > max_keys:
            raise TooManyRequests(f"the log has more than {max_keys} keys", advice="Compact it with a larger max_keys.")
    return newest


async def _messages(store: ManifestStore, manifest: LogManifest, through: tuple[int, int]) -> AsyncIterator[LogMessage]:
    reader = CompactedReader(store, MessageId.EARLIEST, is_inclusive=True, follow=False)
    try:
        await reader.enter(manifest)
        while await reader.fill():
            message = reader.take()
            assert message is not None, "there is one"
            if (message.id.ledger_id, message.id.entry_id) > through:
                return
            yield message
    finally:
        await reader.leave()


async def _kept(messages: AsyncIterator[LogMessage], newest: dict[str, MessageId]) -> AsyncIterator[LogMessage]:
    async for message in messages:
        if message.key is not None and newest.get(message.key) == message.id:
            yield message


async def _write(
    writer: LedgerWriter, messages: AsyncIterator[LogMessage], compression: Compression, max_bytes: int
) -> None:
    """Write messages, as many to an entry as ``max_bytes`` takes, and one in any case."""
    batch: list[LogMessage] = []
    size = 0
    async for message in messages:
        length = NewMessage(message.payload, message.key, message.headers).size + COMPACTED_BYTES
        if batch and (len(batch) >= _BATCH_MESSAGES or size + length > max_bytes):
            await writer.submit(encode_compacted(batch, compression))
            batch, size = [], 0
        batch.append(message)
        size += length
    if batch:
        await writer.submit(encode_compacted(batch, compression))
