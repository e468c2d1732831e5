"""Entry logs in blocks, and logs of which each ledger has its own: we read those of real bookies, and they read ours."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import pytest

from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire.messages import ReadRequest
from simbookie.storage.entry_logs.config import DIRECT_WRITE_BUFFERS, DirectConfig, EntryLogConfig
from simbookie.storage.entry_logs.format import BLOCK_SIZE, EntryLogHeader
from simbookie.storage.entry_logs.scan import read_ledgers_map, scan
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory
from tests.interop.real_bookie import RealBookie
from tests.interop.test_db_files import LEDGERS, OnDisk, cluster_of
from tests.interop.test_findings import answer_to, frames
from tests.interop.test_journal_files import entry, opened_by, payload_of
from tests.interop.test_storage_files import KEY, entries_told
from tests.simbookie.storage.stores import add, done

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_MIB: Final = 1 << 20
#: What a real bookie is told, and our logs of the same kind.
KINDS: Final[dict[str, tuple[dict[str, str], EntryLogConfig]]] = {
    "direct": (
        {
            "dbStorage_directIOEntryLogger": "true",
            "dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB": "8",
            "dbStorage_directIOEntryLoggerTotalReadBufferSizeMB": "8",
            "dbStorage_directIOEntryLoggerReadBufferSizeMB": "1",
        },
        EntryLogConfig(log_size_max=400_000, direct=DirectConfig(DIRECT_WRITE_BUFFERS * _MIB, 8 * _MIB, _MIB)),
    ),
    "per-ledger": (
        {"entryLogPerLedgerEnabled": "true", "maximumNumberOfActiveEntryLogs": "2"},
        EntryLogConfig(log_size_max=400_000, per_ledger=True, active_logs_max=2),
    ),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def current(bookie: RealBookie) -> Path:
    return bookie.configuration.parent / "ledgers" / "current"


def logs_of(bookie: RealBookie) -> list[Path]:
    return sorted(current(bookie).glob("*.log"), key=lambda path: int(path.stem, 16))


class Log:
    """A file to be scanned."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        self.size = len(self._data)

    def read_now(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


def wait_until_gone(path: Path) -> None:
    begun = time.monotonic()
    while path.exists():
        assert time.monotonic() - begun < 60, f"{path} is still there"
        time.sleep(0.2)


@EVERY_KIND
def test_bookkeepers_shell_reads_such_logs_of_ours(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    cluster = cluster_of(build, zookeeper, tmp_path_factory, f"shell-{kind}")  # which is not told what logs to expect
    (bookie,) = cluster.add(1, wait=False)
    ours = OnDisk(bookie, KINDS[kind][1])

    async def write() -> None:
        await ours.opened()
        for ledger_id, count in LEDGERS.items():
            ours.store.set_master_key(ledger_id, KEY)
            for entry_id in range(count):
                await add(ours.store, ledger_id, entry_id, entry(ledger_id, entry_id))
        await done(ours.store.flush)
        await ours.closed()

    asyncio.run(write())
    read_by_it = dict[tuple[int, int], int]()
    for path in logs_of(bookie):
        read_by_it |= entries_told(cluster.shell("readlog", path.name).stderr)
    assert read_by_it == {
        (ledger_id, entry_id): len(entry(ledger_id, entry_id))
        for ledger_id, count in LEDGERS.items()
        for entry_id in range(count)
    }
    assert "Check passed" in cluster.shell("localconsistencycheck").stderr


@EVERY_KIND
@pytest.mark.parametrize("reads_as", ["the same", "shared logs"])
async def test_a_real_bookie_serves_what_we_acknowledged(
    build: Build,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
    new_client: ClientFactory,
    kind: str,
    reads_as: str,
) -> None:
    settings, config = KINDS[kind]
    told = settings if reads_as == "the same" else {}
    what = f"serves-{kind}-{reads_as.replace(' ', '-')}"
    with cluster_of(build, zookeeper, tmp_path_factory, what, **told) as cluster:
        await asyncio.to_thread(cluster.start, 1)
        bookie = cluster.bookies[0]
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        writers = [
            await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1) for _ in range(3)
        ]
        await asyncio.to_thread(bookie.end)

        ours = await OnDisk(bookie, config).opened()
        for writer in writers:
            ours.storage.set_master_key(writer.ledger_id, KEY)
            await ours.acknowledged(writer.ledger_id, *range(60))
            await done(ours.store.flush)
        await ours.acknowledged(writers[0].ledger_id, *range(60, 80))
        ours.killed()

        await asyncio.to_thread(cluster.restart, bookie)
        for writer, count in zip(writers, (80, 60, 60), strict=True):
            reader = await opened_by(client, writer.ledger_id)
            assert [each.payload async for each in reader] == [payload_of(number) for number in range(count)]
        more = await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
        assert await more.append(b"and it takes more") == 0


@EVERY_KIND
async def test_we_serve_what_a_real_bookie_acknowledged_and_our_bytes_are_its_own(
    build: Build,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
    new_client: ClientFactory,
    kind: str,
) -> None:
    settings, config = KINDS[kind]
    with cluster_of(build, zookeeper, tmp_path_factory, f"theirs-{kind}", flushInterval="500", **settings) as cluster:
        await asyncio.to_thread(cluster.start, 1)
        bookie = cluster.bookies[0]
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        writers = [
            await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1) for _ in range(3)
        ]
        for entry_id in range(60):
            for writer in writers:
                await writer.append(payload_of(entry_id))
        await asyncio.sleep(3)
        for writer in writers:
            await writer.append(payload_of(60))
        bookie.kill()

        first = Log(logs_of(bookie)[0])
        if kind == "direct":
            assert first.read_now(0, BLOCK_SIZE) == EntryLogHeader().encode_block()
            ends = [record.offset + 4 + len(record.entry) for record in scan(first)]
            padding = first.read_now(ends[-1], -ends[-1] % BLOCK_SIZE)
            assert padding == b"\xf0" * len(padding), "and then what was reserved of the disk"
        else:
            found = [{record.ledger_id for record in scan(Log(path))} for path in logs_of(bookie)]
            assert max(map(len, found)) == 1, "each has one ledger"
        ours = await OnDisk(bookie, config).opened()
        for writer in writers:
            assert await ours.payloads(writer.ledger_id, 61) == [payload_of(number) for number in range(61)]
        await done(ours.store.flush)
        ours.killed()
        await asyncio.to_thread(cluster.restart, bookie)
        for writer in writers:
            reader = await opened_by(client, writer.ledger_id)
            assert [each.payload async for each in reader] == [payload_of(number) for number in range(61)]


