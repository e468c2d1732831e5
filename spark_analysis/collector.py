"""Python's garbage collector, held while a task makes millions of objects of which hardly any is garbage.

Looking for cycles among the lists and values of events takes longer than decoding them. A checker that is done with is one, so
where histories are judged the collector runs every now and then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from simbookie.collector_off import collector_off

__all__ = ["COLLECT_EVERY", "collector_paused"]

#: After so many histories what is left of their checkers is collected; some tens of megabytes.
COLLECT_EVERY: Final = 64

_Item = TypeVar("_Item")


def collector_paused(items: Iterable[_Item]) -> Iterator[_Item]:
    """``items``, each made without the collector, which looks for garbage after every :data:`COLLECT_EVERY` of them."""
    with collector_off():
        for number, item in enumerate(items, 1):
            yield item
            if number % COLLECT_EVERY == 0:
                gc.collect()
