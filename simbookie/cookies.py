"""Cookies: what a bookie leaves in the metadata service so that the cluster remembers it while it is away.

A real bookie refuses to start without the cookie that belongs to its disks. A simulated one keeps nothing that could belong to
a cookie, so it leaves one and never reads it. It is there for others: BookKeeper's own auditor takes the bookies it must miss
from the names of the cookies, and ends at once in a cluster that has none.
"""

from __future__ import annotations

from typing import Final

from bkclient.ledger import BookieId
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.records import Cookie, encode_cookie
from bkclient.metadata.tree import tree_of

__all__ = ["leave_cookie"]

#: What the cookie says instead of directories.
NOWHERE: Final = ("memory",)


async def leave_cookie(metadata: MetadataStore, bookie_id: BookieId) -> None:
    """Make the bookie known for good, unless it is; with the instance id of the cluster, if that has one.

    Raises as ``metadata`` does, and :class:`~bkclient.errors.ArgumentError` if it has no room for anything but ledgers.
    """
    tree = tree_of(metadata)
    instance = await tree.get("INSTANCEID")
    instance_id = None if instance is None else instance.data.decode()
    await tree.create(f"cookies/{bookie_id}", encode_cookie(Cookie(bookie_id, NOWHERE, NOWHERE, instance_id)))
