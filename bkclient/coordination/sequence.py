"""An election by ephemeral sequential nodes: the lowest number is elected, and its successor is the next one.

A session that ends takes its candidate along, and a new one stands again at the end of the queue. No one can know at every moment
that it still is elected: an old one may go on for as long as it has not heard that its session ended. So whatever the elected one
does must bear two of them, or be refused by something that knows better: a ledger that was fenced, a number that grows.
"""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

from bkclient._news import wait_for_news
from bkclient.errors import MetadataStoreError
from bkclient.metadata.paths import sequence_number
from bkclient.metadata.tree import NodeTree, TreeNode

__all__ = ["SequentialElection"]

_LOOK_S: Final = 10.0
"""How often to look although no watch fired, in case one was lost."""


class SequentialElection:
    """One candidate, whose node below ``directory`` is ``prefix`` and a number and holds ``data``."""

    def __init__(self, tree: NodeTree, directory: str, prefix: str, data: bytes) -> None:
        self._tree = tree
        self._directory = directory
        self._prefix = prefix
        self._data = data

    async def lowest(self) -> tuple[int, TreeNode] | None:
        """The number and the node of the elected candidate; None if there is none."""
        for number, path in await self._candidates():
            node = await self._tree.get(path)
            if node is not None:
                return number, node
        return None

    async def own_term(self) -> int | None:
        """The number of this session's candidate if it is elected; None otherwise."""
        elected = await self.lowest()
        return elected[0] if elected is not None and elected[1].is_own else None

    async def until(self, *, is_elected: bool) -> int:
        """Wait until this session's candidate is, or is not, elected; its number, or -1.

        Stands for it, and again if the session is replaced by another.
        """
        changed = asyncio.Event()
        cancel = self._tree.watch(self._directory, changed.set)
        try:
            while True:
                changed.clear()
                try:
                    if is_elected and not await self._stands():
                        await self._tree.create(
                            f"{self._directory}/{self._prefix}", self._data, is_ephemeral=True, is_sequential=True
                        )
                    term = await self.own_term()
                    if (term is not None) is is_elected:
                        return -1 if term is None else term
                except MetadataStoreError:
                    await anyio.sleep(1.0)  # as long as the service does not answer there is no news
                    continue
                await wait_for_news(changed, _LOOK_S)
        finally:
            cancel()

    async def resign(self) -> None:
        """Stand no more. Idempotent."""
        for _, path in await self._candidates():
            node = await self._tree.get(path)
            if node is not None and node.is_own:
                await self._tree.delete(path)

    async def _stands(self) -> bool:
        for _, path in await self._candidates():
            node = await self._tree.get(path)
            if node is not None and node.is_own:
                return True
        return False

    async def _candidates(self) -> list[tuple[int, str]]:
        """Numbers and paths of the candidates, in the order of their numbers."""
        numbered = []
        for name in await self._tree.children(self._directory):
            try:
                numbered.append((sequence_number(name, self._prefix), f"{self._directory}/{name}"))
            except ValueError:
                continue
        return sorted(numbered)
