"""One asyncio program on several event loops, for ``benchmarks.simulator``: ours, asyncio's own, and those of other simulators.

    build/peers/bin/python -m benchmarks.simulator_peers ours

Pairs of tasks hand messages to each other through queues, with sleeps in between that are drawn. Nothing of the program is a
loop's own, so what differs is the loop. Printed: how many messages, and the CPU time. asyncio sleeps in real time, which costs
no CPU.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

PAIRS: Final = 50
MESSAGES: Final = 200
_SLEEP_MAX_S: Final = 0.01


async def program(seed: int, messages: int) -> int:
    """All of it; how many messages were handed over."""
    rng = Random(seed)
    handed = 0

    async def produce(queue: asyncio.Queue[int], answers: asyncio.Queue[int]) -> None:
        for number in range(messages):
            await asyncio.sleep(rng.random() * _SLEEP_MAX_S)
            await queue.put(number)
            assert await answers.get() == number

    async def consume(queue: asyncio.Queue[int], answers: asyncio.Queue[int]) -> None:
        nonlocal handed
        for _ in range(messages):
            number = await queue.get()
            handed += 1
            await answers.put(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(PAIRS):
            queue: asyncio.Queue[int] = asyncio.Queue()
            answers: asyncio.Queue[int] = asyncio.Queue()
            group.create_task(produce(queue, answers))
            group.create_task(consume(queue, answers))
    return handed


Main = Callable[[], Coroutine[Any, Any, int]]


def on_ours(seed: int, main: Main) -> int:
    """On the loop of the simulated world."""
    from simbookie.world.hosts import World  # noqa: PLC0415

    with World(seed) as world:
        return world.run(main)


def on_asyncio(_seed: int, main: Main) -> int:
    """On asyncio's own loop."""
    return asyncio.run(main())


def on_simloop(seed: int, main: Main) -> int:
    """On that of simloop."""
    import simloop  # type: ignore[import-not-found]  # noqa: PLC0415

    loop = simloop.SimLoop(seed)
    try:
        return int(loop.run_until_complete(main()))
    finally:
        loop.close()


def on_simloom(seed: int, main: Main) -> int:
    """On that of simloom."""
    import simloom  # type: ignore[import-not-found]  # noqa: PLC0415

    told: list[int] = []

    async def noting() -> None:
        told.append(await main())

    simloom.run(noting, seed=seed)
    return told[0]


def on_seedloop(seed: int, main: Main) -> int:
    """On that of seedloop."""
    import seedloop  # type: ignore[import-not-found]  # noqa: PLC0415

    told: list[int] = []

    async def scenario(_world: object) -> None:
        told.append(await main())

    seedloop.replay(scenario, seed=seed)
    return told[0]


LOOPS: Final[dict[str, Callable[[int, Main], int]]] = {
    "ours": on_ours,
    "asyncio": on_asyncio,
    "simloop": on_simloop,
    "simloom": on_simloom,
    "seedloop": on_seedloop,
}


def main() -> None:
    """Measure the loop that is named, after a shorter run that is not measured."""
    run = LOOPS[sys.argv[1]]
    run(0, lambda: program(0, 5))
    started = time.process_time()
    handed = run(1, lambda: program(1, MESSAGES))
    cpu_s = time.process_time() - started
    assert handed == PAIRS * MESSAGES
    print(json.dumps({"messages": handed, "cpu_s": cpu_s, "python": sys.version.split()[0]}))


if __name__ == "__main__":
    main()
