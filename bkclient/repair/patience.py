"""Waiting, as auto-recovery does it: for the switch, for news, for a metadata service that does not answer, and at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from bkclient._backoff import Backoff
from bkclient._news import wait_for_news
from bkclient.errors import BookKeeperError, ClientClosed, MetadataDriverError, MetadataStoreError
from bkclient.repair.events import EventKind, OnRepairEvent, RepairEvent
from bkclient.repair.underreplication.marks import UnderReplication

__all__ = ["FailureCount", "farewell", "lock_release_delay_s", "until_enabled"]

_LOOK_S = 10.0
"""How often the switch is looked at although no watch fired."""
_PAUSES = Backoff(0.5, 30.0)
_FAREWELL_S = 2.0
"""How long a program that is stopped takes at most to put its things in order."""


async def until_enabled(marks: UnderReplication) -> None:
    """Return once auto-recovery is switched on in the cluster; at once if it is."""
    if await marks.is_enabled():
        return
    news = asyncio.Event()
    cancel = marks.watch_enabled(news.set)
    try:
        while not await marks.is_enabled():
            await wait_for_news(news, _LOOK_S)
            news.clear()
    finally:
        cancel()


def lock_release_delay_s(failures: int, grace_s: float) -> float:
    """How long a ledger stays locked after its ``failures``-th failure in a row, counted from 1.

    A 32nd of the grace period at first, twice as long each time, and the whole of it from the sixth on.
    """
    return Backoff(grace_s / 32, grace_s).nth(failures - 1)


async def farewell(leave: Callable[[], Awaitable[None]], tell: OnRepairEvent) -> None:
    """Await ``leave`` for a while, also when cancelled. If it fails, the end of the session does what it should have done."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(_FAREWELL_S):
        try:
            await leave()
        except ClientClosed:
            pass
        except BookKeeperError as error:
            tell(RepairEvent(EventKind.FAILED, detail=f"the session has to end first: {error}"))


class FailureCount:
    """Failures of the metadata service in a row: how long to pause after each, and when to give up."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def succeeded(self) -> None:
        """The service answered."""
        self._count = 0

    async def failed(self, error: MetadataStoreError | MetadataDriverError) -> None:
        """Pause, longer each time; raises ``error`` once there were too many."""
        self._count += 1
        if self._count >= self._limit:
            raise error
        await anyio.sleep(_PAUSES.nth(self._count - 1))
