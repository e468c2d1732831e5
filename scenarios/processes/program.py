"""A client process of a run: ``python -m scenarios.processes.program``, started by the director.

It plays one program of the plan, or reads back what the others left, with the shipped client over TCP, and records its events in
a file of its own, each before anything else happens.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from bkclient.errors import BookKeeperError
from bkclient.metadata.opening import open_store
from bkclient.transport.base import BookieTransport
from bkclient.transport.tcp import TcpTransport
from bkclient.transport.tcp_config import TcpTransportConfig
from scenarios.history import Event, HistoryWriter
from scenarios.liveness import StuckError
from scenarios.plan import Plan, parse_plan
from scenarios.plan import operations as ops
from scenarios.plan.triggers import Trigger
from scenarios.playing.ledgers import PlayedLedgers
from scenarios.playing.programs import PlayedProgram
from scenarios.processes.channel import Channel, clock_since
from scenarios.processes.store import ProcessStore
from scenarios.reading_back import read_ledger_back, read_log_back
from scenarios.recording.client import RecordedClient
from scenarios.recording.recorders import ClientLog, Recorder, RecoveryRecorder
from scenarios.recording.transport import RecordingTransport
from simbookie.world.rng import split

if TYPE_CHECKING:
    from scenarios.mutants import Mutant

__all__ = ["main"]

#: A client process lives once.
_INCARNATION = 1


class _SharedLedgers(PlayedLedgers):
    """What this program creates, the others are told."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def created(self, name: str, ledger_id: int) -> None:
        super().created(name, ledger_id)
        self._channel.tell("created", name, ledger_id)

    def log_created(self, name: str) -> None:
        super().log_created(name)
        self._channel.tell("log-created", name)

    def learn(self, message: list[Any]) -> None:
        """Take in what the director tells of the other programs."""
        match message:
            case ["created", name, ledger_id]:
                super().created(name, ledger_id)
            case ["log-created", name]:
                super().log_created(name)
            case ["event", kind, ledger, fields]:
                self.feed(Event(-1, 0, "", kind, ledger, fields))


class _Client:
    """The client of this process, made as a stage makes one; but what it is connected to is real."""

    def __init__(self, channel: Channel, plan: Plan, recorder: Recorder, mutant: Mutant | None) -> None:
        self._task = channel.task
        self._recorder = recorder
        self._mutant = mutant
        self.name: str = channel.task["name"]
        self.conditions = plan.cluster.conditions()

    async def use(self, program: Callable[[RecordedClient], Awaitable[None]]) -> None:
        """Connect, and call the program."""
        task, recorder, config = self._task, self._recorder, self.conditions.client
        async with AsyncExitStack() as resources:
            opened = await open_store(
                task["metadata"], rng=self.rng("metadata"), session_timeout_s=config.timeouts.metadata_session_s
            )
            store = ProcessStore(opened, recorder, self.name, task["routes"])
            resources.push_async_callback(store.aclose)
            transport: BookieTransport = TcpTransport(
                store.bookie_address, TcpTransportConfig.of_client(config), rng=self.rng("transport")
            )
            resources.push_async_callback(transport.aclose)
            transport = RecordingTransport(transport, recorder, self.name, _INCARNATION)
            if self._mutant is not None and self._mutant.wrap_transport is not None:
                transport = self._mutant.wrap_transport(transport)
            client = RecordedClient(
                store,
                transport,
                config=config,
                rng=self.rng("client"),
                wall_clock=time.time,
                observer=RecoveryRecorder(recorder, self.name),
                resources=AsyncExitStack(),
                locations=self.conditions.locations,
            )
            client.racks = self.conditions.demanded_racks
            client.log = ClientLog(recorder, self.name, _INCARNATION)
            async with client:
                await program(client)

    def rng(self, purpose: str) -> Random:
        """A stream of chance of this client's own."""
        return split(self._task["seed"], f"{purpose} {self.name}")


def main() -> None:
    """Do what the director says."""
    channel = Channel()
    task = channel.task
    mutant = _mutant(task["mutant"])
    history = HistoryWriter(
        {"part": task["name"]}, clock_since(task["started_ns"]), Path(task["file"]), writes_through=True
    )
    channel.watch(history)
    with mutant.applied_to_run() if mutant else nullcontext():
        try:
            asyncio.run(_run(channel, history, mutant))
            channel.tell("returned")
        except BookKeeperError as error:
            channel.tell("not-started", str(error))
        except StuckError as error:
            channel.tell("stuck", error.ledger_id, error.problem, error.clause)
        except Exception as error:  # noqa: BLE001 - whatever it is, the director tells it
            channel.tell("failed", f"{type(error).__name__}: {error}")
            traceback.print_exc()
            sys.exit(1)
    history.close()


async def _run(channel: Channel, history: HistoryWriter, mutant: Mutant | None) -> None:
    task = channel.task
    plan = parse_plan(task["plan"])
    client = _Client(channel, plan, Recorder(history), mutant)
    started = asyncio.Event()
    make = partial(_program, plan=plan) if task["program"] else _reading_back
    program = make(channel, client, started)
    channel.listen()
    await started.wait()
    await client.use(program)


def _program(
    channel: Channel, client: _Client, started: asyncio.Event, *, plan: Plan
) -> Callable[[RecordedClient], Awaitable[None]]:
    """The program of the plan that has this client's name."""
    (found,) = (program for program in plan.clients if program.name == client.name)
    ledgers = _SharedLedgers(channel)
    reached = {
        index: asyncio.Event() for index, call in enumerate(found.calls) if isinstance(call.operation, ops.Until)
    }
    waits = {id(found.calls[index].operation.trigger): event for index, event in reached.items()}  # type: ignore[attr-defined]

    async def until(trigger: Trigger) -> None:
        await waits[id(trigger)].wait()

    def changed() -> None:
        at = next((i for i, call in enumerate(found.calls) if call.operation is played.current), -1)
        channel.tell("at", at, played.failed, played.problems, played.has_ended)

    def take(message: list[Any]) -> None:
        if message[0] == "start":
            started.set()
        elif message[0] == "reached":
            reached[message[1]].set()
        else:
            ledgers.learn(message)

    channel.on_message = take
    played = PlayedProgram(found, ledgers, client.conditions, client.rng("workload"), until, changed)
    return played.run


def _reading_back(
    channel: Channel, client: _Client, started: asyncio.Event
) -> Callable[[RecordedClient], Awaitable[None]]:
    """Recovers and reads what the programs left. The director says what that is when it has them start."""
    what: list[Any] = [[], []]

    def take(message: list[Any]) -> None:
        if message[0] == "start":
            what[:] = message[1:]
            started.set()

    async def read_all(made: RecordedClient) -> None:
        ledger_ids, logs = what
        for ledger_id in ledger_ids:
            await read_ledger_back(made, ledger_id)
        for log in logs:
            await read_log_back(made, log, client.rng("logs"))

    channel.on_message = take
    return read_all


def _mutant(name: str) -> Mutant | None:
    if not name:
        return None
    from scenarios.mutants import MUTANTS  # noqa: PLC0415  most runs have none planted

    return MUTANTS[name]


if __name__ == "__main__":
    main()
