"""Deleting logs and ledgers; each step is repeated by the next one who deletes, if it was interrupted."""

from __future__ import annotations

from bkclient.errors import IllegalOperation
from bkclient.log.cursor_admin import mark_removed
from bkclient.log.errors import NoSuchLog, naming
from bkclient.log.machine.changes import DeleteLog, ForgetTrimmed
from bkclient.log.machine.compacting import ForgetDropped
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.opening import partition_creation
from bkclient.log.store import ManifestStore

__all__ = ["delete_log", "delete_partitions", "delete_trimmed"]


async def delete_log(store: ManifestStore) -> None:
    """Delete a log with its partitions, ledgers and cursors."""
    value = await store.read()
    if value is None or value.manifest.is_deleted:
        if value is not None:
            await delete_partitions(store, value.manifest)
        raise naming(store.name, NoSuchLog("there is no log with this name"))
    if value.manifest.partition >= 0:
        raise IllegalOperation(
            f"log {store.name!r} is a partition of another", advice="Delete the log that has the partitions."
        )
    await _delete(store, value.manifest)
    # The log goes first: nobody makes partitions of it any more that were deleted.
    await delete_partitions(store, value.manifest)


async def delete_partitions(store: ManifestStore, manifest: LogManifest) -> None:
    """Delete what is left of the partitions of a deleted log."""
    for number in range(manifest.partitions):
        part = store.of_partition(number)
        value = await part.read()
        if value is not None and value.manifest.log_id == partition_creation(manifest, number).log_id:
            await _delete(part, value.manifest)


async def _delete(store: ManifestStore, manifest: LogManifest) -> None:
    await delete_trimmed(store, await store.change(DeleteLog(manifest.log_id)))
    for cursor in manifest.cursors:
        await mark_removed(store, cursor)


async def delete_trimmed(store: ManifestStore, manifest: LogManifest) -> None:
    """Delete the ledgers that left the list, and those of compactions that are not pointed to, and forget them."""
    for ledger_id in manifest.trimmed:
        await store.client.delete_ledger(ledger_id)
    if manifest.trimmed:
        await store.change(ForgetTrimmed(manifest.trimmed))
    for ledger_id in manifest.dropped:
        await store.client.delete_ledger(ledger_id)
    if manifest.dropped:
        await store.change(ForgetDropped(manifest.dropped))
