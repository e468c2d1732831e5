"""A chaos test of job_queue.py: workers crash, stand still and are cut off, and every job runs, by the others if need be.

pip install "bkclient[test]"
pytest examples/test_job_queue.py
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import bkclient
from examples.job_queue import is_done, make_queue, submit, work
from scenarios.testing import SimulatedWorld

JOBS = [f"job {number}" for number in range(60)]
WORKERS = ("worker-0", "worker-1", "worker-2")


async def worker(uri: str, name: str, chance: Random, ran: list[tuple[str, str]]) -> None:
    """One process of the application."""

    async def run(job: str) -> None:
        await asyncio.sleep(chance.uniform(0.1, 2))
        ran.append((name, job))

    async with bkclient.connect(uri) as bk:
        await work(bk, "jobs", run, name=name)


async def start(world: SimulatedWorld) -> list[tuple[str, str]]:
    """A queue with jobs, and workers; what they are going to run."""
    ran: list[tuple[str, str]] = []
    async with bkclient.connect(world.uri) as bk:
        await make_queue(bk, "jobs")
        for name in WORKERS:
            world.start(name, worker, world.uri, name, world.rng(name), ran)
        await submit(bk, "jobs", JOBS)
    return ran


async def until_done(world: SimulatedWorld) -> None:
    """Wait until the queue says that all jobs are done."""
    async with bkclient.connect(world.uri) as bk, asyncio.timeout(300):
        while not await is_done(bk, "jobs"):  # noqa: ASYNC110  other processes tell the cluster
            await asyncio.sleep(0.5)


async def test_each_job_runs_once_in_fair_weather(bk_world: SimulatedWorld) -> None:
    """Joining workers take partitions from each other, which may hand over a job that runs."""
    ran = await start(bk_world)
    await until_done(bk_world)
    times = Counter(job for _, job in ran)
    assert times.keys() == {*JOBS}
    assert {name for name, _ in ran} == {*WORKERS}, "all have something to do"
    assert sum(times.values()) <= len(JOBS) + 3 * len(WORKERS), "no more twice than were running at a time"


async def test_jobs_of_workers_that_crash_run_again(bk_world: SimulatedWorld) -> None:
    """As by kill -9, at any moment; meanwhile one bookie after the other is down, stands still or is cut off."""
    ran = await start(bk_world)
    async with bk_world.disturbances():
        for name in WORKERS[:2]:
            await asyncio.sleep(bk_world.rng(f"crash of {name}").uniform(1, 3))
            bk_world.crash(name)
        bk_world.restart(WORKERS[0])
        await until_done(bk_world)
    assert {job for _, job in ran} == {*JOBS}
    await bk_world.settle()


async def test_a_worker_that_was_cut_off_or_stood_still_can_undo_nothing(bk_world: SimulatedWorld) -> None:
    """It goes on with what it has read, and its acknowledgements are refused: the others have run its jobs by then."""
    ran = await start(bk_world)
    await bk_world.until(lambda: {name for name, _ in ran} == {*WORKERS})
    bk_world.partition(WORKERS[0])
    bk_world.pause(WORKERS[1])
    for name in WORKERS[:2]:
        bk_world.lose_session(name)
    await until_done(bk_world)
    assert {job for _, job in ran} == {*JOBS}
    bk_world.heal()
    await asyncio.sleep(15)
    await until_done(bk_world)
    async with bkclient.connect(bk_world.uri) as bk:
        await submit(bk, "jobs", ["one more"])
    await bk_world.until(lambda: "one more" in (job for _, job in ran))
