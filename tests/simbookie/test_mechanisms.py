"""What shows a mechanism of a bookie that the tests of its parts do not show by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, cast
from unittest import mock

import pytest

from bkclient.wire.messages import LongPoll, ReadRequest, Status
from simbookie.bookie import Bookie
from simbookie.server import ServerConfig
from simbookie.storage.db.read_cache import ReadCache
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk, SimulatedFile
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.ledger_store import LedgerStore
from simbookie.storage.sorted import SortedLedgerStore
from simbookie.tcp.connection import ServedConnection
from tests.simbookie.test_server import connected, served, versions

Virtually = Callable[[Callable[[], Any]], None]


class _Counting:
    """A transport that counts writes."""

    def __init__(self, transport: Any, writes: list[bytes]) -> None:
        self._transport = transport
        self._writes = writes

    def write(self, data: bytes) -> None:
        self._writes.append(bytes(data))
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@versions
async def test_what_one_sync_acknowledges_leaves_in_one_write_in_either_version(kit: Any, version: int) -> None:
    writes: list[bytes] = []
    connection_made = ServedConnection.connection_made

    def counted(self: ServedConnection, transport: Any) -> None:
        connection_made(self, cast("asyncio.BaseTransport", _Counting(transport, writes)))

    adds = [kit.add(1, entry_id, payload=bytes(500)) for entry_id in range(40)]
    # a group is written when it has all of them, and not before
    journal = JournalConfig(group_wait_max_s=3_600, group_bytes_max=len(adds) * len(adds[0].body) - 1)
    with mock.patch.object(ServedConnection, "connection_made", counted):
        async with served(ServerConfig(), journal=journal) as server, connected(server, version) as client:
            answers = await client.ask(*adds)
    assert {status for status, _ in answers} == {Status.OK}
    assert len(writes) == 1


@pytest.mark.rule("BK-16")
def test_a_poll_is_answered_before_the_add_that_wakes_it(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(journal=JournalConfig(sync_latency_s=0.010))
        bench.submit(kit.add(1, 0))
        await asyncio.sleep(1)
        polled = bench.submit(ReadRequest(1, -1, long_poll=LongPoll(-1, 1000, piggyback=True)))
        added = bench.submit(kit.add(1, 1, lac=0))
        await asyncio.sleep(1)
        assert (polled.statuses, added.statuses) == ([Status.OK], [Status.OK])
        assert polled.times == [pytest.approx(1.0)]
        assert added.times == [pytest.approx(1.010)]

    virtually(story)


def test_a_full_read_cache_loses_its_older_half_at_once() -> None:
    cache = ReadCache(2 * 64 * 4)
    for entry_id in range(8):
        cache.put(1, entry_id, bytes(64))
    assert cache.count == 8
    cache.put(1, 8, bytes(64))
    assert [entry_id for entry_id in range(9) if cache.get(1, entry_id) is not None] == [4, 5, 6, 7, 8]


@contextmanager
def counted_reads() -> Iterator[list[str]]:
    """The paths of entry logs that are read from a disk meanwhile."""
    paths: list[str] = []
    originals = {name: getattr(SimulatedFile, name) for name in ("read", "read_now")}

    def counting(name: str) -> Any:
        def read(self: SimulatedFile, *arguments: Any) -> Any:
            if self.path.endswith(".log"):
                paths.append(self.path)
            return originals[name](self, *arguments)

        return read

    with (
        mock.patch.object(SimulatedFile, "read", counting("read")),
        mock.patch.object(SimulatedFile, "read_now", counting("read_now")),
    ):
        yield paths


@pytest.mark.parametrize("kind", ["sorted", "db"])
def test_a_reader_at_the_tail_reads_nothing_from_the_disk(kit: Any, virtually: Virtually, kind: str) -> None:
    async def story() -> None:
        disk = SimulatedDisk(costs=DiskCosts(sync_s=0.002))
        parts = [Folder(disk, "l0")]
        folders = Folders(parts, Random(1))
        store: LedgerStore = DbLedgerStore(folders) if kind == "db" else SortedLedgerStore(folders)
        bookie = Bookie("b0", JournaledStorage([Folder(disk, "j0")], parts, store))
        running = asyncio.get_running_loop().create_future()
        bookie.start(lambda: running.set_result(None))
        await running

        async def status(request: Any) -> Status:
            answer = asyncio.get_running_loop().create_future()
            bookie.submit(request, answer.set_result)
            found: Status = (await answer).status
            return found

        with counted_reads() as paths:
            for entry_id in range(50):
                assert await status(kit.add(1, entry_id)) is Status.OK
                assert await status(ReadRequest(1, entry_id)) is Status.OK
            assert paths == []
            flushed = asyncio.get_running_loop().create_future()
            store.flush(lambda token, error: flushed.set_result(error), None)
            assert await flushed is None
            assert await status(ReadRequest(1, 0)) is Status.OK
            assert paths, "what was flushed is read from its log"
        bookie.crash()

    virtually(story)
