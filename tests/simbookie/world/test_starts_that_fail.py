"""Starts that fail, for a full disk or a crash, leave nothing behind: the next one begins as if they had not been."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from bkclient.metadata.records import Cookie
from bkclient.wire.messages import AddRequest
from simbookie.bookie import Bookie, BookieState
from simbookie.integrity import IntegrityConfig
from simbookie.server import ServerConfig
from simbookie.start_checks import StartChecks
from simbookie.storage.base import CrashMode, StorageIOError
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.kinds import StoreKind
from simbookie.world.bookie_host import BookieHost
from simbookie.world.files import FilesConfig, disk_of, storage_in_files
from simbookie.world.hosts import World
from simbookie.world.metadata import SimulatedMetadataStore
from tests.simbookie.notebook import Notebook

MODES = pytest.mark.parametrize("mode", CrashMode)
SERVERS = pytest.mark.parametrize("server", [None, ServerConfig()], ids=["objects", "bytes"])


async def _no_client() -> Any:
    raise AssertionError("nobody connects")


class Bench:
    """A bookie that keeps files; with ``cookies`` it checks them at each start, and itself if it is in doubt."""

    def __init__(self, server: ServerConfig | None = None, *, cookies: bool = False) -> None:
        self.world = World(1)
        self.notebook = Notebook()
        self.storage = storage_in_files(StoreKind.INTERLEAVED, FilesConfig(), Random(1))
        self.host = BookieHost(
            self.world,
            "b0",
            storage=self.storage,
            observer=self.notebook,
            server=server,
            start_checks=self._checks if cookies else None,
        )

    def _checks(self, bookie: Bookie, metadata: SimulatedMetadataStore) -> StartChecks:
        config = IntegrityConfig(enabled=True, stamps_missing_cookies=True)
        return StartChecks(bookie, metadata, Cookie("b0", ("/journal",), ("/ledgers",)), config, _no_client)

    @property
    def disk(self) -> SimulatedDisk:
        return disk_of(self.storage)

    async def store(self, count: int) -> None:
        """Entries 0, 1, ... of ledger 1, all acknowledged."""
        for entry_id in range(count):
            head = b"".join(value.to_bytes(8, "big", signed=True) for value in (1, entry_id, -1, 0))
            answered = asyncio.Event()
            request = AddRequest(1, entry_id, b"k" * 20, head, b"payload")
            self.host.bookie.submit(request, lambda _, answered=answered: answered.set())  # type: ignore[misc]
            await answered.wait()

    async def serves(self) -> None:
        async with asyncio.timeout(60):
            await self.host.registered()

    def ends(self) -> list[tuple[Any, ...]]:
        return self.notebook.of("crashed")

    def play(self, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        with self.world:
            self.world.run(lambda: story(self))


@SERVERS
def test_a_bookie_without_room_for_what_it_replays_ends_and_is_back_when_there_is_some(
    server: ServerConfig | None,
) -> None:
    async def story(bench: Bench) -> None:
        await bench.serves()
        await bench.store(3)
        bench.host.crash()
        empty = bench.disk.fill(0)
        for number in range(2):
            bench.host.restart()
            await asyncio.sleep(1)
            assert (bench.host.is_alive, bench.host.bookie.state) == (False, BookieState.STOPPED)
            assert "every disk is used" in bench.host.refusal
            assert len(bench.ends()) == 2 + number
            assert bench.ends()[-1][1], "it never served"
        empty()
        bench.host.restart()
        await bench.serves()
        assert (bench.host.refusal, bench.storage.entry_ids(1)) == ("", [0, 1, 2])

    Bench(server).play(story)


@SERVERS
def test_a_bookie_that_cannot_note_its_doubts_ends_before_it_serves(server: ServerConfig | None) -> None:
    async def story(bench: Bench) -> None:
        await bench.serves()
        await bench.store(1)
        bench.host.crash(CrashMode.POWER_LOSS)
        bench.disk.remove("ledgers/current/VERSION")  # which puts it in doubt
        full = DiskFault(DiskOperation.CREATE, DiskFaultKind.FULL, path="ledgers/current/integrity-check")
        bench.disk.faults.plant(full)
        bench.host.restart()
        await asyncio.sleep(1)
        assert not bench.host.is_alive
        assert "no space is left" in bench.host.refusal
        assert [event[1] for event in bench.ends()] == [False, False], "it had begun to run"
        bench.disk.faults.heal()
        bench.host.restart()
        await bench.serves()

    Bench(server, cookies=True).play(story)


@MODES
@pytest.mark.parametrize("wait_ms", [*range(1, 12), 15, 20, 30])
def test_a_crash_at_any_moment_of_a_first_start_is_made_up_for_by_the_next(wait_ms: int, mode: CrashMode) -> None:
    async def story(bench: Bench) -> None:
        await asyncio.sleep(wait_ms / 1000)
        bench.host.crash(mode)
        bench.host.restart()
        await bench.serves()
        await bench.store(1)

    Bench(cookies=True).play(story)


@SERVERS
def test_a_metadata_service_that_fails_at_the_start_is_asked_again(server: ServerConfig | None) -> None:
    async def story(bench: Bench) -> None:
        bench.world.metadata.stop()
        await asyncio.sleep(25)
        assert (bench.host.is_alive, bench.host.bookie.state) == (True, BookieState.NEW)
        bench.world.metadata.start()
        await bench.serves()

    Bench(server, cookies=True).play(story)


def test_a_storage_that_is_not_open_loses_with_the_power_what_was_not_synced() -> None:
    async def story(bench: Bench) -> None:
        await bench.serves()
        bench.host.crash()
        bench.storage.ledger_folders[0].write_small("note", b"for the next start")
        assert str(bench.storage.crash(CrashMode.PROCESS)) == "lost 0 entries and 0 fences"
        assert bench.storage.ledger_folders[0].exists("note")
        bench.storage.crash(CrashMode.POWER_LOSS)
        assert bench.storage.ledger_folders[0].read_small("note") in (None, b"", b"for the next start")

    Bench().play(story)


def test_a_bookie_whose_storage_does_not_open_is_stopped_and_can_be_started_again() -> None:
    async def story(bench: Bench) -> None:
        await bench.serves()
        await bench.store(1)
        bench.host.crash()
        bench.disk.faults.plant(DiskFault(DiskOperation.OPEN, path="journal/*"))
        bookie = Bookie("b0", bench.storage)
        with pytest.raises(StorageIOError):
            bookie.start()
        assert bookie.state is BookieState.STOPPED
        bench.disk.faults.heal()
        started = asyncio.Event()
        bookie.start(started.set)
        await started.wait()
        assert bookie.ledger_ids() == [1]
        bookie.crash()

    Bench().play(story)
