"""Reading several partitions as one."""

from __future__ import annotations

import asyncio
from typing import Final

from bkclient.log.format.message import LogMessage
from bkclient.log.partition_reader import PartitionReader

__all__ = ["MergedReader"]


class MergedReader:
    """The messages of several partitions, those of each in order, by turns where several have some.

    One task at a time reads each partition, and at most one entry ahead of what is taken; tasks end with :meth:`stop`.
    """

    def __init__(self, parts: list[PartitionReader]) -> None:
        self._parts: Final = parts
        self._turn = 0
        self._ended: set[PartitionReader] = set()
        self._tasks: dict[asyncio.Task[bool], PartitionReader] = {}

    async def next(self) -> LogMessage:
        """The next message; StopAsyncIteration at the end of all. Cancellation loses nothing."""
        while True:
            message = self.take()
            if message is not None:
                return message
            idle = {*self._parts} - self._ended - {*self._tasks.values()}
            for part in self._parts:
                if part in idle:
                    task = asyncio.create_task(part.fill(), name="reader of a partition")
                    task.add_done_callback(_note_outcome)
                    self._tasks[task] = part
            if not self._tasks:
                raise StopAsyncIteration
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in self._tasks if each in done]:
                part = self._tasks.pop(task)
                if not task.result():
                    self._ended.add(part)

    def take(self) -> LogMessage | None:
        """A message that was read already; None if there is none."""
        for _ in self._parts:
            message = self._parts[self._turn].take()
            self._turn = (self._turn + 1) % len(self._parts)
            if message is not None:
                return message
        return None

    async def fill_now(self) -> bool:
        """Whether there is a message to take, without waiting for one: what tasks have read until the next turn of the loop."""
        await asyncio.sleep(0)
        return any(part.has_ready for part in self._parts)

    def put_back(self, messages: list[LogMessage]) -> None:
        """Have messages that were taken taken again."""
        for part in self._parts:
            part.put_back([message for message in messages if message.id.partition == part.partition])

    async def stop(self) -> None:
        """End the tasks."""
        tasks, self._tasks = [*self._tasks], {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _note_outcome(task: asyncio.Task[bool]) -> None:
    if not task.cancelled():
        task.exception()  # raised where a message is waited for; who never waits again needs no report
