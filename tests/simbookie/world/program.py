"""A program full of what could make two runs differ, and a log of what happened in it. Also runs as a process of its own."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from typing import Any

import anyio

from simbookie.world.connection_end import ConnectionEnd
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig

NETWORK = NetworkConfig(
    loss_probability=0.1, duplicate_probability=0.1, slow_probability=0.1, slow_s=0.05, jitter_s=0.002, fifo=False
)


def run(seed: int) -> list[str]:
    """Everything that happened, as lines."""
    log: list[str] = []
    with World(seed, network=NETWORK) as world:

        def note(text: str) -> None:
            log.append(f"{world.clock_us()} {text}")

        server, clients = Host(world, "server"), [Host(world, f"client-{number}") for number in range(3)]
        _serve(world, server, note)
        tasks = [client.spawn(_program, world, client, note) for client in clients]

        async def main() -> None:
            await asyncio.sleep(world.rng("director").uniform(0.01, 0.03))
            note("crash")
            clients[0].crash()
            await world.join(*tasks)

        world.run(main)
        note(f"{world.network.counters} {world.loop.steps}")
    return log


def _serve(world: World, server: Host, note: Any) -> None:
    def accept(end: ConnectionEnd) -> None:
        def answer(message: object) -> None:
            note(f"server got {message} from {end.peer_name}")
            end.send(message)

        end.on_message = answer

    world.network.listen(server.process, accept)


async def _program(world: World, host: Host, note: Any) -> None:
    await _nested_scopes(host, note)
    await _races(host, note)
    await _talk(world, host, note)


async def _nested_scopes(host: Host, note: Any) -> None:
    """Many scopes in one group, cancelled from above: the order is that of a set of scopes and a set of tasks."""

    async def child(number: int) -> None:
        try:
            with anyio.CancelScope():
                async with anyio.create_task_group() as group:
                    for leaf in range(3):
                        group.start_soon(sleeper, f"{number}.{leaf}")
        finally:
            note(f"{host.name} child {number} ends")

    async def sleeper(name: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            note(f"{host.name} {name} cancelled")

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(child, number)
        await anyio.sleep(0.005)
        group.cancel_scope.cancel()


async def _races(host: Host, note: Any) -> None:
    """Tasks in sets, many of them due at the same time."""
    rng = host.world.rng(f"races of {host.name}")

    async def racer(number: int) -> int:
        await asyncio.sleep(rng.choice((0.001, 0.002)))
        return number

    waiting = {asyncio.ensure_future(racer(number)) for number in range(20)}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        note(f"{host.name} done {[task.result() for task in done]}")


async def _talk(world: World, host: Host, note: Any) -> None:
    opened: asyncio.Future[ConnectionEnd] = asyncio.get_running_loop().create_future()
    world.network.connect(host.process, "server", opened.set_result, lambda: note("refused"))
    end = await opened
    answers: asyncio.Queue[object] = asyncio.Queue()
    end.on_message = answers.put_nowait
    for number in range(30):
        end.send(f"{host.name}/{number}")
        with anyio.move_on_after(0.01):
            note(f"{host.name} got {await answers.get()}")


def digest(seed: int) -> str:
    """A hash of :func:`run`."""
    return hashlib.sha256("\n".join(run(seed)).encode()).hexdigest()


if __name__ == "__main__":
    # other addresses and other collections than in the process that compares
    ballast = [bytearray(number) for number in range(int(sys.argv[2]))]
    sys.stdout.write(digest(int(sys.argv[1])))
