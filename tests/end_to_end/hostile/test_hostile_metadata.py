"""Bad neighbours in the metadata: somebody else writes nonsense into the znodes of a cluster, and an honest client works on.

The honest client creates ledgers, appends to them through the loss of a bookie, closes them and reads them. Beside it another
client reads every piece of nonsense. All it may meet is errors of ours, and the honest one must not notice.
"""

from __future__ import annotations

import asyncio
import string
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Any, Final, Self

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

import bkclient
from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from bkclient.metadata.opening import open_store
from simbookie.cluster import LocalCluster
from tests.zookeepers import AnyZooKeeper

BOUND_S: Final = 60.0
"""Far above what a step takes on a loaded machine, far below what an unbounded one would."""

ENTRIES: Final = 20

NAMES: Final = [
    "evil;touch pwned",
    "x" * 3000,
    "\u202egnp.exe",
    "READONLY",
    "a:1:2:3",
    "-rf",
    "host with spaces:3181",
    "b" * 70 + ":3181",  # a valid id whose host is no host
]
_FORMAT: Final = b"BookieMetadataFormatVersion\t%d\n"


def ledger_values(rng: Random) -> list[bytes]:
    """What may stand where a ledger's metadata is expected."""
    huge = "\t".join(("0", *(f"b{number}:1" for number in range(40_000))))
    thrice = "\t".join(("0", "b:1", "b:1", "b:1"))
    unreachable = "\t".join(("0", "127.0.0.1:1", "b" * 70 + ":3181", "0.0.0.0:2"))
    return [
        b"",
        rng.randbytes(200),
        _FORMAT % 1 + f"2\n40000\n0\n{huge}\n".encode(),
        _FORMAT % 1 + f"2\n3\n0\n{thrice}\n".encode(),
        _FORMAT % 1 + f"2\n3\n0\n{unreachable}\n".encode(),
        _FORMAT % 2 + b"quorumSize: 2\n" * 20_000,
        _FORMAT % 3 + b"\xff\xff\xff\xff\x0f" + rng.randbytes(1000),
        _FORMAT % 99 + rng.randbytes(10),
        rng.randbytes(900_000),
    ]


class Vandal:
    """Writes nonsense below the root of a cluster."""

    def __init__(self, address: str, root: str, rng: Random) -> None:
        self._client = KazooClient(address)
        self._root = root
        self._rng = rng

    def __enter__(self) -> Self:
        self._client.start(timeout=30)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def put(self, path: str, data: bytes) -> None:
        with suppress(KazooException):  # it is there already, or no path
            self._client.create(f"{self._root}/{path}", data, makepath=True)

    def register_nonsense(self) -> None:
        for name in NAMES:
            self.put(f"available/{name}", self._rng.choice((b"", b"\xff" * 10, b"\x08\x96\x01")))
            self.put(f"available/readonly/{name}", b"")

    def store_nonsense(self, first_id: int) -> list[int]:
        """Ledgers of nonsense, from ``first_id`` on; their ids."""
        values = ledger_values(self._rng)
        for ledger_id, value in enumerate(values, first_id):
            digits = f"{ledger_id:010d}"
            self.put(f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}", value)
        return list(range(first_id, first_id + len(values)))

    def scatter(self, count: int) -> None:
        """Nodes of any name with any data, everywhere."""
        directories = ["", "available/", "00/", "00/0000/", "idgen/", "cookies/", "underreplication/ledgers/", "999/"]
        for _ in range(count):
            name = "".join(
                self._rng.choices(string.printable.replace("/", "") + "\x7f\u2028", k=self._rng.randrange(1, 20))
            )
            self.put(self._rng.choice(directories) + name.strip("."), self._rng.randbytes(self._rng.randrange(100)))


async def honest_life(client: BookKeeper, cluster: LocalCluster) -> None:
    """Every step works, within its bound."""
    for _ in range(3):
        async with asyncio.timeout(BOUND_S):
            writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        # the vandal's ids may be in the ensemble too, and may be all of it until entries are written
        theirs = [name for name in writer.metadata.last_fragment.ensemble if name in cluster.bookie_ids]
        lost = (theirs or list(cluster.bookie_ids))[0]
        for number in range(ENTRIES):
            if number == ENTRIES // 2:
                await cluster.kill(lost)
            async with asyncio.timeout(BOUND_S):
                assert await writer.append(b"%d" % number) == number
        async with asyncio.timeout(BOUND_S):
            await writer.close()
            reader = await client.open_ledger(writer.ledger_id, recover=True)
            assert [entry.payload async for entry in reader] == [b"%d" % number for number in range(ENTRIES)]
        await cluster.restart(lost)


async def look_at(client: BookKeeper, ledger_ids: list[int]) -> None:
    """All that a client can ask about nonsense: an answer or an error of ours, within a bound."""
    for ledger_id in ledger_ids:
        for ask in (client.ledger_metadata, client.is_closed, client.open_ledger):
            async with asyncio.timeout(BOUND_S):
                with suppress(BookKeeperError):
                    await ask(ledger_id)
    async with asyncio.timeout(BOUND_S):
        listed = [ledger_id async for ledger_id in client.list_ledgers()]
        assert {*ledger_ids} <= {*listed}


@pytest.fixture
async def cluster(zookeeper_server: AnyZooKeeper, zookeeper_root: str) -> AsyncIterator[tuple[str, LocalCluster]]:
    uri = zookeeper_server.metadata_uri(zookeeper_root)
    store = await open_store(uri, rng=Random(7), connect_timeout_s=30.0, initialise=True)
    async with LocalCluster(store, 5) as running:
        yield uri, running
    await store.aclose()


async def run_workload(uri: str, cluster: LocalCluster, address: str, root: str, seed: int, scattered: int) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    with Vandal(address, root, Random(seed)) as vandal:
        async with bkclient.connect(uri) as honest, bkclient.connect(uri) as curious:
            await asyncio.to_thread(vandal.register_nonsense)
            nonsense = await asyncio.to_thread(vandal.store_nonsense, 5000)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.to_thread(vandal.scatter, scattered))
                tasks.create_task(honest_life(honest, cluster))
                tasks.create_task(look_at(curious, nonsense))
            offered = await honest.bookies()
            assert not {*NAMES[:4]}.intersection(offered.writable, offered.read_only)
    assert reported == []


@pytest.mark.timeout(300)
async def test_an_honest_client_works_beside_nonsense_in_the_metadata(
    cluster: tuple[str, LocalCluster], zookeeper_server: AnyZooKeeper, zookeeper_root: str
) -> None:
    uri, running = cluster
    await run_workload(uri, running, zookeeper_server.address, zookeeper_root, 1, 60)


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(20))
async def test_an_honest_client_works_beside_much_nonsense(
    cluster: tuple[str, LocalCluster], zookeeper_server: AnyZooKeeper, zookeeper_root: str, seed: int
) -> None:
    uri, running = cluster
    await run_workload(uri, running, zookeeper_server.address, zookeeper_root, seed, 2000)
