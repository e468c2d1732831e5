"""The nodes of the metadata service as a client hands them out: they end with the client."""

from __future__ import annotations

from collections.abc import Callable

from bkclient._client.core import ClientCore
from bkclient.errors import ClientClosed
from bkclient.metadata.base import Cancel
from bkclient.metadata.tree import NodeTree, TreeNode

__all__ = ["ClientTree"]


class ClientTree:
    """Access to ``tree`` as long as the client of ``core`` is open.

    Once it is closed every operation raises :class:`~bkclient.errors.ClientClosed`, though the session, which belongs to the
    caller, may last; and who watches is called, to look and learn that. So nothing that waits for a change waits for ever.
    """

    def __init__(self, tree: NodeTree, core: ClientCore) -> None:
        self._tree = tree
        self._core = core

    def _open(self) -> NodeTree:
        if self._core.is_closed:
            raise ClientClosed
        return self._tree

    async def get(self, path: str) -> TreeNode | None:
        """See :class:`~bkclient.metadata.tree.NodeTree`."""
        return await self._open().get(path)

    async def children(self, path: str) -> list[str]:
        """See :class:`~bkclient.metadata.tree.NodeTree`."""
        return await self._open().children(path)

    async def create(
        self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, is_sequential: bool = False
    ) -> str | None:
        """See :class:`~bkclient.metadata.tree.NodeTree`."""
        return await self._open().create(path, data, is_ephemeral=is_ephemeral, is_sequential=is_sequential)

    async def write(self, path: str, data: bytes, version: int) -> bool:
        """See :class:`~bkclient.metadata.tree.NodeTree`."""
        return await self._open().write(path, data, version)

    async def delete(self, path: str, version: int | None = None) -> bool:
        """See :class:`~bkclient.metadata.tree.NodeTree`."""
        return await self._open().delete(path, version)

    def watch(self, path: str, listener: Callable[[], None]) -> Cancel:
        """See :class:`~bkclient.metadata.tree.NodeTree`; ``listener`` is called at the end of the client, too."""
        end_watch = self._open().watch(path, listener)

        def tell() -> None:
            self._core.loop.call_soon(listener)

        forget = self._core.at_close(tell)

        def cancel() -> None:
            forget()
            end_watch()

        return cancel
