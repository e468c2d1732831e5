"""Run one operation of a program in a simulated world, cancelled at a step of its process, and look at what it leaves.

A step is a callback of the process that the operation runs in, whichever part of the client it belongs to: so an operation is
cancelled also while only an answer arrives, or a background task goes on. What the program could see is looked at afterwards: its
handles, what it was told, its tasks, the timers of its process and the watches of its session.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from enum import Enum
from typing import Any, cast

import anyio

import bkclient
from bkclient import BookKeeper, ClientConfig, LedgerReader, LedgerWriter, LimitSettings, WritingSettings
from bkclient.errors import BookKeeperError
from bkclient.log import Logs, LogSettings, PublishSettings
from scenarios.testing import SimulatedWorld, WorldOptions
from simbookie.world.loop import VirtualTimeLoop
from simbookie.world.process import current_process

__all__ = ["Fault", "Operation", "Program", "Way", "given_up_at_steps", "play"]

#: Virtual seconds after which nothing of a cancelled operation goes on any more: longer than any time limit of the client.
_ENDS_WITHIN_S = 60.0


class Way(Enum):
    """How a program gives an operation up."""

    TASK = "its task is cancelled"
    TWICE = "its task is cancelled, and once more while it ends"
    SCOPE = "a scope of anyio around it is cancelled"
    CLOSE = "another task closes the client"


class Fault(Enum):
    """What goes wrong right before the operation, and lasts for a second."""

    NONE = "nothing"
    CRASH = "a bookie crashes"
    PAUSE = "two bookies stand still"
    ALONE = "the program is cut off"


class _World(SimulatedWorld):
    def watches(self) -> Counter[object]:
        """What is watched in the metadata service, and how often."""
        contents = self._world.metadata.memory.snapshot()
        return Counter[object](contents.ledger_watches) + Counter[object](contents.node_watches)


class Program:
    """What an operation finds: a closed ledger, one that is being written and read, and logs with and without partitions."""

    def __init__(self, world: SimulatedWorld, bk: BookKeeper) -> None:
        self.world, self.bk = world, bk
        self.logs = Logs(bk)
        self.closed_id = -1
        self.writer: LedgerWriter
        self.reader: LedgerReader
        #: By ledger, the payloads that were acknowledged.
        self.acknowledged: dict[int, list[bytes]] = {}
        #: By log, likewise.
        self.published: dict[str, list[bytes]] = {"log": [], "parts": []}

    @classmethod
    async def begin(cls, world: SimulatedWorld, bk: BookKeeper) -> Program:
        self = cls(world, bk)
        async with await self.create() as closed:
            self.closed_id = closed.ledger_id
            for number in range(6):
                await self.append(closed, b"closed %d" % number)
        self.writer = await self.create()
        for number in range(3):
            await self.append(self.writer, b"open %d" % number)
        self.reader = await bk.open_ledger(self.writer.ledger_id)
        for name, partitions in (("log", 0), ("parts", 2)):
            await self.logs.create(name, LogSettings(max_ledger_entries=2, min_ledger_s=0), partitions=partitions)
            async with self.logs.writer(name, settings=PublishSettings(batch_messages=1)) as log:
                for number in range(3):
                    await self.publish(log, name, b"%d" % number)
        return self

    async def create(self) -> LedgerWriter:
        return await self.bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)

    async def append(self, writer: LedgerWriter, payload: bytes) -> None:
        await writer.append(payload)
        self.acknowledged.setdefault(writer.ledger_id, []).append(payload)

    async def publish(self, log: Any, name: str, payload: bytes) -> None:
        await log.publish(payload)
        self.published[name].append(payload)

    def change_client(self, bk: BookKeeper) -> None:
        """Go on with another client: the one before was closed, with all its handles."""
        self.bk, self.logs = bk, Logs(bk)

    async def check(self) -> None:
        """The client can be used, and what was acknowledged is there."""
        bk = self.bk
        assert (bk.in_flight_entries, bk.in_flight_bytes) == (0, 0)
        async with await self.create() as another:
            await self.append(another, b"goes on")
        with suppress(BookKeeperError):  # the ledger may have been closed or recovered, and the client closed
            await self.append(self.writer, b"goes on")
        await self.reader.aclose()
        with suppress(BookKeeperError):
            await self.writer.aclose()
        for name in self.published:
            async with self.logs.writer(name) as log:
                await self.publish(log, name, b"goes on")
            async with self.logs.reader(name, follow=False) as messages:
                found = [message.payload async for message in messages]
            assert not Counter(self.published[name]) - Counter(found)
            for group in ("group", "cursor"):
                async with asyncio.timeout(60):
                    await self._drain(name, group)
        for ledger_id, payloads in self.acknowledged.items():
            async with await bk.open_ledger(ledger_id, recover=True) as reader:
                found = [entry.payload async for entry in reader]
            assert [payload for payload in found if payload in payloads] == payloads

    async def _drain(self, name: str, group: str) -> None:
        if group == "cursor":
            async with self.logs.cursor(name, group) as cursor:
                for _ in range(await cursor.backlog_entries()):
                    cursor.acknowledge(await anext(cursor))
            return
        async with self.logs.consumer(name, group) as consumer:
            consumer.acknowledge(await consumer.receive())


Operation = Callable[[Program], Coroutine[Any, Any, object]]


class _Steps:
    """Counts the steps of this process while ``task`` is under way, and calls ``give_up`` at some of them."""

    def __init__(self, task: asyncio.Future[Any], at: list[int], give_up: Callable[[], object]) -> None:
        self._loop, self._process = cast("VirtualTimeLoop", asyncio.get_running_loop()), current_process.get()
        self._task, self._at, self._give_up = task, at, give_up
        self._before = self._loop.after_step
        self.count = 0
        self._loop.after_step = self._look

    def _look(self, whose: Any) -> None:
        if self._before is not None:
            self._before(whose)
        if whose is not self._process or self._task.done():
            return
        if self.count in self._at:
            self._give_up()
        self.count += 1

    def stop(self) -> None:
        self._loop.after_step = self._before


async def _given_up_at(step: int, way: Way, program: Program, operation: Operation) -> bool:
    """Whether ``operation`` got as far as ``step``, and was given up there. Errors of the client are its own."""
    scope, is_closing = anyio.CancelScope(), asyncio.Event()

    async def scoped() -> None:
        with scope:
            await operation(program)

    async def close() -> None:
        await is_closing.wait()
        await program.bk.aclose()

    task, closing = asyncio.ensure_future(scoped()), asyncio.ensure_future(close())
    ways: dict[Way, Callable[[], object]] = {Way.SCOPE: scope.cancel, Way.CLOSE: is_closing.set}
    steps = _Steps(task, [step, step + 3] if way is Way.TWICE else [step], ways.get(way, task.cancel))
    done, _ = await asyncio.wait([task], timeout=_ENDS_WITHIN_S)
    steps.stop()
    if not done and is_closing.is_set():
        done, _ = await asyncio.wait([task], timeout=_ENDS_WITHIN_S)
        assert done, "it does not end although the client was closed"
    if is_closing.is_set():
        await closing
    for each in (task, closing):
        each.cancel()
    await asyncio.wait([task, closing])
    try:
        if not task.cancelled():
            task.result()
    except* BookKeeperError:
        pass  # the fault, or the end of the client
    return steps.count > step


def _own_tasks() -> Counter[str]:
    process = current_process.get()
    return Counter(task.get_name() for task in asyncio.all_tasks() if getattr(task, "process", None) is process)


def _own_timers() -> list[str]:
    loop, process = cast("VirtualTimeLoop", asyncio.get_running_loop()), current_process.get()
    return [repr(timer) for timer in loop.timers() if getattr(timer, "process", None) is process]


@asynccontextmanager
async def _fault(world: SimulatedWorld, fault: Fault) -> AsyncIterator[None]:
    if fault is Fault.CRASH:
        world.crash("bookie-0")
    elif fault is Fault.PAUSE:
        world.pause("bookie-0")
        world.pause("bookie-1")
    elif fault is Fault.ALONE:
        world.partition("test")

    def end() -> None:
        if fault is Fault.CRASH:
            world.restart("bookie-0")
        elif fault is not Fault.NONE:
            world.heal()

    timer = asyncio.get_running_loop().call_later(1, end)
    yield
    if not timer.cancelled() and timer.when() > asyncio.get_running_loop().time():
        await asyncio.sleep(timer.when() - asyncio.get_running_loop().time() + 0.001)


async def _story(world: _World, operation: Operation, step: int, way: Way, fault: Fault) -> bool:
    config = ClientConfig(
        limits=LimitSettings(max_in_flight_entries=2, max_client_in_flight_entries=3),
        writing=WritingSettings(explicit_lac_interval_s=0.1),
    )
    outside = _own_tasks()
    bk = await bkclient.connect(world.uri, config=config)
    program = await Program.begin(world, bk)
    before, watches = _own_tasks(), world.watches()
    async with _fault(world, fault):
        was_given_up = await _given_up_at(step, way, program, operation)
    await asyncio.sleep(_ENDS_WITHIN_S)
    if way is Way.CLOSE and was_given_up:
        _check_nothing_left(outside, "of a client that was closed")
        program.change_client(await bkclient.connect(world.uri, config=config))
    else:
        _check_no_tasks(before, "of what was given up")
    await program.check()
    await asyncio.sleep(_ENDS_WITHIN_S)
    left = world.watches() - watches
    assert not left, f"watches are left after everything was used and closed: {left}"
    _check_nothing_left(before, "after everything was used and closed")
    await program.bk.aclose()
    _check_nothing_left(outside, "of a client that was closed")
    return was_given_up


def _check_no_tasks(before: Counter[str], which: str) -> None:
    left = _own_tasks() - before
    assert not left, f"tasks {which} are left: {left}"


def _check_nothing_left(before: Counter[str], which: str) -> None:
    _check_no_tasks(before, which)
    left = _own_timers()
    assert not left, f"timers {which} are left: {left}"


def play(
    operation: Operation, step: int, way: Way, fault: Fault = Fault.NONE, *, seed: int = 1, is_rough: bool = False
) -> bool:
    """One run, whose operation is cancelled at its step ``step``; whether it got so far. Raises what is not as it should be."""
    world = _World(seed, options=WorldOptions(rough=is_rough))
    try:
        was_requested = world.run(_story, world, operation, step, way, fault)
        assert world.finish() == ()
    except BaseException as error:
        error.add_note(f"step {step}, {way.value}, {fault.value}, seed {seed}")
        raise
    finally:
        world.close()
    return was_requested


def given_up_at_steps(operation: Operation, way: Way, fault: Fault, *, first: int = 0, every: int = 1) -> int:
    """Runs in which ``operation`` is given up at the step ``first``, and every so many-th after it; how many there were."""
    count = 0
    while play(operation, first + count * every, way, fault):
        count += 1
    return count
