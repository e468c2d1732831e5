"""A small tree of nodes with versions, sessions and watches, for what clients coordinate beside the ledgers.

Auto-recovery of BookKeeper keeps its marks, locks and votes as nodes below ``underreplication`` in ZooKeeper, and its programs
meet there without knowing each other. So the seam is the tree itself, not the operations on it: everything that gives nodes
a meaning (:mod:`bkclient.repair.underreplication`) exists once, over drivers that know no more than what a ZooKeeper ensemble
offers. The drivers are ZooKeeper itself, a tree in memory, and the simulated world's connection to that one.

Paths are relative to the root of the cluster and have no slash at either end. A node that is *ephemeral* ends with the session
that made it. After a lost connection an operation may have been carried out without an answer; each method says what then
happens. The ready-made recipes of ZooKeeper libraries are no help here: they choose names and contents of their own, which
BookKeeper's programs would not recognise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from bkclient.errors import ArgumentError
from bkclient.metadata.base import Cancel, MetadataStore

__all__ = ["HasNodeTree", "HasParentTree", "NodeTree", "TreeNode", "parent_tree_of", "tree_of"]


@dataclass(frozen=True, slots=True)
class TreeNode:
    """What a node holds, its version, and whether it is an ephemeral node of the session that asked."""

    data: bytes = field(repr=False)
    version: int
    is_own: bool = False


class NodeTree(Protocol):
    """One session's access to the tree. Methods raise as those of :class:`~bkclient.metadata.base.MetadataStore` do."""

    async def get(self, path: str) -> TreeNode | None:
        """The node, ``None`` if there is none."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names of a node's children, sorted; none if the node does not exist."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, is_sequential: bool = False
    ) -> str | None:
        """Make a node and what is missing above it; its path, ``None`` if it exists.

        With ``is_sequential`` the service appends ten digits that grow with every node made below the same parent. Repeated
        after a lost connection: ``None`` may then mean one's own, which :attr:`TreeNode.is_own` tells for ephemeral nodes,
        and a sequential node may be there twice.
        """
        ...

    async def write(self, path: str, data: bytes, version: int) -> bool:
        """Replace the data if the node has ``version``; whether it had.

        Never repeated; :class:`~bkclient.errors.MetadataOutcomeUnknown` after a lost connection.
        """
        ...

    async def delete(self, path: str, version: int | None = None) -> bool:
        """Remove the node, if it has ``version`` where one is given, and is without children; whether it is gone.

        A node that does not exist counts as gone. Repeated after a lost connection.
        """
        ...

    def watch(self, path: str, listener: Callable[[], None]) -> Cancel:
        """Call ``listener`` soon, and after the node was made, changed or removed, or got other children.

        Calls come from the event loop, never from within this call; several changes may be told by one call, and a call may
        tell of nothing new. Watches survive lost connections and sessions.
        """
        ...


@runtime_checkable
class HasNodeTree(Protocol):
    """A metadata store that gives access to the tree its ledgers lie in."""

    def node_tree(self) -> NodeTree:
        """The tree, by this store's session."""
        ...


def tree_of(store: MetadataStore) -> NodeTree:
    """The tree of the service that ``store`` is a session with.

    :class:`~bkclient.errors.ArgumentError` for a store that has none: another driver, or a wrapper.
    """
    if not isinstance(store, HasNodeTree):
        raise ArgumentError(
            f"{type(store).__name__} gives no access to nodes, which auto-recovery and coordination need"
        )
    return store.node_tree()


@runtime_checkable
class HasParentTree(Protocol):
    """A metadata store that gives access to the nodes beside its cluster's root."""

    def parent_tree(self) -> NodeTree:
        """The tree below the parent of the cluster's root, by this store's session."""
        ...


def parent_tree_of(store: MetadataStore) -> NodeTree:
    """The tree in which the root of the cluster of ``store`` is one node.

    :class:`~bkclient.errors.ArgumentError` for a store that has none: it keeps nothing but one cluster.
    """
    if not isinstance(store, HasParentTree):
        raise ArgumentError(f"{type(store).__name__} gives no access to nodes beside those of BookKeeper")
    return store.parent_tree()
