"""What a log consists of: itself, or its partitions."""

from __future__ import annotations

from bkclient.log.errors import LogExists, NoSuchLog, naming
from bkclient.log.machine.changes import CreateLog
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.store import ManifestStore

__all__ = ["check_partitions_free", "open_partition", "partition_creation", "parts_of"]


def partition_creation(manifest: LogManifest, partition: int) -> CreateLog:
    """The change that makes a partition of a log. Its id follows from the log's, so everybody who makes it makes the same."""
    log_id = f"{manifest.log_id}-{partition}"
    return CreateLog(log_id, manifest.settings, manifest.created_ms, partition=partition)


async def open_partition(
    store: ManifestStore, manifest: LogManifest, partition: int
) -> tuple[ManifestStore, LogManifest]:
    """One partition of the log, which is made if the one who created the log did not come that far."""
    part = store.of_partition(partition)
    found = await part.change(partition_creation(manifest, partition))
    if found.is_deleted:
        raise naming(part.name, NoSuchLog("the partition was deleted with its log"))
    return part, found


async def parts_of(store: ManifestStore, manifest: LogManifest) -> list[tuple[ManifestStore, LogManifest]]:
    """The logs that hold the messages: this one, or its partitions in order."""
    if not manifest.partitions:
        return [(store, manifest)]
    return [await open_partition(store, manifest, number) for number in range(manifest.partitions)]


async def check_partitions_free(store: ManifestStore, partitions: int) -> None:
    """:class:`~bkclient.log.LogExists` if another log has the name of one of the partitions."""
    for number in range(partitions):
        part = store.of_partition(number)
        found = await part.read()
        if found is not None and not found.manifest.is_deleted:
            raise naming(part.name, LogExists("a log has the name of a partition"))
