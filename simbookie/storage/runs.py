"""The ids of a ledger's entries as runs of consecutive ones, kept while entries come in any order."""

from __future__ import annotations

from array import array
from bisect import bisect_right

__all__ = ["EntryRuns"]


class EntryRuns:
    """Runs of the ids up to ``last``, the highest, which the owner keeps: an id that follows it costs nothing here."""

    __slots__ = ("_began", "_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self._began = 0

    def __len__(self) -> int:
        """Runs but the last."""
        return len(self._firsts)

    def skip_to(self, entry_id: int, last: int) -> None:
        """``entry_id`` came, above ``last + 1``; ``last`` is -1 if it is the first."""
        if last >= 0:
            self._firsts.append(self._began)
            self._lasts.append(last)
        self._began = entry_id

    def insert(self, entry_id: int) -> None:
        """``entry_id`` came, which is new and below the highest."""
        firsts, lasts = self._firsts, self._lasts
        index = bisect_right(firsts, entry_id)  # the run that follows
        follows = self._began if index == len(firsts) else firsts[index]
        extends = index > 0 and lasts[index - 1] == entry_id - 1
        if follows == entry_id + 1:
            first = firsts.pop(index - 1) if extends else entry_id
            if extends:
                lasts.pop(index - 1)
                index -= 1
            if index == len(firsts):
                self._began = first
            else:
                firsts[index] = first
        elif extends:
            lasts[index - 1] = entry_id
        else:
            firsts.insert(index, entry_id)
            lasts.insert(index, entry_id)

    def runs(self, last: int) -> tuple[array[int], array[int]]:
        """The first and the last ids of all runs, ascending; copies."""
        firsts, lasts = self._firsts[:], self._lasts[:]
        if last >= 0:
            firsts.append(self._began)
            lasts.append(last)
        return firsts, lasts
