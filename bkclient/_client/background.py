"""Starting a client's background tasks from anywhere, callbacks of sockets and timers included.

A task group wants to be told to start a task by a task: with ``sniffio`` installed, anyio 4.14 and newer find no event loop
in a callback, which no task runs, and refuse. So callbacks only say what to start, and one task of the client's own, which waits
for that and does nothing else, starts it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine

from anyio.abc import TaskGroup

__all__ = ["Background"]

Work = Callable[[], Coroutine[object, object, None]]


class Background:
    """Starts tasks in ``tasks``, in the order in which it is asked to. To be made by a task."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._waiting: deque[tuple[Work, str]] = deque()
        self._news = asyncio.Event()
        self._has_ended = False
        tasks.start_soon(self._start_what_comes, name="start of background tasks")

    def start(self, work: Work, name: str) -> bool:
        """Start ``work`` soon, in a task called ``name``; False, and nothing will happen, once the task group is ending.

        What is started is started in any case: when the task group ends right away, ``work`` is cancelled where it first waits.
        """
        if self._has_ended:
            return False
        self._waiting.append((work, name))
        self._news.set()
        return True

    async def _start_what_comes(self) -> None:
        try:
            while True:
                self._start_waiting()
                await self._news.wait()
                self._news.clear()
        finally:
            self._has_ended = True
            self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting:
            work, name = self._waiting.popleft()
            self._tasks.start_soon(work, name=name)
