"""Work that goes on after the request for it was answered: one job after the other, and a bound on those that wait."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from bkclient.errors import BookKeeperError

__all__ = ["Job", "Jobs"]

_log: Final = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]


class Jobs:
    """Runs jobs in the order in which they came; ``waiting_max`` may wait."""

    def __init__(self, waiting_max: int = 16) -> None:
        self._waiting_max = waiting_max
        self._waiting: deque[tuple[str, Job]] = deque()
        self._worker: asyncio.Task[None] | None = None

    def begin(self, name: str, job: Job) -> bool:
        """Run ``job`` when those before it are done; false if too many wait. One that fails is logged by its name."""
        if len(self._waiting) >= self._waiting_max:
            return False
        self._waiting.append((name, job))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return True

    async def _work(self) -> None:
        while self._waiting:
            name, job = self._waiting.popleft()
            try:
                await job()
            except (BookKeeperError, TimeoutError, OSError) as error:
                _log.warning("%s failed: %s", name, error)
            else:
                _log.info("%s is done", name)

    async def aclose(self) -> None:
        """End the job that runs, and forget the others."""
        self._waiting.clear()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
