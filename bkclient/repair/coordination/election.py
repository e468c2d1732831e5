"""The election of one auditor per cluster, as BookKeeper's own auditors hold it.

Every candidate is an ephemeral sequential node ``V_<number>``; the lowest number is the auditor, and its successor is the next
one. A session that ends takes its candidate along, and a new one stands again at the end of the queue. No one can
know at every moment that it still is the auditor: an old one may go on for as long as it has not heard that its session ended,
so whatever auditors do must bear two of them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import anyio

from bkclient.errors import MetadataStoreError
from bkclient.metadata.paths import sequence_number
from bkclient.metadata.tree import NodeTree
from bkclient.repair.coordination.formats import decode_vote, encode_vote

__all__ = ["AuditorElection"]

_DIRECTORY: Final = "underreplication/auditorelection"
_PREFIX: Final = "V_"
_LOOK_S: Final = 10.0
"""How often to look although no watch fired, in case one was lost."""


class AuditorElection:
    """One candidate, known as ``name``."""

    def __init__(self, tree: NodeTree, name: str) -> None:
        self._tree = tree
        self._name = name

    async def auditor(self) -> str | None:
        """The name of the present auditor; None if there is none."""
        for path in await self._candidates():
            node = await self._tree.get(path)
            if node is not None:
                return decode_vote(node.data)
        return None

    async def is_elected(self) -> bool:
        """Whether the lowest candidate belongs to this session."""
        for path in await self._candidates():
            node = await self._tree.get(path)
            if node is not None:
                return node.is_own
        return False

    async def until_elected(self) -> None:
        """Stand, and again if the session is replaced by another, and wait until this candidate is the auditor."""
        await self._until(is_elected=True)
        await self._sign()

    async def until_deposed(self) -> None:
        """Wait until this candidate, which is the auditor, is so no more as far as the service tells."""
        await self._until(is_elected=False)

    async def resign(self) -> None:
        """Stand no more. Idempotent."""
        for path in await self._candidates():
            node = await self._tree.get(path)
            if node is not None and node.is_own:
                await self._tree.delete(path)

    async def _until(self, *, is_elected: bool) -> None:
        changed = asyncio.Event()
        cancel = self._tree.watch(_DIRECTORY, changed.set)
        try:
            while True:
                changed.clear()
                try:
                    if is_elected and not await self._stands():
                        await self._tree.create(
                            f"{_DIRECTORY}/{_PREFIX}", encode_vote(self._name), is_ephemeral=True, is_sequential=True
                        )
                    if await self.is_elected() is is_elected:
                        return
                except MetadataStoreError:
                    await anyio.sleep(1.0)  # as long as the service does not answer there is no news
                    continue
                with suppress(TimeoutError):  # not anyio's scope, see wait_for_news
                    async with asyncio.timeout(_LOOK_S):
                        await changed.wait()
        finally:
            cancel()

    async def _sign(self) -> None:
        """Leave the name in the directory too, as BookKeeper's auditors do for human readers; no program reads it."""
        with suppress(MetadataStoreError):
            node = await self._tree.get(_DIRECTORY)
            if node is not None:
                await self._tree.write(_DIRECTORY, encode_vote(self._name), node.version)

    async def _stands(self) -> bool:
        for path in await self._candidates():
            node = await self._tree.get(path)
            if node is not None and node.is_own:
                return True
        return False

    async def _candidates(self) -> list[str]:
        """The candidates, in the order of their numbers."""
        numbered = []
        for name in await self._tree.children(_DIRECTORY):
            try:
                numbered.append((sequence_number(name, _PREFIX), name))
            except ValueError:
                continue
        return [f"{_DIRECTORY}/{name}" for _, name in sorted(numbered)]
