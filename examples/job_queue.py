"""A job queue: jobs are messages of a log, and workers share them as a group of consumers. A job runs at least once.

python examples/job_queue.py                                   # on a cluster inside this process
python examples/job_queue.py zk://127.0.0.1:2181/ledgers

Each worker has some partitions of the queue. When one dies or leaves, the others get its partitions, and run again what it had
not acknowledged. A job that raises ValueError is run again, and given up after three times.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import bkclient
from bkclient import BookKeeper
from bkclient.errors import MetadataStoreError
from bkclient.log import LogConsumer, LogDeposed, LogExists, LogMessage, Logs
from simbookie.cluster import memory_cluster

Job = Callable[[str], Awaitable[None]]

GROUP = "workers"
PARTITIONS = 4
"""At most so many workers have something to do."""
ATTEMPTS = 3


async def make_queue(bk: BookKeeper, queue: str) -> None:
    """Make the queue, unless there is one."""
    with suppress(LogExists):
        await Logs(bk).create(queue, partitions=PARTITIONS)


async def submit(bk: BookKeeper, queue: str, jobs: list[str]) -> None:
    """Put jobs into the queue; they are stored when this returns. One program at a time submits."""
    async with Logs(bk).writer(queue) as log:
        for job in jobs:
            await log.publish(job.encode(), key=job)


async def work(bk: BookKeeper, queue: str, run: Job, *, name: str = "", at_once: int = 3) -> None:
    """Run jobs of the queue, up to ``at_once`` at a time, until cancelled."""
    async with Logs(bk).consumer(queue, GROUP, member=name) as consumer, asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(_take_turns(consumer, run))


async def _take_turns(consumer: LogConsumer, run: Job) -> None:
    while True:
        try:
            message = await consumer.receive()
        except MetadataStoreError:
            continue  # it is away for long, and the consumer goes on when it is back
        with suppress(LogDeposed):  # the partition is another worker's by now, which runs the job too
            await _run(consumer, message, run)


async def _run(consumer: LogConsumer, message: LogMessage, run: Job) -> None:
    job = message.payload.decode()
    try:
        await run(job)
    except ValueError as error:
        if consumer.deliveries(message) < ATTEMPTS:
            consumer.reject(message)  # some task of this worker gets it again
            return
        print(f"{job} is given up: {error}")
    consumer.acknowledge(message)  # jobs end in any order; the group's cursor remembers each one


async def is_done(bk: BookKeeper, queue: str) -> bool:
    """Whether every job that was submitted is done, or given up; it is told within a second."""
    cursors = [cursor for cursor in await Logs(bk).cursors(queue) if cursor.name == GROUP]
    return len(cursors) == PARTITIONS and not any(cursor.backlog_entries for cursor in cursors)


async def main(uri: str) -> None:
    """Two workers share ten jobs, one of which fails at first and one always."""
    tried: list[str] = []

    async def run(job: str) -> None:
        tried.append(job)
        await asyncio.sleep(0.01)
        if job == "job 7" or (job == "job 3" and tried.count(job) == 1):
            raise ValueError("no such file")
        print(f"{job} done")

    async with bkclient.connect(uri) as one, bkclient.connect(uri) as two:
        await make_queue(one, "jobs")
        await submit(one, "jobs", [f"job {number}" for number in range(10)])
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(work(bk, "jobs", run, name=name)) for bk, name in ((one, "one"), (two, "two"))]
            while not await is_done(one, "jobs"):  # noqa: ASYNC110  the cluster is asked
                await asyncio.sleep(0.1)
            for worker in workers:
                worker.cancel()
        print("everything is done")


async def in_this_process() -> None:
    """On a cluster of its own."""
    async with memory_cluster() as uri:
        await main(uri)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]) if len(sys.argv) > 1 else in_this_process())
