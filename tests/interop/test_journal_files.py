"""Files of journals: BookKeeper's own tools and bookies read ours, and we read theirs."""

from __future__ import annotations

import asyncio
import re
import struct
from functools import partial
from random import Random
from typing import Final

import pytest

from bkclient import BookKeeper, LedgerReader
from bkclient.errors import BookKeeperError
from bkclient.ledger import DigestType
from bkclient.wire.entry import EntryCodec
from simbookie.storage.base import CrashMode, StorageError
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journal.mark import LogMark, read_mark
from simbookie.storage.journal.reader import JournalScan
from simbookie.storage.journal.records import file_name, parse_body
from simbookie.storage.journal.replay import file_ids
from simbookie.storage.journal.settings import JournalSettings
from simbookie.storage.journaled import JournaledConfig, JournaledStorage
from simbookie.storage.sorted import SortedLedgerStore
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory
from tests.interop.real_bookie import RealBookie, RealCluster
from tests.simbookie.storage.stores import read_by

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

KEY: Final = EntryCodec(1, DigestType.CRC32C, b"").master_key


def payload_of(entry_id: int) -> bytes:
    return b"%d " % entry_id * (1 + entry_id * 37 % 400)


def entry(ledger_id: int, entry_id: int) -> bytes:
    payload = payload_of(entry_id)
    length = sum(len(payload_of(number)) for number in range(entry_id + 1))
    header = EntryCodec(ledger_id, DigestType.CRC32C, b"").encode_header(entry_id, entry_id - 1, length, payload)
    return header + payload


class OnDisk:
    """Our storage in the folders of a bookie."""

    def __init__(self, bookie: RealBookie, settings: JournalSettings | None = None) -> None:
        disk = DirectoryDisk(bookie.configuration.parent)
        self.journal, self.ledgers = Folder(disk, "journal/current"), Folder(disk, "ledgers/current")
        self.storage = JournaledStorage(
            [self.journal],
            [self.ledgers],
            SortedLedgerStore(Folders([self.ledgers], Random(1))),
            JournaledConfig(journal=settings if settings is not None else JournalSettings()),
            clock_ms=lambda: 0x1_0000,
        )

    async def opened(self) -> OnDisk:
        done = asyncio.get_running_loop().create_future()
        self.storage.open(lambda: done.set_result(None), lambda _: None)
        await done
        return self

    async def closed(self) -> None:
        done = asyncio.get_running_loop().create_future()
        self.storage.shutdown(lambda: done.set_result(None))
        await done

    async def acknowledged(self, ledger_id: int, *entry_ids: int) -> None:
        for entry_id in entry_ids:
            future = asyncio.get_running_loop().create_future()

            def tell(_: object, error: StorageError | None, future: asyncio.Future[None] = future) -> None:
                assert error is None
                future.set_result(None)

            self.storage.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id), tell, None)
            await future

    async def fenced(self, ledger_id: int) -> None:
        future = asyncio.get_running_loop().create_future()
        self.storage.fence(ledger_id, lambda _, error: future.set_result(error), None)
        assert await future is None


def told(text: str) -> list[tuple[int, int, int, int]]:
    """Ledger, entry, offset and size of the records that BookKeeper's shell told of, in the words of 4.17 or in those of 4.18."""
    old = re.findall(r"Lid=(-?\d+), Eid=(-?\d+), ByteOffset=(\d+), EntrySize=(\d+)", text)
    new = re.findall(r"entryId=(-?\d+), entrySize=(\d+), ledgerId=(-?\d+), position=(\d+)", text)
    records = [*old, *((ledger, number, offset, size) for number, size, ledger, offset in new)]
    return [(int(ledger), int(number), int(offset), int(size)) for ledger, number, offset, size in records]


def scanned(folder: Folder, file_id: int) -> list[tuple[int, int, int, int]]:
    """The same as we read it."""
    file = folder.open(file_name(file_id))
    scan = JournalScan(file)
    parsed = [(offset, len(body), parse_body(body, scan.version)) for offset, body in scan]
    return [(record.ledger_id, record.entry_id, offset, size) for offset, size, record in parsed]


async def opened_by(client: BookKeeper, ledger_id: int) -> LedgerReader:
    """Recover a ledger on a bookie that has only just registered."""
    while True:
        try:
            return await client.open_ledger(ledger_id, recover=True)
        except BookKeeperError:
            await asyncio.sleep(0.5)


def test_bookkeepers_shell_reads_journals_and_marks_that_we_wrote(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("journal-ours"))
    (bookie,) = cluster.add(1, wait=False)
    settings = JournalSettings(file_bytes_max=100_000, preallocation_bytes=1 << 20, group_wait_max_s=0)

    async def write() -> None:
        ours = OnDisk(bookie, settings)
        await ours.opened()
        ours.storage.set_master_key(7, KEY)
        await ours.acknowledged(7, *range(300))
        await ours.fenced(7)
        ours.storage.set_explicit_lac(7, 299, struct.pack(">qq", 7, 299), lambda *_: None, None)
        await ours.acknowledged(7, 300)
        ours.storage.crash(CrashMode.PROCESS)

    asyncio.run(write())
    ours = OnDisk(bookie)
    ids = file_ids(ours.journal)
    assert len(ids) > 2
    expected = {file_id: scanned(ours.journal, file_id) for file_id in ids}
    assert sum(map(len, expected.values())) == 304
    for file_id in ids:
        assert told(cluster.shell("readjournal", file_name(file_id)).stderr) == expected[file_id]

    async def end() -> None:
        await ours.opened()
        await ours.closed()

    asyncio.run(end())
    mark = read_mark([ours.ledgers], "lastMark")
    assert mark == LogMark(max(ids), mark.offset)
    assert f"Journal Id - {mark.file_id}({mark.file_id:x}.txn), Pos - {mark.offset}" in cluster.shell("lastmark").stderr


async def test_a_journal_goes_from_a_real_bookie_to_us_and_back(
    build: Build,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
    new_client: ClientFactory,
) -> None:
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("journal-theirs")) as cluster:
        await asyncio.to_thread(cluster.start, 1)
        bookie = cluster.bookies[0]
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        writer = await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
        ledger_id = writer.ledger_id
        for entry_id in range(60):
            await writer.append(payload_of(entry_id))
        bookie.kill()

        # what a killed bookie acknowledged is in its journal alone
        ours = await OnDisk(bookie).opened()
        journal = file_ids(ours.journal)[0]
        entries = [
            number for ledger, number, _, _ in scanned(ours.journal, journal) if (ledger, number) >= (ledger_id, 0)
        ]
        assert entries == list(range(60))
        codec = EntryCodec(ledger_id, DigestType.CRC32C, b"")
        for entry_id in range(60):
            body = await read_by(partial(ours.storage.read_entry, ledger_id, entry_id))
            assert isinstance(body, bytes)
            assert codec.decode(body, entry_id).payload == payload_of(entry_id)
        assert read_mark([ours.ledgers], "lastMark").file_id == journal

        # and what we acknowledged is in ours
        await ours.acknowledged(ledger_id, *range(60, 100))
        ours.storage.crash(CrashMode.PROCESS)

        await asyncio.to_thread(cluster.restart, bookie)
        reader = await opened_by(client, ledger_id)
        found = [each.payload async for each in reader]
        assert found == [payload_of(entry_id) for entry_id in range(100)]
