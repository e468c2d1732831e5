"""The simulated world for applications: faults, lives of processes, what is recorded, and that a seed decides everything."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import bkclient
from bkclient import BookKeeper, ClientConfig, LedgerReader, LedgerWriter, TlsSettings
from bkclient.coordination import LeaderElection, VersionedRegister
from bkclient.errors import ArgumentError, LedgerClosed, LedgerFenced
from bkclient.log import Logs
from scenarios.history import History
from scenarios.testing import SimulatedWorld, WorldOptions
from scenarios.testing.entropy import Audit
from simbookie.world.errors import Deadlock, RealWorldRefused, TimeLimitReached, UnhandledErrors

Body = Callable[[SimulatedWorld], Coroutine[Any, Any, None]]


@contextmanager
def a_world(seed: int = 1, *, history: Path | None = None, **options: Any) -> Iterator[SimulatedWorld]:
    world = SimulatedWorld(seed, options=WorldOptions(**options), history=history)
    try:
        yield world
    finally:
        world.close()


async def appends(uri: str, count: int, pause_s: float, acknowledged: list[int]) -> int:
    async with (
        bkclient.connect(uri) as bk,
        await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer,
    ):
        for number in range(count):
            acknowledged.append(await writer.append(b"%d" % number))
            await asyncio.sleep(pause_s)
    return writer.ledger_id


async def full_story(world: SimulatedWorld) -> None:
    app = world.start("app", appends, world.uri, 20, 0.1, [])
    async with world.disturbances(every_s=(0.05, 0.3), lasting_s=(0.05, 0.3)):
        ledger_id = await app.ended()
    async with bkclient.connect(world.uri) as bk, await bk.open_ledger(ledger_id) as reader:
        assert [entry.payload async for entry in reader] == [b"%d" % number for number in range(20)]
    await world.settle()


def test_logs_and_elections_use_no_chance_but_that_of_the_seed() -> None:
    audit = Audit()
    world = SimulatedWorld(1, audit=audit)

    async def body() -> None:
        async with bkclient.connect(world.uri) as bk, LeaderElection(bk, "owner", "me"):
            logs = Logs(bk)
            await logs.create("orders")
            async with logs.writer("orders") as log:
                await log.publish(b"first")

    world.run(body)
    world.close()
    assert audit.uses == []


@pytest.mark.parametrize("options", [{}, {"rough": True}, {"bytes_on_the_wire": True}])
def test_a_seed_decides_everything(options: dict[str, Any]) -> None:
    digests = []
    for seed in (1, 1, 2):
        with a_world(seed, **options) as world:
            world.run(full_story, world)
            assert world.finish() == ()
            digests.append(world.digest)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.deep
def test_a_seed_decides_everything_in_any_process() -> None:
    program = (
        "from tests.scenarios.testing.test_simulated_world import a_world, full_story\n"
        "from examples.test_kv_store import test_nothing_acknowledged_is_lost_over_owners_and_crashes as chain\n"
        "for body in (full_story, chain):\n"
        "    with a_world(3, rough=True) as world: world.run(body, world); print(world.digest)\n"
    )
    command = [sys.executable, "-c", program]
    root = Path(__file__).resolve().parents[3]
    digests = {
        subprocess.run(
            command, cwd=root, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(digests) == 1


def test_application_gets_the_shipped_classes_and_the_history_what_it_does(tmp_path: Path) -> None:
    async def body(world: SimulatedWorld) -> None:
        bk = await bkclient.connect(world.uri)
        writer = await bk.create_ledger()
        assert [BookKeeper in type(bk).mro(), LedgerWriter in type(writer).mro()] == [True, True]
        await writer.append(b"one")
        await (await writer.submit(b"two"))
        await writer.append_nowait(b"three")
        reader = await bk.open_ledger(writer.ledger_id)
        assert LedgerReader in type(reader).mro()
        assert await reader.read_last_add_confirmed() >= 1
        await writer.aclose()
        await reader.wait_closed()
        assert [entry.payload async for entry in reader] == [b"one", b"two", b"three"]
        assert [entry.payload async for entry in reader.tail()] == [b"one", b"two", b"three"]
        assert (await reader.read(1)).payload == b"two"
        assert len(await reader.read_batch(0)) == 3
        assert len([entry async for entry in reader.read_range(0, 1)]) == 2
        advanced = await bk.create_advanced_ledger()
        await advanced.append(0, b"mine")
        await advanced.aclose()
        await bk.delete_ledger(advanced.ledger_id)
        assert world.ledgers == (writer.ledger_id,)
        await bk.aclose()

    path = tmp_path / "run.bkh"
    with a_world(history=path) as world:
        world.run(body, world)
    counts = Counter(event.kind for event in History(path).events() if event.actor == "test")
    assert (counts["APP_ADD"], counts["APP_ACK"], counts["CLOSE_RESULT"], counts["OPEN_RESULT"]) == (4, 4, 2, 1)
    assert counts["READ_RESULT"] == 3 + 3 + 1 + 3 + 2
    assert counts["LAC_ADV"] == 2


def test_crashed_process_runs_no_cleanup_and_restart_begins_again() -> None:
    ended: list[str] = []

    async def program(lives: list[int]) -> str:
        lives.append(1)
        try:
            await asyncio.sleep(10)
        finally:
            ended.append("cleaned up")
        return "done"

    async def body(world: SimulatedWorld) -> None:
        lives: list[int] = []
        process = world.start("app", program, lives)
        await asyncio.sleep(1)
        world.crash("app")
        assert not process.is_alive
        assert await process.ended() is None
        await asyncio.sleep(100)
        assert ended == []
        world.restart("app")
        assert process.incarnation == 2
        assert await world.process("app").ended() == "done"
        assert (len(lives), ended) == (2, ["cleaned up"])
        world.restart("app")
        assert await process.ended() == "done"

    with a_world() as world:
        world.run(body, world)


def test_pause_and_partition_hold_a_process_up() -> None:
    async def body(world: SimulatedWorld) -> None:
        acknowledged: list[int] = []
        app = world.start("app", appends, world.uri, 200, 0.1, acknowledged)
        await world.until(lambda: len(acknowledged) > 5)
        world.pause("app")
        assert app.is_paused
        before = len(acknowledged)
        await asyncio.sleep(50)
        assert len(acknowledged) == before
        world.resume("app")
        await world.until(lambda: len(acknowledged) > before + 5)
        world.partition("app", world.bookies)
        await asyncio.sleep(1)
        before = len(acknowledged)
        await asyncio.sleep(2)
        assert len(acknowledged) == before
        world.heal()
        await world.until(lambda: len(acknowledged) > before)
        world.lose_session("app")
        await world.until(lambda: len(acknowledged) > before + 20)

    with a_world() as world:
        world.run(body, world)


@pytest.mark.parametrize("power_loss", [False, True])
def test_bookie_comes_back_with_what_it_had(*, power_loss: bool) -> None:
    async def body(world: SimulatedWorld) -> None:
        ledger_id = await world.start("app", appends, world.uri, 5, 0.0, []).ended()
        for name in world.bookies:
            world.crash(name, power_loss=power_loss)
        assert world.living_bookies == ()
        for name in world.bookies:
            world.restart(name)
        assert world.living_bookies == world.bookies
        async with bkclient.connect(world.uri) as bk:
            reader = await bk.open_ledger(ledger_id)
            assert len([entry async for entry in reader]) == 5

    with a_world() as world:
        world.run(body, world)


def test_takeover_and_zombie() -> None:
    async def body(world: SimulatedWorld) -> None:
        acknowledged: list[int] = []
        app = world.start("app", appends, world.uri, 1000, 0.01, acknowledged)
        await world.until(lambda: len(acknowledged) > 10)
        world.partition("app")
        async with bkclient.connect(world.uri) as bk:
            reader = await bk.open_ledger(world.ledgers[0], recover=True)
            assert reader.last_add_confirmed >= acknowledged[-1]
        world.heal()
        with pytest.raises((LedgerFenced, LedgerClosed)):
            await app.ended()

    with a_world() as world:
        world.run(body, world)
        assert world.finish() == ()


def test_logs_and_registers_work_in_it() -> None:
    async def body(world: SimulatedWorld) -> None:
        async with bkclient.connect(world.uri) as bk:
            register = VersionedRegister(bk, "leader")
            await register.create(b"me")
            logs = Logs(bk)
            await logs.create("orders")
            async with logs.writer("orders") as log:
                await log.publish(b"first")
                world.crash("bookie-0")
                await log.publish(b"second")

    with a_world() as world:
        world.run(body, world)


def test_what_cannot_be_is_refused() -> None:
    async def connect_with_tls(uri: str) -> None:
        await bkclient.connect(uri, config=ClientConfig(tls=TlsSettings(enabled=True)))

    async def body(world: SimulatedWorld) -> None:
        with pytest.raises(ValueError, match="no bookie or process 'bookie-9'; there are bookie-0, "):
            world.crash("bookie-9")
        with pytest.raises(ValueError, match="there is a host 'bookie-1' already"):
            world.start("bookie-1", asyncio.sleep, 1)
        with pytest.raises(ValueError, match="there is no process 'app'; there are none"):
            world.process("app")
        with pytest.raises(ValueError, match="kinds must be of crash, pause, partition, got flood"):
            async with world.disturbances(kinds=["flood"]):
                pass
        with pytest.raises(ValueError, match="hosts must name at least one host"):
            world.partition([])
        with pytest.raises(TimeoutError, match=r"<lambda> \(test_simulated_world.py, line \d+\) was not true within 5"):
            await world.until(lambda: False, within_s=5)
        with pytest.raises(ArgumentError, match="neither TLS nor authentication"):
            await connect_with_tls(world.uri)

    with a_world() as world:
        world.run(body, world)
    with pytest.raises(ArgumentError, match="this code does not run in one"):
        asyncio.run(appends(world.uri, 1, 0, []))
    with pytest.raises(ValueError, match="bookies must be between 1 and 100, got 0"):
        WorldOptions(bookies=0)
    with pytest.raises(ValueError, match="limit_s must be > 0, got 0"):
        WorldOptions(limit_s=0)


async def waits_forever() -> None:
    await asyncio.get_running_loop().create_future()


async def goes_to_a_thread() -> None:
    await anyio.to_thread.run_sync(len, "x")


async def fails_unseen(world: SimulatedWorld) -> None:
    async def fail() -> None:
        raise ValueError("nobody looks")

    world.start("app", fail)
    await asyncio.sleep(1)


def test_how_runs_end_that_cannot_go_on() -> None:
    with a_world() as world, pytest.raises(Deadlock, match=r"test: waits_forever .* at waits_forever, line"):
        world.run(waits_forever)
    with a_world(limit_s=100) as world, pytest.raises(TimeLimitReached, match="the limit is 100"):
        world.run(asyncio.sleep, 101)
    with a_world() as world, pytest.raises(RealWorldRefused, match=r"anyio\.to_thread is refused"):
        world.run(goes_to_a_thread)
    with a_world() as world, pytest.raises(UnhandledErrors, match=r"app: fail.*: ValueError"):
        world.run(fails_unseen, world)
