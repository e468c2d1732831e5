"""Which entry ids of the application's choice were handed in, and which of them are above a gap."""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["NO_GAPS", "NO_TURNS", "Gaps"]


class Gaps:
    """The ids that one writer was handed, each once; ids start at 0 and must leave no gap in the end."""

    __slots__ = ("above", "last_without_gap")

    def __init__(self) -> None:
        #: Everything up to here was handed in.
        self.last_without_gap = -1
        #: What is above a gap, with its size in bytes.
        self.above: dict[int, int] = {}

    def is_above(self, entry_id: int) -> bool:
        """Whether a smaller id than ``entry_id`` is still to come."""
        return entry_id > self.last_without_gap + 1

    def add(self, entry_id: int, size: int) -> tuple[int, int]:
        """Note an entry of ``size`` bytes; returns how many entries, and bytes, are above a gap no more because of it."""
        if self.is_above(entry_id):
            self.above[entry_id] = size
            return 0, 0
        entries = total = 0
        while entry_id + 1 in self.above:
            entry_id += 1
            entries += 1
            total += self.above.pop(entry_id)
        self.last_without_gap = entry_id
        return entries, total

    def clear(self) -> tuple[int, int]:
        """The writer has ended, so no gap will be filled; returns how many entries, and bytes, were above one."""
        entries, total = len(self.above), sum(self.above.values())
        self.above.clear()
        return entries, total


NO_GAPS: Final = Gaps()
"""That of all writers that choose ids themselves; nothing is noted in it."""

NO_TURNS: Final[dict[int, asyncio.Future[None]]] = {}
"""Nobody waits for the turn of an id at those writers."""
