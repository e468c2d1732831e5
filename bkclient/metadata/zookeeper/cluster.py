"""The root of a BookKeeper cluster in ZooKeeper: making it, and making sure that it is the one that was meant.

Whether a cluster exists is decided by ``available``, without which no client of any kind starts. LAYOUT may be missing
in a new cluster; the first client then writes it. Two clients that do so at once agree, because the loser reads what
the winner wrote.
"""

from __future__ import annotations

import logging
import uuid
from random import Random

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from bkclient.errors import ArgumentError, MetadataStoreError
from bkclient.metadata.paths import LedgerManager
from bkclient.metadata.records import decode_layout, encode_layout
from bkclient.metadata.uri import ZooKeeperUri
from bkclient.metadata.zookeeper.session import ZooKeeperSession

__all__ = ["initialise_cluster", "open_cluster"]

_log = logging.getLogger(__name__)


async def open_cluster(session: ZooKeeperSession, target: ZooKeeperUri) -> LedgerManager:
    """The ledger manager of the cluster at the root of ``target``.

    :class:`~bkclient.errors.MetadataStoreError` if there is no cluster, :class:`~bkclient.errors.ArgumentError` if it
    has another ledger manager than the URI asks for.
    """
    if await session.exists(f"{target.root}/available") is None:
        raise MetadataStoreError(
            f"there is no BookKeeper cluster at {target}: check the root path, or initialise the cluster first"
        )
    await _make(session, f"{target.root}/available/readonly", b"")
    layout = f"{target.root}/LAYOUT"
    try:
        data, _ = await session.get(layout, sync=True)
    except NoNodeError:
        await _make(session, layout, encode_layout(target.manager or LedgerManager.HIERARCHICAL))
        data, _ = await session.get(layout, sync=True)
    manager = decode_layout(data)
    if target.manager not in {None, manager}:
        raise ArgumentError(f"{target} disagrees with the LAYOUT of the cluster, which is zk+{manager.value}")
    return manager


async def initialise_cluster(session: ZooKeeperSession, target: ZooKeeperUri, rng: Random) -> None:
    """Make the cluster unless it exists. ``rng`` supplies its instance id.

    Everything but LAYOUT is made in one transaction, so no client ever sees half a cluster.
    """
    names = target.root.split("/")
    for depth in range(2, len(names)):
        await _make(session, "/".join(names[:depth]), b"")
    instance_id = str(uuid.UUID(int=rng.getrandbits(128), version=4)).encode()
    has_root = await session.exists(target.root) is not None

    def start(client: KazooClient) -> object:
        transaction = client.transaction()
        if not has_root:
            transaction.create(target.root, b"")
        transaction.create(f"{target.root}/available", b"")
        transaction.create(f"{target.root}/available/readonly", b"")
        transaction.create(f"{target.root}/INSTANCEID", instance_id)
        return transaction.commit_async()

    results = await session.request(start, is_write=True)
    if any(isinstance(result, NodeExistsError) for result in results):
        _log.info("the cluster at %s exists already", target)
    elif any(isinstance(result, Exception) for result in results):
        raise MetadataStoreError(f"the cluster at {target} could not be made: {results}")


async def _make(session: ZooKeeperSession, path: str, data: bytes) -> None:
    try:
        await session.create(path, data)
    except NodeExistsError:
        _log.debug("%s is there already", path)
