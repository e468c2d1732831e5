"""Python's cyclic garbage collector, switched off for a while.

It runs at moments that depend on everything a process has done, and looks at all objects made since it ran last. A run of a
simulated world must not depend on that. Where millions of objects are made of which hardly any is garbage, it looks in vain.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_off"]


@contextmanager
def collector_off() -> Iterator[None]:
    """Inside, only what nothing refers to any more is freed. Blocks may be nested; the collector is left as it was found."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
