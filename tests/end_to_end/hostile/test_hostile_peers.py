"""Whatever happens to the bytes between a client and a bookie, no wrong data is returned and every call ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from bkclient.ledger import DigestType
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.memory import MemoryMetadataService
from simbookie.cluster import LocalCluster
from tests.end_to_end.hostile.drama import StoreFactory, play
from tests.end_to_end.hostile.proxy import Fault, Mischief
from tests.proxy import Direction

WIRES = [pytest.param(3, id="v3"), pytest.param(2, id="v2")]
#: Bytes between two positions tried in the ordinary run; coprime to every size in the protocol. The sweep tries every byte.
STRIDE = {Fault.CUT: 23, Fault.STALL: 97, Fault.HALF_CLOSE: 97, Fault.REPEAT: 41, Fault.FLIP: 19}


@asynccontextmanager
async def cluster(bookies: int = 4) -> AsyncIterator[StoreFactory]:
    name = "hostile"
    sessions = 0

    def new_store() -> MetadataStore:
        nonlocal sessions
        sessions += 1
        return MemoryMetadataService.named(name).session(rng=Random(sessions))

    store = new_store()
    try:
        async with LocalCluster(store, bookies):
            yield new_store
    finally:
        await store.aclose()
        MemoryMetadataService.forget(name)


async def length_of_the_play(new_store: StoreFactory, wire: int, direction: Direction) -> int:
    proxy = await play(new_store, wire, None)
    return proxy.forwarded[direction]


@pytest.mark.parametrize("wire", WIRES)
async def test_the_play_through_a_faithful_proxy(wire: int) -> None:
    async with cluster() as new_store:
        proxy = await play(new_store, wire, None)

    assert proxy.forwarded[Direction.REQUESTS] > 400
    assert proxy.forwarded[Direction.ANSWERS] > 200


@pytest.mark.timeout(300)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("direction", list(Direction), ids=lambda direction: direction.value)
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
async def test_mischief_at_many_bytes(fault: Fault, direction: Direction, wire: int) -> None:
    struck = await play_at_every(STRIDE[fault], fault, direction, wire)

    assert struck >= 3, "the fault happened, at several places"


@pytest.mark.parametrize("wire", WIRES)
async def test_without_a_digest_the_play_notices_wrong_data(wire: int) -> None:
    """The witness can see what it looks for: a ledger that asks for no digest is defenceless against flipped bits."""
    with pytest.raises(AssertionError, match=r"wrong payload|but what was appended"):
        await play_at_every(3, Fault.FLIP, Direction.ANSWERS, wire, DigestType.DUMMY)


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("direction", list(Direction), ids=lambda direction: direction.value)
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
async def test_mischief_at_every_byte(fault: Fault, direction: Direction, wire: int) -> None:
    await play_at_every(1, fault, direction, wire)


async def play_at_every(
    stride: int, fault: Fault, direction: Direction, wire: int, digest_type: DigestType = DigestType.CRC32C
) -> int:
    rng = Random(f"{fault}{direction}{wire}")
    struck = 0
    async with cluster() as new_store:
        for position in range(0, await length_of_the_play(new_store, wire, direction), stride):
            mischief = Mischief(fault, direction, position, rng.randrange(1, 64))
            try:
                struck += (await play(new_store, wire, mischief, digest_type=digest_type)).has_struck
            except BaseException as error:
                error.add_note(f"with {mischief}")
                raise
    return struck
