"""Where a client meets the real world: sockets, the system's clock, chance that nobody chose.

Everything else in this package is handed its transport, its metadata store, its clock and its randomness, and cannot tell a
simulated world from this one. So this is the one module below the command lines that may ask what time it is.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from bkclient.client import BookKeeper
from bkclient.config import ClientConfig
from bkclient.metadata.uri import open_store
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig

__all__ = ["connect"]


@asynccontextmanager
async def connect(
    metadata_uri: str,
    *,
    config: ClientConfig | None = None,
    rng: random.Random | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncIterator[BookKeeper]:
    """A client, over TCP, for the bookies registered under ``metadata_uri``.

    ::

        async with bkclient.connect("zk://localhost:2181/ledgers") as bk:
            writer = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)

    URIs: ``zk://host:port[;host:port...]/root`` (also ``zk+hierarchical``, ``zk+longhierarchical``, ``zk+flat``) and
    ``mem://name`` for a store inside this process. ``wall_clock``, seconds since 1970, stamps new ledgers if the configuration
    asks for it. Raises :class:`~bkclient.errors.ArgumentError` for other URIs and
    :class:`~bkclient.errors.MetadataStoreError` when the service cannot be reached.
    """
    config = config or ClientConfig()
    rng = rng or random.Random()  # noqa: S311 - placement and back-off need no secrecy
    async with AsyncExitStack() as stack:
        store = await open_store(metadata_uri, rng=rng, session_timeout_s=config.metadata_timeout_s)
        stack.push_async_callback(store.aclose)
        transport = TcpTransport(store.bookie_address, _transport_config(config), rng=rng)
        stack.push_async_callback(transport.aclose)
        client = BookKeeper(store, transport, config=config, rng=rng, wall_clock=wall_clock)
        yield await stack.enter_async_context(client)


def _transport_config(config: ClientConfig) -> TcpTransportConfig:
    limits = TcpTransportConfig()
    return TcpTransportConfig(
        protocol_version=config.wire_protocol_version,
        add_timeout_s=config.add_timeout_s,
        read_timeout_s=config.read_timeout_s,
        connect_timeout_s=config.connect_timeout_s,
        max_frame_size_bytes=config.max_frame_size_bytes,
        write_buffer_low_water_bytes=config.write_buffer_low_water_bytes,
        write_buffer_high_water_bytes=config.write_buffer_high_water_bytes,
        # What a connection refuses counts as a failed bookie, so the windows must be full first.
        max_outstanding_requests=max(
            limits.max_outstanding_requests, 10 * config.max_in_flight_entries, 2 * config.max_client_in_flight_entries
        ),
        max_outstanding_bytes=max(
            limits.max_outstanding_bytes, 2 * config.max_in_flight_bytes, 2 * config.max_client_in_flight_bytes
        ),
    )
