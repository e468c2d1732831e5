"""The bytes of the real Java client and of real bookies, which ``tests/bkclient/wire/golden`` keeps for machines without Maven.

With ``REWRITE_GOLDEN=1`` in the environment the files are written anew; otherwise what is heard has to be what they hold.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.uri import open_store
from simbookie.cluster import LocalCluster
from simbookie.zookeeper import ZooKeeperServer
from tests.bkclient.wire.golden_files import Golden, converse, golden_files, without_chance
from tests.interop.builds import Build
from tests.interop.conftest import PeerFactory
from tests.interop.java_peer import JavaError, JavaPeer
from tests.interop.real_bookie import RealCluster
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
    directory = tmp_path_factory.mktemp("newborn")
    cluster = RealCluster(build, directory, zookeeper.metadata_uri(f"/{directory.name}-{build.version}"))
    try:
        yield cluster.start(1)
    finally:
        cluster.close()


@pytest.mark.matrix("answers, byte for byte")
async def test_what_a_real_bookie_answers(newborn: RealCluster, build: Build, wire: int) -> None:
    exchanges = tuple(await converse("127.0.0.1", newborn.bookies[0].port, wire))

    golden = golden_of(build, wire)
    if REWRITES:
        replace(golden, exchanges=exchanges).save()
    else:
        heard = [(each.name, _fixed(each.answer, wire, is_request=False)) for each in exchanges]
        kept = [(each.name, _fixed(each.answer, wire, is_request=False)) for each in golden.exchanges]
        assert heard == kept


@pytest.mark.matrix("requests, byte for byte")
async def test_what_the_java_client_sends(
    new_peer: PeerFactory, zookeeper: ZooKeeperServer, build: Build, wire: int
) -> None:
    requests = await _listen(new_peer, zookeeper, wire)

    golden = golden_of(build, wire)
    if REWRITES:
        replace(golden, requests=tuple(requests)).save()
    else:
        heard = {_fixed(each, wire, is_request=True) for each in requests}
        assert [each for each in golden.requests if _fixed(each, wire, is_request=True) not in heard] == []


def _fixed(content: str, wire: int, *, is_request: bool) -> str:
    try:
        raw = bytes.fromhex(content)
    except ValueError:
        return content  # the connection was closed
    if is_request and wire == 2 and raw[0] != 2:
        wire = 3  # what version 2 lacks goes over a connection in version 3
    return without_chance(raw, wire, is_request=is_request).hex()


Act = Callable[[Callable[[], JavaPeer], int], Awaitable[None]]


async def _listen(new_peer: PeerFactory, zookeeper: ZooKeeperServer, wire: int) -> list[str]:
    """Let Java clients do everything they can, each act with a tapped bookie of its own; the different frames they send."""
    heard: dict[str, str] = {}
    for act in (everything, long_poll, one_entry_recovered, with_a_password, deferred_sync):
        for each in await _play(act, new_peer, zookeeper, wire):
            heard.setdefault(_fixed(each.hex(), wire, is_request=True), each.hex())
    return list(heard.values())


async def _play(act: Act, new_peer: PeerFactory, zookeeper: ZooKeeperServer, wire: int) -> list[bytes]:
    uri = zookeeper.metadata_uri(f"/tapped-{next(_ROOTS)}")
    name = f"tapped-{next(_ROOTS)}"
    store = await open_store(uri, rng=Random(1), initialise=True)
    inside = MemoryMetadataService.named(name).session(rng=Random(2))
    try:
        async with LocalCluster(inside, 1) as cluster:
            (bookie_id,) = cluster.bookie_ids
            async with Wiretap(BookieAddress("127.0.0.1", cluster.server(bookie_id).port)) as tap:
                await store.register_bookie(f"127.0.0.1:{tap.address.port}", tap.address)
                interval_ms = 50 if act is everything else 0
                await act(lambda: new_peer(uri, wire, own=True, explicitLacInterval=interval_ms), wire)
                return tap.requests
    finally:
        await inside.aclose()
        MemoryMetadataService.forget(name)
        await store.aclose()


async def _created(writer: JavaPeer, *payloads: bytes, **options: Any) -> None:
    await writer("create", ledger_id=1, ensemble=1, write_quorum=1, ack_quorum=1, **options)
    for entry, payload in enumerate(payloads):
        await writer("append_at", 1, entry=entry, payload=payload)


async def _explicit_lac(reader: JavaPeer, wanted: int) -> None:
    async with asyncio.timeout(20):
        while (await reader("lac", 1, how="explicit"))["lac"] < wanted:  # noqa: ASYNC110 - on a timer of Java's
            await asyncio.sleep(0.05)


async def everything(new: Callable[[], JavaPeer], wire: int) -> None:
    writer, reader, other = new(), new(), new()
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


async def long_poll(new: Callable[[], JavaPeer], wire: int) -> None:
    if wire == 3:
        await _created(new(), b"hello", b"world!!")
        reader = new()
        await reader("open", 1, recover=False)
        await reader("poll", 1, entry=1, timeout_ms=1000)


async def one_entry_recovered(new: Callable[[], JavaPeer], wire: int) -> None:
    await _created(new(), b"hello")
    await new()("open", 1)


async def with_a_password(new: Callable[[], JavaPeer], wire: int) -> None:
    await _created(new(), b"hello", digest="MAC", password=b"secret")


async def deferred_sync(new: Callable[[], JavaPeer], wire: int) -> None:
    if wire == 3:
        writer = new()
        await _created(writer, b"hello", deferred_sync=True)
        await writer("force", 1)