async def test_a_real_bookie_removes_a_log_of_blocks_whose_map_a_kill_kept_from_being_written(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory, new_client: ClientFactory
) -> None:
    """The header of a log is submitted to the device before the ledgers map that it tells of. Here is what lies between."""
    settings = {**KINDS["direct"][0], "flushInterval": "500", "gcWaitTime": "1000"}
    with cluster_of(build, zookeeper, tmp_path_factory, "map-told-first", **settings) as cluster:
        await asyncio.to_thread(cluster.start, 1)
        bookie = cluster.bookies[0]
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        writer = await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
        for entry_id in range(20):
            await writer.append(payload_of(entry_id))
        await asyncio.sleep(3)
        await asyncio.to_thread(bookie.end)
        (path,) = logs_of(bookie)
        whole = Log(path)
        header = EntryLogHeader.decode(whole.read_now(0, 1024))
        assert read_ledgers_map(whole) == {
            writer.ledger_id: sum(4 + len(entry(writer.ledger_id, n)) for n in range(20))
        }
        with path.open("r+b") as file:  # as a kill between the two writes leaves it
            file.seek(header.map_offset)
            file.write(bytes(whole.size - header.map_offset))

        await asyncio.to_thread(cluster.restart, bookie)
        await asyncio.to_thread(wait_until_gone, path)
        answer = await answer_to(bookie.port, *frames(ReadRequest(writer.ledger_id, 3)))
        assert answer is not None
        assert answer.readResponse.status == pb.EIO, (
            "an entry of a ledger that exists, acknowledged and durable, is gone"
        )
