"""Fences that real bookies forget when they are killed, and what a client whose ledger was taken over may be told then.

None of it is a matter of timing: the journal has every fence, but what is replayed of it, and what a checkpoint keeps, is not
enough. A bookie that ends in good order, or a fence that follows an entry into the same journal, is no such case.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from bkclient import BookKeeper, LedgerWriter
from bkclient.errors import LedgerFenced
from bkclient.ledger import DigestType
from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import LAST_ENTRY, AddRequest, ReadRequest, Request
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import ClientFactory
from tests.interop.real_bookie import RealCluster
from tests.interop.test_findings import SETTINGS as DB_SETTINGS
from tests.interop.test_findings import answer_to, frames

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

#: How often bookies write a checkpoint, and how long one has to be waited for.
CHECKPOINT_MS: Final = 2000
AFTER_A_CHECKPOINT_S: Final = 3.5
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {"sorted": {}, "db": DB_SETTINGS}
KEY: Final = EntryCodec(1, DigestType.CRC32C, b"").master_key


def add(ledger_id: int, entry_id: int, *, recovery: bool = False) -> AddRequest:
    header = EntryCodec(ledger_id, DigestType.CRC32C, b"").encode_header(entry_id, -1, 1, b"x")
    return AddRequest(ledger_id, entry_id, KEY, header, b"x", recovery=recovery)


def fence(ledger_id: int) -> ReadRequest:
    return ReadRequest(ledger_id, LAST_ENTRY, fence_key=KEY)


@dataclass
class Bookies:
    """Two real bookies of one kind of storage; the first one is asked."""

    kind: str
    cluster: RealCluster

    def answer(self, request: Request) -> str:
        """The name of the status of the answer."""
        answer = asyncio.run(answer_to(self.cluster.bookies[0].port, *frames(request)))
        assert answer is not None
        if answer.HasField("addResponse"):
            return pb.StatusCode.Name(answer.addResponse.status)
        return pb.StatusCode.Name(answer.readResponse.status)

    def kill_and_restart(self) -> None:
        """SIGKILL all of them, and start them again on their data."""
        for bookie in self.cluster.bookies:
            bookie.kill()
        self.cluster.wait_unregistered(*(bookie.bookie_id for bookie in self.cluster.bookies))
        for bookie in self.cluster.bookies:
            bookie.spawn()
        self.cluster.wait_registered(*(bookie.bookie_id for bookie in self.cluster.bookies))


@pytest.fixture(scope="module", params=list(SETTINGS))
def bookies(
    request: pytest.FixtureRequest, build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bookies]:
    kind: str = request.param
    settings = {"flushInterval": str(CHECKPOINT_MS), "zkTimeout": "2000", **SETTINGS[kind]}
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp(f"forgetful-{kind}"), settings) as cluster:
        yield Bookies(kind, cluster.start(2))


def test_a_fence_that_came_before_any_entry_is_forgotten(bookies: Bookies) -> None:
    """A bookie learns the key of a ledger with its first entry, and replays no fence of a ledger without a key."""
    assert [bookies.answer(request) for request in (fence(10), add(10, 0))] == ["ENOENTRY", "EFENCED"]
    recovered = (fence(11), add(11, 0, recovery=True), add(11, 1))
    assert [bookies.answer(request) for request in recovered] == ["ENOENTRY", "EOK", "EFENCED"]
    assert [bookies.answer(request) for request in (add(12, 0), fence(12), add(12, 1))] == ["EOK", "EOK", "EFENCED"]

    bookies.kill_and_restart()

    assert bookies.answer(add(12, 1)) == "EFENCED", "entry, fence: kept"
    assert bookies.answer(add(10, 0)) == "EOK"
    assert bookies.answer(add(11, 1)) == "EOK", "an entry of the recovery comes too late for the fence"


@pytest.mark.parametrize("bookies", ["db"], indirect=True)
def test_the_fence_of_an_idle_ledger_is_forgotten(bookies: Bookies) -> None:
    """With no entry to write a checkpoint leaves the fence unwritten, and lets the journal go all the same."""
    assert bookies.answer(add(20, 0)) == "EOK"
    time.sleep(AFTER_A_CHECKPOINT_S)
    assert [bookies.answer(request) for request in (fence(20), add(20, 1))] == ["EOK", "EFENCED"]
    time.sleep(AFTER_A_CHECKPOINT_S)

    bookies.kill_and_restart()

    assert bookies.answer(add(20, 1)) == "EOK"


@pytest.mark.parametrize("bookies", ["sorted"], indirect=True)
def test_a_fence_that_was_replayed_is_forgotten(bookies: Bookies) -> None:
    """This storage does the same where nothing but the fence was replayed at its start."""
    assert bookies.answer(add(21, 0)) == "EOK"
    bookies.kill_and_restart()
    time.sleep(AFTER_A_CHECKPOINT_S)
    assert bookies.answer(fence(21)) == "EOK"
    bookies.kill_and_restart()
    assert bookies.answer(add(21, 1)) == "EFENCED"
    time.sleep(AFTER_A_CHECKPOINT_S)

    bookies.kill_and_restart()

    assert bookies.answer(add(21, 1)) == "EOK"


async def _idle_writer_of_a_ledger_taken_over(python: BookKeeper, bookies: Bookies) -> LedgerWriter:
    """It has not written yet, its ledger is closed, and its bookies have forgotten that."""
    await asyncio.sleep(AFTER_A_CHECKPOINT_S)  # entries of other ledgers would have the next checkpoint write the fence
    writer = await python.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)
    taken_over = await python.open_ledger(writer.ledger_id, recover=True)
    assert (taken_over.is_closed, taken_over.last_add_confirmed) == (True, -1)
    await asyncio.to_thread(bookies.kill_and_restart)
    return writer


async def test_a_writer_learns_of_the_takeover_from_the_metadata(bookies: Bookies, new_client: ClientFactory) -> None:
    """It has connected to its bookies anew, so it looks at the metadata before it counts what they say."""
    python: BookKeeper = await new_client(bookies.cluster.metadata_uri)
    writer = await _idle_writer_of_a_ledger_taken_over(python, bookies)

    with pytest.raises(LedgerFenced, match="closed it at entry -1"):
        await writer.append(b"stored by every bookie, and not acknowledged")


async def test_without_that_it_gets_an_acknowledgement_for_an_entry_after_the_end(
    bookies: Bookies, new_client: ClientFactory
) -> None:
    """No bookie tells it: they take the entry, and it has no other reason to look at the metadata."""
    python: BookKeeper = await new_client(
        bookies.cluster.metadata_uri, writing={"check_metadata_after_reconnect": False}
    )
    writer = await _idle_writer_of_a_ledger_taken_over(python, bookies)

    assert await writer.append(b"acknowledged") == 0
    assert (await python.open_ledger(writer.ledger_id, recover=True)).last_add_confirmed == -1, (
        "nobody will ever read it"
    )
