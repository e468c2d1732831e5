"""Files of a store with a database: BookKeeper's tools and bookies with ``DbLedgerStorage`` read ours, and we read theirs."""

from __future__ import annotations

import asyncio
import json
import re
import struct
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest
from typer.testing import CliRunner

from bkclient.ledger import DigestType
from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest
from simbookie.cli import app
from simbookie.storage.base import CrashMode, LedgerInfo, StorageError
from simbookie.storage.db.rocks import rocks_databases
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.format import log_id_of, position_of
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journaled import JournaledStorage
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory
from tests.interop.real_bookie import RealBookie, RealCluster
from tests.interop.test_findings import SETTINGS, answer_to, frames
from tests.interop.test_journal_files import entry, opened_by, payload_of
from tests.interop.test_storage_files import entries_told
from tests.simbookie.storage.stores import add, done, read_by

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

KEY: Final = EntryCodec(1, DigestType.CRC32C, b"").master_key
LEDGERS: Final = {5: 400, 0x1234: 21}


class OnDisk:
    """Our storage in the folders of a bookie."""

    def __init__(self, bookie: RealBookie, logs: EntryLogConfig | None = None) -> None:
        logs = logs if logs is not None else EntryLogConfig(log_size_max=400_000)
        root = bookie.configuration.parent
        disk = DirectoryDisk(root)
        self.ledgers = Folder(disk, "ledgers/current")
        self.store = DbLedgerStore(
            Folders([self.ledgers], Random(1)),
            DbConfig(write_cache_bytes=1 << 20, entry_log=logs),
            databases=lambda folder: rocks_databases(root / folder.path),
        )
        self.storage = JournaledStorage(
            [Folder(disk, "journal/current")], [self.ledgers], self.store, clock_ms=lambda: 0x1_0000
        )

    async def opened(self) -> OnDisk:
        future = asyncio.get_running_loop().create_future()
        self.storage.open(lambda: future.set_result(None), lambda _: None)
        await future
        return self

    async def closed(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self.storage.shutdown(lambda: future.set_result(None))
        await future

    def killed(self) -> None:
        self.storage.crash(CrashMode.PROCESS)

    async def acknowledged(self, ledger_id: int, *entry_ids: int) -> None:
        """Add entries, and wait until the last is durable."""
        future = asyncio.get_running_loop().create_future()

        def tell(entry_id: int, error: StorageError | None) -> None:
            assert error is None
            if entry_id == entry_ids[-1]:
                future.set_result(None)

        for entry_id in entry_ids:
            self.storage.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id), tell, entry_id)
        await future

    async def fenced(self, ledger_id: int) -> None:
        future = asyncio.get_running_loop().create_future()
        self.storage.fence(ledger_id, lambda _, error: future.set_result(error), None)
        assert await future is None

    async def payloads(self, ledger_id: int, count: int) -> list[bytes]:
        codec, found = EntryCodec(ledger_id, DigestType.CRC32C, b""), list[bytes]()
        for entry_id in range(count):
            body = await read_by(partial(self.storage.read_entry, ledger_id, entry_id))
            assert isinstance(body, bytes)
            found.append(codec.decode(body, entry_id).payload)
        return found


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cluster_of(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory, what: str, **settings: str
) -> RealCluster:
    conf = {**SETTINGS, "logSizeLimit": "400000", **settings}
    return RealCluster.on(zookeeper, build, tmp_path_factory.mktemp(f"db-{what}"), conf)


