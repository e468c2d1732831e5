"""Logs: messages published in batches, and read, beside entries of the same size that are batched by hand.

``log-publish`` hands in messages of 100 bytes by ``publish_nowait``, at most 20,000 of them not acknowledged, which are
gathered to batches of 1,000. ``log-read`` reads them again by ``async for``. The ceiling appends and reads entries of 1,000
times 100 bytes with the same client, so a ratio tells what it costs that messages are messages: futures, ids, limits,
encoding. CPU time is told of the client, of all bookies together, and of all of them.

    python -m benchmarks.logs
    python -m benchmarks.logs --rounds 5 --scale 1 --bookies ours --protocol 3 --no-java
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import Self

from benchmarks.cluster import Bench, Bookies, a_writer, command, connected
from benchmarks.measuring import OURS, Contender, Meter, Result, Values, compared, in_turn, run_on
from benchmarks.processes import CpuOf
from bkclient.log import Logs, LogSettings

SIZE = 100
BATCH = 1_000
MESSAGES = 300_000
PENDING = 20_000
_SETTINGS = LogSettings(write_quorum_size=3, ack_quorum_size=2)
_names = itertools.count()


def per_message(
    messages: int, wall_s: float, client_s: float, bookies_s: float, broker_s: float | None = None
) -> Values:
    """Messages a second, and CPU time of a message: of the client, of all bookies together, of a broker, of all of these."""
    taken = {"message": client_s, "bookie": bookies_s}
    if broker_s is not None:
        taken["broker"] = broker_s
    taken["all"] = sum(taken.values())
    return {"messages": messages / wall_s, **{f"{who}-cpu": cpu_s / messages * 1e6 for who, cpu_s in taken.items()}}


class _Both:
    """Measures a block: this process and the bookies."""

    def __init__(self, bookies: Bookies) -> None:
        self._here, self._bookies = Meter(), CpuOf(bookies.pids)

    def __enter__(self) -> Self:
        self._bookies.__enter__()
        self._here.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._here.__exit__()
        self._bookies.__exit__()

    def values(self, messages: int) -> Values:
        """What each message took."""
        return per_message(messages, self._here.wall_s, self._here.cpu_s, self._bookies.cpu_s)


async def publish(bookies: Bookies, protocol: int, messages: int, *, is_read: bool) -> Values:
    """Through a log; what publishing took, or reading."""
    async with connected(bookies, protocol) as client:
        logs, name = Logs(client), f"log-{next(_names)}"
        await logs.create(name, _SETTINGS)
        payload = bytes(SIZE)
        async with logs.writer(name) as log:
            await log.publish(payload)  # so that a ledger is there
            with _Both(bookies) as publishing:
                for _ in range(messages // BATCH):
                    if log.pending_messages > PENDING - BATCH:
                        await log.publish(payload)  # behind all before it
                    for _ in range(BATCH):
                        log.publish_nowait(payload)
                    await asyncio.sleep(0)
                await log.flush()
        if not is_read:
            return publishing.values(messages)
        count = 0
        async with logs.reader(name, follow=False) as reader:
            with _Both(bookies) as reading:
                async for _ in reader:
                    count += 1
        assert count >= messages
        return reading.values(count)


async def by_hand(bookies: Bookies, protocol: int, messages: int, *, is_read: bool) -> Values:
    """Entries with as many bytes as a batch has."""
    async with connected(bookies, protocol, window=PENDING // BATCH) as client:
        writer = await a_writer(client)
        payload = bytes(SIZE * BATCH)
        await writer.append(payload)
        with _Both(bookies) as publishing:
            for _ in range(messages // BATCH):
                await writer.submit(payload)
            await writer.flush()
        await writer.close()
        if not is_read:
            return publishing.values(messages)
        async with await client.open_ledger(writer.ledger_id) as reader:
            with _Both(bookies) as reading:
                count = BATCH * len([entry.entry_id async for entry in reader.read_range(0, messages // BATCH - 1)])
        return reading.values(count)


def measure(bench: Bench) -> list[Result]:
    """Both of it."""
    results = []
    messages = bench.scaled(MESSAGES, 20 * BATCH)
    for kind in bench.kinds:
        for protocol in bench.protocols:
            with bench.bookies(kind) as bookies:
                for name in ("log-publish", "log-read"):
                    load = partial(_contender, bookies, protocol, messages, is_read=name == "log-read")
                    contenders: dict[str, Contender] = {}
                    for loop in OURS:
                        contenders[f"ours-{loop}"] = partial(load, loop, is_log=True)
                        contenders[f"{loop}-ceiling"] = partial(load, loop, is_log=False)
                    params = {"bookies": kind, "protocol": protocol, "payload_bytes": SIZE, "messages": messages}
                    results += compared(name, params, in_turn(contenders, bench.rounds))
    return results


def _contender(bookies: Bookies, protocol: int, messages: int, loop: str, *, is_read: bool, is_log: bool) -> Values:
    work = publish if is_log else by_hand
    return run_on(loop, work(bookies, protocol, messages, is_read=is_read))


if __name__ == "__main__":
    command(measure, "Messages of logs, beside entries that are batched by hand.")
