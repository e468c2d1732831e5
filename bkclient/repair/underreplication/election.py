"""The election of one auditor per cluster, as BookKeeper's own auditors hold it.

Candidates are nodes ``V_<number>`` (:mod:`bkclient.coordination.sequence`). An old auditor may go on for as long as it has not
heard that its session ended, so whatever auditors do must bear two of them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from bkclient.coordination.sequence import SequentialElection
from bkclient.errors import MetadataStoreError
from bkclient.metadata.tree import NodeTree
from bkclient.repair.underreplication.formats import decode_vote, encode_vote

__all__ = ["AuditorElection"]

_DIRECTORY: Final = "underreplication/auditorelection"


class AuditorElection:
    """One candidate, known as ``name``."""

    def __init__(self, tree: NodeTree, name: str) -> None:
        self._tree = tree
        self._name = name
        self._election = SequentialElection(tree, _DIRECTORY, "V_", encode_vote(name))

    async def auditor(self) -> str | None:
        """The name of the present auditor; None if there is none."""
        elected = await self._election.lowest()
        return None if elected is None else decode_vote(elected[1].data)

    async def is_elected(self) -> bool:
        """Whether the lowest candidate belongs to this session."""
        return await self._election.own_term() is not None

    async def until_elected(self) -> None:
        """Stand, and again if the session is replaced by another, and wait until this candidate is the auditor."""
        await self._election.until(is_elected=True)
        await self._sign()

    async def until_deposed(self) -> None:
        """Wait until this candidate, which is the auditor, is so no more as far as the service tells."""
        await self._election.until(is_elected=False)

    async def resign(self) -> None:
        """Stand no more. Idempotent."""
        await self._election.resign()

    async def _sign(self) -> None:
        """Leave the name in the directory too, as BookKeeper's auditors do for human readers; no program reads it."""
        with suppress(MetadataStoreError):
            node = await self._tree.get(_DIRECTORY)
            if node is not None:
                await self._tree.write(_DIRECTORY, encode_vote(self._name), node.version)