def test_bookkeepers_shell_reads_logs_and_the_index_that_we_wrote(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = cluster_of(build, zookeeper, tmp_path_factory, "shell")
    (bookie,) = cluster.add(1, wait=False)
    ours = OnDisk(bookie)

    async def write() -> dict[int, str]:
        await ours.opened()
        store = ours.store
        for ledger_id, count in LEDGERS.items():
            store.set_master_key(ledger_id, KEY)
            for entry_id in range(count):
                await add(store, ledger_id, entry_id, entry(ledger_id, entry_id))
        await done(store.flush)
        locations = {number: store.shards[0].locations.get(5, number) for number in range(LEDGERS[5])}
        await ours.closed()
        return {number: f"(log: {log_id_of(each)}, pos: {position_of(each)})" for number, each in locations.items()}

    expected = asyncio.run(write())
    told = cluster.shell("ledger", "5").stdout
    assert {
        int(number): where for number, where in re.findall(r"entry (\d+)\s*:\s*(\(log: \d+, pos: \d+\))", told)
    } == expected

    logs = sorted(path.name for path in Path(bookie.configuration.parent / "ledgers/current").glob("*.log"))
    assert len(logs) > 1
    read_by_it = dict[tuple[int, int], int]()
    for name in logs:
        read_by_it |= entries_told(cluster.shell("readlog", name).stderr)
    assert read_by_it == {
        (ledger_id, entry_id): len(entry(ledger_id, entry_id))
        for ledger_id, count in LEDGERS.items()
        for entry_id in range(count)
    }
    assert "Check passed" in cluster.shell("localconsistencycheck").stderr


@pytest.mark.parametrize("ends", ["in order", "killed", "flushed and killed"])
async def test_a_real_bookie_serves_every_entry_and_fence_that_we_acknowledged(
    build: Build,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
    new_client: ClientFactory,
    ends: str,
) -> None:
    with cluster_of(build, zookeeper, tmp_path_factory, f"ours-{ends.replace(' ', '-')}") as cluster:
        await asyncio.to_thread(cluster.start, 1)
        bookie = cluster.bookies[0]
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        writers = [
            await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1) for _ in range(3)
        ]
        first, second, fenced = (writer.ledger_id for writer in writers)
        await writers[2].append(payload_of(0))
        await asyncio.to_thread(bookie.end)

        ours = await OnDisk(bookie).opened()
        # the client tells the bookie of the LAC by itself a moment after the entry
        assert ours.storage.ledger(fenced) in (LedgerInfo(KEY, lac=-1), LedgerInfo(KEY, lac=0))
        for ledger_id in (first, second):
            ours.storage.set_master_key(ledger_id, KEY)
        await ours.acknowledged(first, *range(60))
        if ends == "flushed and killed":
            await done(ours.store.flush)
        await ours.acknowledged(second, *range(30))
        await ours.fenced(fenced)
        ours.storage.set_explicit_lac(first, 59, struct.pack(">qq", first, 59), lambda *_: None, None)
        if ends == "in order":
            await ours.closed()
        else:
            ours.killed()

        await asyncio.to_thread(cluster.restart, bookie)
        answer = await answer_to(bookie.port, *frames(AddRequest(fenced, 1, KEY, entry(fenced, 1), b"")))
        assert answer is not None
        assert answer.status == pb.EFENCED
        for ledger_id, count in ((first, 60), (second, 30), (fenced, 1)):
            reader = await opened_by(client, ledger_id)
            assert [each.payload async for each in reader] == [payload_of(number) for number in range(count)]
        more = await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
        assert await more.append(b"and it takes more") == 0


@pytest.mark.parametrize("ends", ["in order", "killed", "flushed and killed"])
async def test_we_serve_every_entry_and_fence_that_a_real_bookie_acknowledged(
    build: Build,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
    new_client: ClientFactory,
    ends: str,
) -> None:
    flush_ms = 500 if ends == "flushed and killed" else 60_000
    what = f"theirs-{ends.replace(' ', '-')}"
    with cluster_of(build, zookeeper, tmp_path_factory, what, flushInterval=str(flush_ms)) as cluster:
        await asyncio.to_thread(cluster.start, 1)
        bookie = cluster.bookies[0]
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        writers = [
            await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1) for _ in range(2)
        ]
        for entry_id in range(80):
            for writer in writers:
                await writer.append(payload_of(entry_id))
        open_ledger, fenced = (writer.ledger_id for writer in writers)
        await client.open_ledger(fenced, recover=True)
        if ends == "in order":
            await asyncio.to_thread(bookie.end)
        else:
            await asyncio.sleep(3 if ends == "flushed and killed" else 0)
            bookie.kill()

        current = bookie.configuration.parent / "ledgers" / "current"
        before = files_of(current)
        told = CliRunner().invoke(app, ["inspect", "index", str(current / "ledgers"), "--json"])
        rows = {row["ledger"]: row for row in json.loads(told.stdout)["ledgers"]}
        listed = CliRunner().invoke(app, ["inspect", "index", str(current / "locations"), "--ledger", str(open_ledger)])
        if ends != "killed":
            assert (rows[fenced]["fenced"], rows[open_ledger]["master_key"]) == (True, KEY.hex())
            assert len(listed.stdout.splitlines()) == 80
        assert files_of(current) == before

        ours = await OnDisk(bookie).opened()
        assert ours.storage.ledger_ids()[-2:] == [open_ledger, fenced]
        for ledger_id in (open_ledger, fenced):
            info = ours.storage.ledger(ledger_id)
            assert info is not None
            assert (info.master_key, info.fenced) == (KEY, ledger_id == fenced)
            assert ours.storage.entry_ids(ledger_id) == list(range(80))
            assert await ours.payloads(ledger_id, 80) == [payload_of(number) for number in range(80)]
        await ours.acknowledged(open_ledger, *range(80, 100))
        ours.killed()

        again = await OnDisk(bookie).opened()
        assert await again.payloads(open_ledger, 100) == [payload_of(number) for number in range(100)]
        await again.closed()
        await asyncio.to_thread(cluster.restart, bookie)
        reader = await opened_by(client, open_ledger)
        assert [each.payload async for each in reader] == [payload_of(number) for number in range(100)]
