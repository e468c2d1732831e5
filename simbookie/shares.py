"""Who holds most of something that many share."""

from __future__ import annotations

__all__ = ["Shares"]


class Shares:
    """Counts what each source holds; every method takes constant time."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._sources: dict[int, dict[str, None]] = {}
        #: What the source with most of it holds.
        self.largest = 0

    def count(self, source: str) -> int:
        """How many ``source`` holds."""
        return self._counts.get(source, 0)

    def greediest(self) -> str:
        """A source that holds :attr:`largest`; there must be one that holds something."""
        return next(iter(self._sources[self.largest]))

    def add(self, source: str) -> None:
        """``source`` holds one more."""
        self._move(source, self.count(source) + 1)

    def remove(self, source: str) -> None:
        """``source`` holds one less."""
        self._move(source, self._counts[source] - 1)

    def _move(self, source: str, count: int) -> None:
        before = self._counts.pop(source, 0)
        if before:
            del self._sources[before][source]
            if not self._sources[before]:
                del self._sources[before]
        if count:
            self._counts[source] = count
            self._sources.setdefault(count, {})[source] = None
        if count > self.largest or (before == self.largest and before not in self._sources):
            self.largest = count
