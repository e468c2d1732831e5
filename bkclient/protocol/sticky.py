"""Reading from one bookie as long as it serves (R-23).

A reader of an unstriped ledger may find every entry on every bookie. Keeping to one of them lets its caches work; different
readers begin with different ones, so that the load is spread.
"""

from __future__ import annotations

from collections.abc import Sequence

from bkclient.ledger import BookieId
from bkclient.protocol.value import Value

__all__ = ["StickyIndex"]


class StickyIndex(Value):
    """The position in an ensemble of ``size`` that is read from first."""

    __slots__ = ("_size", "position")

    def __init__(self, size: int, position: int) -> None:
        assert 0 <= position < size, "a position of the ensemble"
        self.position = position
        self._size = size

    def rotate(self, ensemble: Sequence[BookieId]) -> tuple[BookieId, ...]:
        """``ensemble`` from the position on, and around."""
        return (*ensemble[self.position :], *ensemble[: self.position])

    def on_failed(self, ensemble: Sequence[BookieId], bookie_id: BookieId) -> None:
        """A bookie failed a read, or let it wait: go on to the next one if it is the one read from.

        Further failures of the same bookie, whose requests were under way, do not move it again.
        """
        if ensemble[self.position] == bookie_id:
            self.position = (self.position + 1) % self._size
