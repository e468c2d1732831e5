"""What other data takes of a disk, for disks that fill up and are emptied again."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["FilledCapacity"]


class FilledCapacity:
    """A capacity of ``total`` bytes, of which other data leaves less for a while; ``on_change`` is called with what it leaves."""

    def __init__(self, total: int, on_change: Callable[[int], None]) -> None:
        self._total = total
        self._on_change = on_change
        self._limits: dict[int, int] = {}
        self._fills = 0

    def fill(self, limit: int) -> Callable[[], None]:
        """Leave ``limit`` bytes from now on, or less; returns what takes that data away. Several may come and go in any order."""
        self._fills += 1
        number = self._fills
        self._limits[number] = limit
        self._tell()

        def empty() -> None:
            self._limits.pop(number, None)
            self._tell()

        return empty

    def _tell(self) -> None:
        self._on_change(min([self._total, *self._limits.values()]))
