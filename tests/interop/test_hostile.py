"""A proxy that turns against both sides, before a real bookie: no wrong data is returned and every call ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest

from bkclient.metadata.base import MetadataStore
from bkclient.metadata.opening import open_store
from tests.end_to_end.hostile.proxy import Fault, PlannedFault
from tests.end_to_end.hostile.workload import StoreFactory, run_workload
from tests.interop.real_bookie import RealCluster
from tests.proxy import Direction

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

#: Positions tried in each direction, the first byte among them; the rest of a play is cut into as many parts.
POSITIONS = {Fault.CUT: 4, Fault.STALL: 2, Fault.HALF_CLOSE: 2, Fault.REPEAT: 4, Fault.FLIP: 6}
TIMEOUT_S = 1.0
BOUND_S = 60.0


class _Kept:
    """A store that several clients use and that stays open when one of them has enough of it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def aclose(self) -> None:
        """Nothing; its opener closes it."""


@asynccontextmanager
async def stores_of(cluster: RealCluster) -> AsyncIterator[StoreFactory]:
    store = await open_store(cluster.metadata_uri, rng=Random(1))
    try:
        yield lambda: cast("MetadataStore", _Kept(store))
    finally:
        await store.aclose()


@pytest.mark.matrix("every fault, both directions, at a sample of bytes")
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
async def test_a_fault_before_a_real_bookie(real: RealCluster, fault: Fault, wire: int) -> None:
    rng = Random(f"{fault}{wire}")
    async with stores_of(real) as new_store:
        # Waits for every acknowledgement: of a bookie that is slower than the other two there would be less to cut into parts.
        faithful = await run_workload(
            new_store, wire, None, timeout_s=20.0, honest_timeout_s=20.0, bound_s=BOUND_S, ack_quorum_size=3
        )
        struck = 0
        for direction in Direction:
            length = faithful.forwarded[direction]
            assert length > 100, "acknowledgements at least; reads may all be answered by others"
            part = length // POSITIONS[fault]
            for position in [0, *(k * part + rng.randrange(part) for k in range(POSITIONS[fault]))]:
                planned = PlannedFault(fault, direction, position, rng.randrange(1, 64))
                proxy = await run_workload(
                    new_store, wire, planned, timeout_s=TIMEOUT_S, honest_timeout_s=20.0, bound_s=BOUND_S
                )
                struck += proxy.has_struck
    assert struck >= 3, "the fault happened, at several places"
