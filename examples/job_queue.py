"""A job queue: jobs are messages of a log, and a durable cursor remembers which are done. A job runs at least once.

python examples/job_queue.py                                   # on a cluster inside this process
python examples/job_queue.py zk://127.0.0.1:2181/ledgers
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import bkclient
from bkclient import BookKeeper
from bkclient.log import LogCursor, LogExists, LogMessage, Logs
from simbookie.cluster import memory_cluster

Job = Callable[[str], Awaitable[None]]


async def submit(bk: BookKeeper, queue: str, jobs: list[str]) -> None:
    """Put jobs into the queue; they are stored when this returns. One program at a time submits."""
    logs = Logs(bk)
    with suppress(LogExists):
        await logs.create(queue)
    async with logs.writer(queue) as log:
        for job in jobs:
            await log.publish(job.encode())


async def work(bk: BookKeeper, queue: str, run: Job, *, jobs: int, at_once: int = 3) -> None:
    """Run ``jobs`` jobs of the queue, up to ``at_once`` at a time. One that raises is left in the queue.

    One worker has the queue at a time, the last one that began. What it had not acknowledged is delivered to the next one.
    """
    slots = asyncio.Semaphore(at_once)
    async with Logs(bk).cursor(queue, "workers") as cursor, asyncio.TaskGroup() as tasks:
        for _ in range(jobs):
            await slots.acquire()
            tasks.create_task(_one(cursor, await anext(cursor), run, slots))


async def _one(cursor: LogCursor, message: LogMessage, run: Job, slots: asyncio.Semaphore) -> None:
    job = message.payload.decode()
    try:
        await run(job)
        cursor.acknowledge(message)  # jobs end in any order; the cursor remembers each one
    except ValueError as error:
        print(f"{job} failed and stays: {error}")
    finally:
        slots.release()


async def main(uri: str) -> None:
    """Two workers, one after the other; a job fails at the first one."""
    is_second = False

    async def run(job: str) -> None:
        await asyncio.sleep(0.01)
        if job == "job 3" and not is_second:
            raise ValueError("no such file")
        print(f"{job} done")

    async with bkclient.connect(uri) as bk:
        await submit(bk, "jobs", [f"job {number}" for number in range(6)])
        await work(bk, "jobs", run, jobs=6)
        is_second = True
        await work(bk, "jobs", run, jobs=1)
        (cursor,) = await Logs(bk).cursors("jobs")
        print(f"left: {cursor.backlog_entries}")


async def in_this_process() -> None:
    """On a cluster of its own."""
    async with memory_cluster() as uri:
        await main(uri)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]) if len(sys.argv) > 1 else in_this_process())
