"""The tree of nodes of a simulated metadata service, by a client's connection.

Calls take their time and suffer the faults that a :class:`~simbookie.world.metadata_service.MetadataCall` can suffer; operations
are called ``tree_get``, ``tree_children``, ``tree_create``, ``tree_write`` and ``tree_delete`` there. A session that
a recorder wraps has the tree that the recorder gives it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from bkclient.metadata.base import Cancel, MetadataStore
from bkclient.metadata.tree import NodeTree, TreeNode, tree_of
from simbookie.world.metadata_service import MetadataCall

__all__ = ["SimulatedTree"]

T = TypeVar("T")


class _Ask(Protocol):
    async def __call__(
        self, call: MetadataCall, carry_out: Callable[[MetadataStore], Awaitable[T]], *, is_repeatable: bool = True
    ) -> T: ...


_Watch = Callable[[Callable[[MetadataStore, Callable[[Any], None]], Cancel], Callable[[Any], None]], Cancel]


class SimulatedTree:
    """Implements :class:`bkclient.metadata.tree.NodeTree`."""

    def __init__(self, host_name: str, ask: _Ask, watch: _Watch) -> None:
        self._host_name = host_name
        self._ask = ask
        self._watch = watch

    async def get(self, path: str) -> TreeNode | None:
        """See :class:`~bkclient.metadata.tree.NodeTree`, as for all that follows."""
        return await self._do("tree_get", lambda tree: tree.get(path))

    async def children(self, path: str) -> list[str]:
        """See there."""
        return await self._do("tree_children", lambda tree: tree.children(path))

    async def create(
        self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, is_sequential: bool = False
    ) -> str | None:
        """See there."""
        return await self._do(
            "tree_create",
            lambda tree: tree.create(path, data, is_ephemeral=is_ephemeral, is_sequential=is_sequential),
        )

    async def write(self, path: str, data: bytes, version: int) -> bool:
        """See there."""
        return await self._do("tree_write", lambda tree: tree.write(path, data, version), is_repeatable=False)

    async def delete(self, path: str, version: int | None = None) -> bool:
        """See there."""
        return await self._do("tree_delete", lambda tree: tree.delete(path, version))

    def watch(self, path: str, listener: Callable[[], None]) -> Cancel:
        """See there."""
        return self._watch(lambda store, tell: tree_of(store).watch(path, lambda: tell(None)), lambda _: listener())

    async def _do(
        self, operation: str, carry_out: Callable[[NodeTree], Awaitable[T]], *, is_repeatable: bool = True
    ) -> T:
        return await self._ask(
            MetadataCall(self._host_name, operation),
            lambda store: carry_out(tree_of(store)),
            is_repeatable=is_repeatable,
        )
