"""The end of appends that succeeded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from bkclient._core import has_twins
from bkclient.protocol.adds import NewEntry

__all__ = ["settle"]


def settle(futures: dict[int, asyncio.Future[int]], entries: Sequence[NewEntry]) -> int:
    """Take the futures of ``entries`` out and complete them with the entries' ids; returns the bytes of the payloads."""
    size = 0
    for entry_id, payload, _, _ in entries:
        size += len(payload)
        future = futures.pop(entry_id)
        if not future.done():
            future.set_result(entry_id)
    return size


has_twins(
    "counting",
    sys.modules[__name__],
    "settle",
    bind="bind_settle",
    knows=(asyncio.Future, asyncio.InvalidStateError),
)
