"""The bytes of the real Java client and of real bookies, which ``tests/bkclient/wire/golden`` keeps for machines without Maven.

With ``REWRITE_GOLDEN=1`` in the environment the files are written anew; otherwise what is heard has to be what they hold.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.opening import open_store
from simbookie.cluster import LocalCluster
from simbookie.security import BookieSecurity, SharedSecretBookie
from simbookie.server import ServerConfig
from simbookie.zookeeper import ZooKeeperServer
from tests.bkclient.wire.conversation import FRAME_LIMIT, converse
from tests.bkclient.wire.golden_files import Golden, golden_files, without_chance
from tests.interop.builds import Build
from tests.interop.conftest import PeerFactory
from tests.interop.java_peer import JavaError, JavaPeer
from tests.interop.real_bookie import RealCluster
from tests.interop.test_security import AUTH_OF_CLIENT, FACTORY, SECRET, TRUST
from tests.interop.wiretap import Wiretap

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

REWRITES = "REWRITE_GOLDEN" in os.environ
_ROOTS = itertools.count(1)


def golden_of(build: Build, wire: int) -> Golden:
    for golden in golden_files():
        if (golden.version, golden.wire) == (build.version, wire):
            return golden
    return Golden(build.version, wire, (), ())


@pytest.fixture
def newborn(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """One real bookie that knows nothing yet."""
    settings = {"nettyMaxFrameSizeBytes": str(FRAME_LIMIT)}
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("newborn"), settings) as cluster:
        yield cluster.start(1)


@pytest.mark.matrix("answers, byte for byte")
async def test_what_a_real_bookie_answers(newborn: RealCluster, build: Build, wire: int) -> None:
    exchanges = tuple(await converse("127.0.0.1", newborn.bookies[0].port, wire))

    golden = golden_of(build, wire)
    if REWRITES:
        replace(golden, exchanges=exchanges).save()
    else:
        heard = [(each.name, each.answer_without_chance) for each in exchanges]
        assert heard == [(each.name, each.answer_without_chance) for each in golden.exchanges]


@pytest.mark.matrix("requests, byte for byte")
async def test_what_the_java_client_sends(
    new_peer: PeerFactory, zookeeper: ZooKeeperServer, build: Build, wire: int
) -> None:
    requests = await _listen(new_peer, zookeeper, wire)

    golden = golden_of(build, wire)
    if REWRITES:
        replace(golden, requests=tuple(each.hex() for each in requests.values())).save()
    else:
        assert [each for each in golden.requests if _fixed(bytes.fromhex(each)) not in requests] == []


def _fixed(request: bytes) -> bytes:
    return without_chance(request, is_request=True)


class Stage:
    """What an act plays on: a tapped simulated bookie, and Java clients that find no other."""

    def __init__(self, tap: Wiretap, new: Callable[..., JavaPeer]) -> None:
        self._tap = tap
        self._new = new
        self._peers: list[JavaPeer] = []

    async def new(self, **properties: Any) -> JavaPeer:
        """A Java client with these properties; it may take its time, and the bookie goes on meanwhile."""
        peer = await asyncio.to_thread(lambda: self._new(**properties))
        self._peers.append(peer)
        return peer

    async def hears_explicit_lacs(self, wanted: int) -> None:
        """Wait until that many explicit LACs were sent."""
        async with asyncio.timeout(20):
            while sum(each[2:6] == _WRITE_LAC for each in self._tap.requests) < wanted:  # noqa: ASYNC110 - Java's timer
                await asyncio.sleep(0.05)

    def clear(self) -> None:
        """Let all clients end."""
        for peer in self._peers:
            peer.close()


#: Version 3, operation 6, in the header of a request.
_WRITE_LAC = bytes.fromhex("08031006")
Act = Callable[[Stage, int], Awaitable[None]]


async def _listen(new_peer: PeerFactory, zookeeper: ZooKeeperServer, wire: int) -> dict[bytes, bytes]:
    """Let Java clients do everything they can, each act with a bookie of its own; the different frames they send."""
    heard: dict[bytes, bytes] = {}
    for act, security in ACTS.items():
        for each in await _play(act, security, new_peer, zookeeper, wire):
            heard.setdefault(_fixed(each), each)
    return heard


async def _play(
    act: Act, security: BookieSecurity | None, new_peer: PeerFactory, zookeeper: ZooKeeperServer, wire: int
) -> list[bytes]:
    uri = zookeeper.metadata_uri(f"/tapped-{next(_ROOTS)}")
    name = f"tapped-{next(_ROOTS)}"
    store = await open_store(uri, rng=Random(1), initialise=True)
    inside = MemoryMetadataService.named(name).session(rng=Random(2))
    try:
        async with LocalCluster(inside, 1, server=ServerConfig(security=security)) as cluster:
            (bookie_id,) = cluster.bookie_ids
            async with Wiretap(BookieAddress("127.0.0.1", cluster.server(bookie_id).port)) as tap:
                await store.register_bookie(f"127.0.0.1:{tap.address.port}", tap.address)
                stage = Stage(tap, partial(new_peer, uri, wire, own=True))
                try:
                    await act(stage, wire)
                    return tap.requests
                finally:
                    await asyncio.to_thread(stage.clear)
    finally:
        await inside.aclose()
        MemoryMetadataService.forget(name)
        await store.aclose()


async def _created(writer: JavaPeer, *payloads: bytes, ledger_id: int = 1, **options: Any) -> None:
    await writer("create", ledger_id=ledger_id, ensemble=1, write_quorum=1, ack_quorum=1, **options)
    for entry, payload in enumerate(payloads):
        await writer("append_at", ledger_id, entry=entry, payload=payload)


async def _explicit_lac(reader: JavaPeer, wanted: int) -> None:
    async with asyncio.timeout(20):
        while (await reader("lac", 1, how="explicit"))["lac"] < wanted:  # noqa: ASYNC110 - on a timer of Java's
            await asyncio.sleep(0.05)


async def everything(stage: Stage, wire: int) -> None:
    writer, reader, other = [await stage.new(explicitLacInterval=_EXPLICIT_LAC_MS) for _ in range(3)]
    await _created(writer, b"hello")
    await reader("open", 1, recover=False)
    await _explicit_lac(reader, 0)  # each is sent on a timer of the writer's, and only if it is there when that fires
    await writer("append_at", 1, entry=1, payload=b"world!!")
    for how in ("read", "try", "explicit"):
        await reader("lac", 1, how=how)
    await reader.payloads(1)
    await reader.payloads(1, first=1, last=1, how="unconfirmed")
    if wire == 3:
        await reader("entries_on", 1, bookie=(await reader("info", 1))["fragments"]["0"][0])
    await _explicit_lac(reader, 1)
    await reader("bookie_info")
    await other("open", 1)
    with pytest.raises(JavaError):
        await writer("append_at", 1, entry=2, payload=b"too late")
    if wire == 2:
        await other("read", 1, how="batch", first=0, last=1)


async def long_poll(stage: Stage, wire: int) -> None:
    if wire == 3:
        await _created(await stage.new(), b"hello", b"world!!")
        reader = await stage.new()
        await reader("open", 1, recover=False)
        await reader("poll", 1, entry=1, timeout_ms=1000)


async def one_entry_recovered(stage: Stage, _wire: int) -> None:
    await _created(await stage.new(), b"hello")
    await (await stage.new())("open", 1)


async def deferred_sync(stage: Stage, wire: int) -> None:
    if wire == 3:
        writer = await stage.new()
        await _created(writer, b"hello", deferred_sync=True)
        await writer("force", 1)


async def every_digest_without_a_password(stage: Stage, _wire: int) -> None:
    await _every_digest(stage, await stage.new(explicitLacInterval=_EXPLICIT_LAC_MS), b"")


async def payloads_and_numbers(stage: Stage, _wire: int) -> None:
    writer = await stage.new()
    await _created(writer, b"")
    await _created(writer, bytes(400), bytes(400), bytes(197), b"\x00\x01\xff", ledger_id=12_345_678_901)


async def every_digest_with_a_password(stage: Stage, _wire: int) -> None:
    await _every_digest(stage, await stage.new(explicitLacInterval=_EXPLICIT_LAC_MS), b"secret")


async def _every_digest(stage: Stage, writer: JavaPeer, password: bytes) -> None:
    """The same ledger again and again: the bookie does not mind, and only the metadata are deleted."""
    for number, digest in enumerate(("CRC32C", "CRC32", "MAC", "DUMMY"), 1):
        await _created(writer, b"hello", digest=digest, password=password)
        await stage.hears_explicit_lacs(number)
        await writer("delete", 1)


async def with_a_plug_in(stage: Stage, _wire: int) -> None:
    await _created(await stage.new(**AUTH_OF_CLIENT), b"hello")


async def with_tls_where_there_is_none(stage: Stage, _wire: int) -> None:
    with pytest.raises(JavaError):
        await _created(await stage.new(**FACTORY, **TRUST), b"hello")


_EXPLICIT_LAC_MS = 50
#: What Java clients do, and what the bookie demands of them.
ACTS: dict[Act, BookieSecurity | None] = {
    everything: None,
    long_poll: None,
    one_entry_recovered: None,
    deferred_sync: None,
    every_digest_without_a_password: None,
    every_digest_with_a_password: None,
    payloads_and_numbers: None,
    with_a_plug_in: BookieSecurity(auth=SharedSecretBookie(SECRET.encode())),
    with_tls_where_there_is_none: None,
}
