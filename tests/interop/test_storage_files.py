"""Files of entry logs and indexes: BookKeeper's own tools and bookies read ours, and we read theirs."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from bkclient import BookKeeper
from bkclient.ledger import DigestType
from bkclient.wire.entry import EntryCodec
from simbookie.storage.base import LedgerInfo
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.format import log_id_of, position_of
from simbookie.storage.entry_logs.scan import read_ledgers_map
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.sorted import SortedConfig, SortedLedgerStore
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory
from tests.interop.real_bookie import RealBookie, RealCluster
from tests.simbookie.storage.stores import Owner, add, done, read_by

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

KINDS: Final = {
    "interleaved": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "sorted": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
}
#: Small, so that entry logs are rotated.
SETTINGS: Final = {"logSizeLimit": "40000", "skipListSizeLimit": "20000", "skipListArenaChunkSize": "4096"}
SETTINGS_OF_ARENA: Final = {"skipListArenaMaxAllocSize": "4096"}
LEDGERS: Final = {5: 1100, 0x1234: 21}
#: ``(ledger, entry)``, in the order they are added.
EXPECTED: Final = [
    (ledger_id, number) for number in range(1100) for ledger_id in LEDGERS if number < LEDGERS[ledger_id]
]
KEY: Final = EntryCodec(1, DigestType.CRC32C, b"").master_key


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    return b"%d/%d " % (ledger_id, entry_id) * (1 + entry_id % 90)


def entry(ledger_id: int, entry_id: int) -> bytes:
    payload = payload_of(ledger_id, entry_id)
    header = EntryCodec(ledger_id, DigestType.CRC32C, b"").encode_header(entry_id, entry_id - 1, len(payload), payload)
    return header + payload


Store = InterleavedLedgerStore | SortedLedgerStore


def store_in(kind: str, root: Path) -> Store:
    """One of our stores over the ledger folder of a bookie."""
    folders = Folders([Folder(DirectoryDisk(root), "current")], Random(1))
    interleaved = InterleavedConfig(EntryLogConfig(log_size_max=40_000))
    store: Store
    if kind == "interleaved":
        store = InterleavedLedgerStore(folders, interleaved)
    else:
        store = SortedLedgerStore(folders, SortedConfig(20_000, interleaved))
    store.open(Owner())
    return store


def behind(store: Store) -> InterleavedLedgerStore:
    return store if isinstance(store, InterleavedLedgerStore) else store.interleaved


def read(store: Store, ledger_id: int, entry_id: int) -> Any:
    return read_by(partial(store.read_entry, ledger_id, entry_id))


def real(
    build: Build, zookeeper: ZooKeeperServer, kind: str, tmp_path_factory: pytest.TempPathFactory, what: str
) -> RealCluster:
    settings = {**SETTINGS, **SETTINGS_OF_ARENA, "ledgerStorageClass": KINDS[kind]}
    return RealCluster.on(zookeeper, build, tmp_path_factory.mktemp(f"{what}-{kind}"), settings)


def ledgers_folder(bookie: RealBookie) -> Path:
    return bookie.configuration.parent / "ledgers"


# ---------------------------------------------------------------------------------------------------------- tools on ours


@pytest.mark.parametrize("kind", KINDS)
def test_bookkeepers_shell_reads_logs_and_indexes_that_we_wrote(
    build: Build, zookeeper: ZooKeeperServer, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = real(build, zookeeper, kind, tmp_path_factory, "ours")
    (bookie,) = cluster.add(1, wait=False)
    root = ledgers_folder(bookie)

    async def write() -> dict[int, str]:
        store = store_in(kind, root)
        for ledger_id in LEDGERS:
            store.set_master_key(ledger_id, KEY)
        for ledger_id, entry_id in EXPECTED:
            await add(store, ledger_id, entry_id, entry(ledger_id, entry_id))
        store.set_fenced(5)
        await done(store.flush)
        locations = dict(behind(store).cache.entries(5))
        store.close()
        return {
            number: f"(log:{log_id_of(location)}, pos: {position_of(location)})"
            for number, location in locations.items()
        }

    expected = asyncio.run(write())
    told = cluster.shell("ledger", "-m", "5").stdout
    indexed = {int(number): where for number, where in re.findall(r"entry (\d+)\s*:\s*(\(log: ?\d+, pos: \d+\))", told)}
    assert indexed == expected
    assert re.search(r"isFenced\s*: true", told)
    assert KEY.hex() in told.lower().replace(" ", "")

    logs = sorted(path.name for path in (root / "current").glob("*.log"))
    assert len(logs) > 2
    listings = [cluster.shell("listfilesondisc", option) for option in ("-log", "-idx")]
    listed = "".join(each.stdout + each.stderr for each in listings)
    assert all(name in listed for name in (*logs, "5.idx", "1234.idx")), listed

    read_by_it = dict[tuple[int, int], int]()
    for name in logs:
        read_by_it |= entries_told(cluster.shell("readlog", name).stderr)
    assert read_by_it == {key: len(entry(*key)) for key in EXPECTED}

    totals = cluster.shell("readlogmetadata", "0").stderr
    found = {int(ledger_id): int(size) for ledger_id, size in re.findall(r"(?:Lid|ledgerId)=(\d+), \w+=(\d+)", totals)}
    assert found == read_ledgers_map(DirectoryDisk(root).open("current/0.log"))


def entries_told(text: str) -> dict[tuple[int, int], int]:
    """Sizes of entries that BookKeeper's shell told of, in the words of 4.17 or in those of 4.18."""
    old = re.findall(r"Lid=(\d+), Eid=(\d+), ByteOffset=\d+, EntrySize=(\d+)", text)
    new = re.findall(r"entryId=(\d+), entrySize=(\d+), ledgerId=(\d+)", text)
    told = [*old, *((ledger_id, entry_id, size) for entry_id, size, ledger_id in new)]
    return {(int(ledger_id), int(entry_id)): int(size) for ledger_id, entry_id, size in told}


