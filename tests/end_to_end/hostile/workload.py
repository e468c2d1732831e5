"""One short life of a ledger in three acts, with a hostile proxy before one of its bookies, and what must hold in the end.

A writer appends entries and closes; a reader that meets the same proxy opens and reads; then an honest client reads. However
the proxy behaves, every call ends, within a bound; nobody is ever given an entry that was not appended; and unless bits were
flipped, what was acknowledged is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import Final

from bkclient import BookKeeper, ClientConfig, ConnectionSettings, ReadingSettings, TimeoutSettings
from bkclient.errors import BookKeeperError
from bkclient.ledger import DigestType, Ensemble
from bkclient.metadata.base import BookieAddress, MetadataStore
from bkclient.placement import LedgerShape, RandomPlacement
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from tests.end_to_end.hostile.proxy import Fault, HostileProxy, PlannedFault

__all__ = ["ENTRIES", "InOrder", "check", "read", "run_workload", "write"]

ENTRIES: Final = [b"", b"one", b"\x00" * 40, b"three" * 9, b"4"]
#: Far more than any workload takes; one that does not end within is one that hangs.
_BOUND_S: Final = 20.0

StoreFactory = Callable[[], MetadataStore]


class InOrder(RandomPlacement):
    """The first bookies, so that the one behind the proxy is always among them."""

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[str]) -> Ensemble | None:
        return self._writable[: shape.ensemble_size]


class _Cast:
    """Clients of one cluster; those of ``through`` find one bookie only through the proxy."""

    def __init__(self, new_store: StoreFactory, wire: int, timeout_s: float, honest_timeout_s: float) -> None:
        self._new_store = new_store
        self._honest_timeout_s = honest_timeout_s
        self._config = ClientConfig(
            connections=ConnectionSettings(protocol_version=wire),
            timeouts=TimeoutSettings(add_s=timeout_s, read_s=timeout_s),
            reading=ReadingSettings(speculative_first_s=0),
        )
        self.stack = AsyncExitStack()

    async def client(self, proxied: str | None = None, proxy: HostileProxy | None = None) -> BookKeeper:
        store = self._new_store()
        self.stack.push_async_callback(store.aclose)

        async def resolve(bookie_id: str) -> BookieAddress:
            if proxy is not None and bookie_id == proxied:
                return proxy.address
            return await store.bookie_address(bookie_id)

        config = (
            self._config
            if proxy is not None
            else self._config.with_changes(timeouts={"add_s": self._honest_timeout_s, "read_s": self._honest_timeout_s})
        )
        rng = Random(11)
        transport = TcpTransport(
            resolve,
            TcpTransportConfig(
                protocol_version=config.connections.protocol_version,
                add_timeout_s=config.timeouts.add_s,
                read_timeout_s=config.timeouts.read_s,
                backoff_initial_s=0.001,
                backoff_max_s=0.01,
            ),
            rng=rng,
        )
        return await self.stack.enter_async_context(
            BookKeeper(store, transport, config=config, rng=rng, placement=InOrder(rng))
        )


async def run_workload(
    new_store: StoreFactory,
    wire: int,
    planned: PlannedFault | None,
    *,
    timeout_s: float = 0.15,
    honest_timeout_s: float = 0.15,
    bound_s: float = _BOUND_S,
    digest_type: DigestType = DigestType.CRC32C,
    ack_quorum_size: int = 2,
) -> HostileProxy:
    """The whole workload; returns its proxy. The cluster has exactly the bookies of the ledger, plus one to replace.

    ``timeout_s`` is that of the clients behind the proxy; real bookies deserve more patience, of the honest client above all.
    With an ``ack_quorum_size`` of 3 the workload waits for each acknowledgement that comes through the proxy.
    """
    cast = _Cast(new_store, wire, timeout_s, honest_timeout_s)
    async with asyncio.timeout(bound_s), cast.stack:
        honest = await cast.client()
        proxied = (await honest.bookies()).writable[0]
        proxy = await cast.stack.enter_async_context(HostileProxy(await _address(new_store, proxied), planned))
        acknowledged, ledger_id = await write(
            await cast.client(proxied, proxy), digest_type, ack_quorum_size=ack_quorum_size
        )
        await read(await cast.client(proxied, proxy), ledger_id)
        reader = await honest.open_ledger(ledger_id, recover=True)
        check([entry.payload async for entry in reader], acknowledged, planned)
    return proxy


def check(found: list[bytes], acknowledged: int, planned: PlannedFault | None) -> None:
    """What an honest reader found must be what was appended, and all of it that was acknowledged unless bits were flipped."""
    assert found == ENTRIES[: len(found)], "nothing but what was appended is in the ledger"
    if planned is None or planned.fault is not Fault.FLIP:
        assert len(found) >= acknowledged, "what was acknowledged is there"


async def _address(new_store: StoreFactory, bookie_id: str) -> BookieAddress:
    store = new_store()
    try:
        return await store.bookie_address(bookie_id)
    finally:
        await store.aclose()


async def write(client: BookKeeper, digest_type: DigestType, *, ack_quorum_size: int = 2) -> tuple[int, int]:
    """Append all entries, or as many as can be; how many were acknowledged, and the ledger."""
    writer = await client.create_ledger(
        ensemble_size=3, write_quorum_size=3, ack_quorum_size=ack_quorum_size, digest_type=digest_type
    )
    acknowledged = 0
    with suppress(BookKeeperError):
        for payload in ENTRIES:
            assert await writer.append(payload) == acknowledged
            acknowledged += 1
    with suppress(BookKeeperError):
        await writer.close()
    return acknowledged, writer.ledger_id


async def read(client: BookKeeper, ledger_id: int) -> None:
    """Open and read every entry, or fail in a way that has a name."""
    with suppress(BookKeeperError):
        reader = await client.open_ledger(ledger_id, recover=True)
        for entry_id in range(reader.last_add_confirmed + 1):
            with suppress(BookKeeperError):
                entry = await reader.read(entry_id)
                assert entry.payload == ENTRIES[entry_id], "a wrong payload was returned"
