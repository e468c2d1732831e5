"""Whatever happens to the bytes between a client and a bookie, no wrong data is returned and every call ends.

In virtual time, over simulated TCP, with the shipped transport and server; a run over real sockets shows that it is the same
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Final

import pytest

from bkclient.ledger import DigestType
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.memory import MemoryMetadataService
from simbookie.cluster import LocalCluster
from tests.end_to_end.hostile import simulated, workload
from tests.end_to_end.hostile.proxy import Fault, HostileProxy, PlannedFault
from tests.end_to_end.hostile.workload import StoreFactory
from tests.proxy import Direction

WIRES: Final = [pytest.param(3, id="v3"), pytest.param(2, id="v2")]
#: First position, and bytes between two positions, tried in the ordinary run. The sweep tries every fault at every byte.
STRIDES: Final = {
    Fault.CUT: (0, 17),
    Fault.FLIP: (1, 13),
    Fault.REPEAT: (0, 17),
    Fault.STALL: (0, 19),
    Fault.HALF_CLOSE: (0, 19),
}
#: The agreement on TLS is in the first bytes of a connection, the handshake in some 2,500 after it, then authentication.
SECURED_BRIEFLY: Final = (3, 20, 300, 1_500, 2_600)
#: Bytes that each direction has at least inside TLS; records of two runs differ in length by some bytes.
SECURED_BYTES: Final = 4_000


@pytest.mark.parametrize("wire", WIRES)
def test_the_workload_over_a_faithful_link(wire: int) -> None:
    link = simulated.run_workload(wire, None)

    assert link.forwarded[Direction.REQUESTS] > 400
    assert link.forwarded[Direction.ANSWERS] > 200
    assert simulated.run_workload(wire, None).forwarded == link.forwarded


@pytest.mark.parametrize("wire", WIRES)
def test_the_workload_inside_tls_over_a_faithful_link(wire: int) -> None:
    link = simulated.run_workload(wire, None, secured=True)

    assert link.forwarded[Direction.REQUESTS] > 4_000, "certificates went from the client to the bookie"
    assert link.forwarded[Direction.ANSWERS] > 4_000


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("direction", list(Direction), ids=lambda direction: direction.value)
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_fault_at_some_bytes_of_what_comes_before_requests(fault: Fault, direction: Direction, wire: int) -> None:
    """In the agreement on TLS, in its handshake, and in what the plug-ins say inside it."""
    assert run_at(SECURED_BRIEFLY, fault, direction, wire, secured=True) == len(SECURED_BRIEFLY)


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("direction", list(Direction), ids=lambda direction: direction.value)
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_fault_at_many_bytes_inside_tls(fault: Fault, direction: Direction, wire: int) -> None:
    positions = range(STRIDES[fault][0], SECURED_BYTES, 97)
    assert run_at(positions, fault, direction, wire, secured=True) == len(positions)


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("direction", list(Direction), ids=lambda direction: direction.value)
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_fault_at_many_bytes(fault: Fault, direction: Direction, wire: int) -> None:
    tried, struck = run_at_every(*STRIDES[fault], fault, direction, wire)

    assert struck == tried >= 10, "the fault happened wherever it was to"


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("direction", list(Direction), ids=lambda direction: direction.value)
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_fault_at_every_byte(fault: Fault, direction: Direction, wire: int) -> None:
    run_at_every(0, 1, fault, direction, wire)


@pytest.mark.parametrize("wire", WIRES)
def test_without_a_digest_the_workload_notices_wrong_data(wire: int) -> None:
    """The witness can see what it looks for: a ledger that asks for no digest is defenceless against flipped bits."""
    with pytest.raises(AssertionError, match=r"wrong payload|but what was appended"):
        run_at_every(0, 3, Fault.FLIP, Direction.ANSWERS, wire, DigestType.DUMMY)


def run_at_every(
    first: int,
    stride: int,
    fault: Fault,
    direction: Direction,
    wire: int,
    digest_type: DigestType = DigestType.CRC32C,
) -> tuple[int, int]:
    """How many positions were tried, and at how many the fault happened."""
    positions = range(first, simulated.run_workload(wire, None).forwarded[direction], stride)
    return len(positions), run_at(positions, fault, direction, wire, digest_type)


def run_at(
    positions: Iterable[int],
    fault: Fault,
    direction: Direction,
    wire: int,
    digest_type: DigestType = DigestType.CRC32C,
    *,
    secured: bool = False,
) -> int:
    """At how many of ``positions`` the fault happened."""
    rng = Random(f"{fault}{direction}{wire}")
    struck = 0
    for position in positions:
        planned = PlannedFault(fault, direction, position, rng.randrange(1, 64))
        try:
            struck += simulated.run_workload(wire, planned, digest_type=digest_type, secured=secured).has_struck
        except BaseException as error:
            error.add_note(f"with {planned}")
            raise
    return struck


# Over real sockets


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


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("fault", [None, *Fault], ids=lambda fault: fault.value if fault else "faithful")
def test_the_same_workload_over_real_sockets(fault: Fault | None, wire: int) -> None:
    async def run_workload() -> HostileProxy:
        async with cluster() as new_store:
            if fault is not None:
                return await workload.run_workload(new_store, wire, PlannedFault(fault, Direction.ANSWERS, 100, 5))
            # All of it is counted, so nothing may be given up on a busy machine, and no answer may be left when it ends.
            return await workload.run_workload(
                new_store, wire, None, timeout_s=20.0, honest_timeout_s=20.0, ack_quorum_size=3
            )

    length = simulated.run_workload(wire, None).forwarded
    proxy = asyncio.run(run_workload())
    if fault is None:
        assert proxy.forwarded == length, "byte for byte as many as in virtual time"
    else:
        assert proxy.has_struck