# --------------------------------------------------------------------------------------------------------- ours on theirs


async def written_by(client: BookKeeper, ledgers: int, entries: int) -> list[int]:
    """Ledgers that a client of ours wrote to one real bookie, closed."""
    ids: list[int] = []
    for _ in range(ledgers):
        async with await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1) as writer:
            for entry_id in range(entries):
                await writer.append(payload_of(writer.ledger_id, entry_id))
            ids.append(writer.ledger_id)
    return ids


@pytest.mark.parametrize("kind", KINDS)
async def test_we_read_what_a_real_bookie_wrote_and_it_goes_on_from_what_we_wrote(
    build: Build,
    zookeeper: ZooKeeperServer,
    kind: str,
    tmp_path_factory: pytest.TempPathFactory,
    new_client: ClientFactory,
) -> None:
    with real(build, zookeeper, kind, tmp_path_factory, "theirs") as cluster:
        await asyncio.to_thread(cluster.start, 1)
        bookie = cluster.bookies[0]
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        ids = await written_by(client, ledgers=3, entries=300)
        await asyncio.to_thread(bookie.end)

        store = store_in(kind, ledgers_folder(bookie))
        for ledger_id in ids:
            assert store.ledger(ledger_id) == LedgerInfo(KEY, lac=298)
            assert store.entry_ids(ledger_id) == list(range(300))
        bodies = [await read(store, ids[0], entry_id) for entry_id in range(300)]
        codec = EntryCodec(ids[0], DigestType.CRC32C, b"")
        for entry_id, body in enumerate(bodies):
            assert codec.decode(body, entry_id).payload == payload_of(ids[0], entry_id)
        store.delete_ledger(ids[0])  # and the same ledger again, in new logs and a new index file
        store.set_master_key(ids[0], KEY)
        for entry_id, body in enumerate(bodies):
            await add(store, ids[0], entry_id, body)
        await done(store.flush)
        store.close()

        await asyncio.to_thread(cluster.restart, bookie)
        for ledger_id in ids:
            reader = await client.open_ledger(ledger_id)
            found = [each.payload async for each in reader]
            assert found == [payload_of(ledger_id, entry_id) for entry_id in range(300)]
        assert await written_by(client, ledgers=1, entries=5), "and it takes more"


@pytest.mark.parametrize("kind", KINDS)
async def test_we_read_what_a_killed_bookie_left(
    build: Build,
    zookeeper: ZooKeeperServer,
    kind: str,
    tmp_path_factory: pytest.TempPathFactory,
    new_client: ClientFactory,
) -> None:
    with real(build, zookeeper, kind, tmp_path_factory, "killed") as cluster:
        await asyncio.to_thread(cluster.start, 1)
        bookie = cluster.bookies[0]
        client = await new_client(cluster.metadata_uri, timeouts=PATIENT)
        ids = await written_by(client, ledgers=3, entries=300)
        bookie.kill()

        store = store_in(kind, ledgers_folder(bookie))
        found = 0
        for ledger_id in ids:
            codec = EntryCodec(ledger_id, DigestType.CRC32C, b"")
            for entry_id in store.entry_ids(ledger_id) if store.ledger(ledger_id) is not None else ():
                body = await read(store, ledger_id, entry_id)
                if isinstance(body, bytes):  # the index may be ahead of the log
                    assert codec.decode(body, entry_id).payload == payload_of(ledger_id, entry_id)
                    found += 1
        assert found > 300
        logger = behind(store).logger
        sizes = [sum(logger.ledgers_of(log_id).values()) for log_id in logger.ids() if logger.size_of(log_id)]
        assert len(sizes) > 3
        assert sum(sizes) > 36 * found
