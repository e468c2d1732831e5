"""The search for a small subsequence that still has a property: delta debugging (Zeller and Hildebrandt's ddmin).

Chunks of the items are left out, large ones first: half of them, a quarter, and so on down to single items. So a long sequence of
which little matters is shrunk with a logarithmic number of tries, and what remains is minimal by single removals: without any one
of its items the property is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["minimal"]

ItemT = TypeVar("ItemT")


def minimal(items: Sequence[ItemT], holds: Callable[[tuple[ItemT, ...]], bool]) -> tuple[ItemT, ...]:
    """A subsequence of ``items`` for which ``holds`` is true, and for no other with one item less.

    ``holds`` is taken to be true of ``items`` as they are, and is not asked.
    """
    kept = tuple(items)
    if kept and holds(()):
        return ()
    size = len(kept) // 2
    while size:
        kept = _without_chunks(kept, size, holds)
        size = size // 2 if size > 1 else 0
    # Leaving out a late item may make an early one needless.
    while len(kept) > 1 and len(fewer := _without_chunks(kept, 1, holds)) < len(kept):
        kept = fewer
    return kept


def _without_chunks(
    kept: tuple[ItemT, ...], size: int, holds: Callable[[tuple[ItemT, ...]], bool]
) -> tuple[ItemT, ...]:
    """``kept`` without the chunks of ``size`` items that can be left out, the last ones first."""
    end = len(kept)
    while end > 0:
        begin = max(0, end - size)
        rest = kept[:begin] + kept[end:]
        if rest and holds(rest):
            kept = rest
        end = begin
    return kept
