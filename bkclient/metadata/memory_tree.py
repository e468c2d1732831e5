"""The tree of nodes of a metadata service in memory; see :mod:`bkclient.metadata.tree` for what it promises.

:class:`MemoryTree` is what a service holds, :class:`MemoryTreeSession` one session's view of it. Ephemeral nodes belong to the
session object, any object, and go when :meth:`MemoryTree.end_session` is called with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bkclient.errors import ArgumentError
from bkclient.metadata.base import Cancel
from bkclient.metadata.listeners import ListenerCalls
from bkclient.metadata.tree import TreeNode

__all__ = ["MemoryTree", "MemoryTreeSession"]


@dataclass(slots=True)
class _Node:
    data: bytes = field(repr=False)
    owner: object | None = None
    version: int = 0
    #: How many children were ever made, which names sequential ones.
    made: int = 0
    children: dict[str, None] = field(default_factory=dict)


class MemoryTree:
    """All nodes of one service; every method takes effect at once."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {"": _Node(b"")}
        self._watches: dict[str, dict[ListenerCalls[None], None]] = {}

    def get(self, path: str, session: object) -> TreeNode | None:
        """The node as ``session`` sees it."""
        node = self._nodes.get(path)
        return None if node is None else TreeNode(node.data, node.version, is_own=node.owner is session)

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted."""
        node = self._nodes.get(path)
        return [] if node is None else sorted(node.children)

    def create(self, path: str, data: bytes, owner: object | None, *, is_sequential: bool) -> str | None:
        """Make a node and its parents; ``owner`` is the session of an ephemeral one."""
        parent_path, _, name = path.rpartition("/")
        if parent_path not in self._nodes:
            self.create(parent_path, b"", None, is_sequential=False)
        parent = self._nodes[parent_path]
        if is_sequential:
            name = f"{name}{parent.made:010d}"
            path = f"{parent_path}/{name}" if parent_path else name
        if path in self._nodes:
            return None
        parent.made += 1
        parent.children[name] = None
        self._nodes[path] = _Node(bytes(data), owner)
        self._notify(path, parent_path)
        return path

    def write(self, path: str, data: bytes, version: int) -> bool:
        """Replace the data at ``version``."""
        node = self._nodes.get(path)
        if node is None or node.version != version:
            return False
        node.data, node.version = bytes(data), version + 1
        self._notify(path)
        return True

    def delete(self, path: str, version: int | None) -> bool:
        """Remove a node without children."""
        node = self._nodes.get(path)
        if node is None:
            return True
        if not path or node.children or version not in (None, node.version):
            return False
        parent_path, _, name = path.rpartition("/")
        del self._nodes[path], self._nodes[parent_path].children[name]
        self._notify(path, parent_path)
        return True

    def watch(self, path: str, watch: ListenerCalls[None]) -> Cancel:
        """Tell ``watch`` soon, and after every change."""
        watches = self._watches.setdefault(path, {})
        watches[watch] = None
        watch.notify(None)

        def cancel() -> None:
            watch.cancel()
            watches.pop(watch, None)
            if not watches and self._watches.get(path) is watches:
                del self._watches[path]

        return cancel

    def contents(self) -> dict[str, bytes]:
        """The data of all nodes, by path."""
        return {path: node.data for path, node in self._nodes.items()}

    def watch_counts(self) -> dict[str, int]:
        """By path, how many watch a node that anybody watches."""
        return {path: len(watches) for path, watches in self._watches.items()}

    def end_session(self, session: object) -> None:
        """Remove what ``session`` made ephemeral."""
        for path in [path for path, node in self._nodes.items() if node.owner is session]:
            self.delete(path, None)

    def _notify(self, *paths: str) -> None:
        for path in paths:
            for watch in self._watches.get(path, {}):
                watch.notify(None)


class MemoryTreeSession:
    """One session's view; implements :class:`bkclient.metadata.tree.NodeTree`.

    ``checkpoint`` is awaited before every operation: it passes control to the loop and refuses a closed session.
    ``until_closed`` makes a watch end with the session.
    """

    def __init__(
        self,
        tree: MemoryTree,
        session: object,
        checkpoint: Callable[[], Awaitable[None]],
        until_closed: Callable[[Cancel], Cancel],
    ) -> None:
        self._tree = tree
        self._session = session
        self._checkpoint = checkpoint
        self._until_closed = until_closed

    async def get(self, path: str) -> TreeNode | None:
        """See :class:`~bkclient.metadata.tree.NodeTree`, as for all that follows."""
        await self._checkpoint()
        return self._tree.get(_checked(path), self._session)

    async def children(self, path: str) -> list[str]:
        """See there."""
        await self._checkpoint()
        return self._tree.children(_checked(path))

    async def create(
        self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, is_sequential: bool = False
    ) -> str | None:
        """See there."""
        await self._checkpoint()
        owner = self._session if is_ephemeral else None
        return self._tree.create(_checked(path), data, owner, is_sequential=is_sequential)

    async def write(self, path: str, data: bytes, version: int) -> bool:
        """See there."""
        await self._checkpoint()
        return self._tree.write(_checked(path), data, version)

    async def delete(self, path: str, version: int | None = None) -> bool:
        """See there."""
        await self._checkpoint()
        return self._tree.delete(_checked(path), version)

    def watch(self, path: str, listener: Callable[[], None]) -> Cancel:
        """See there."""
        return self._until_closed(self._tree.watch(_checked(path), ListenerCalls(lambda _: listener())))


def _checked(path: str) -> str:
    if not path or not all(path.split("/")):
        raise ArgumentError(f"{path!r} is not the path of a node")
    return path
