"""Where a client meets the real world: sockets, the system's clock, chance that nobody chose.

Everything else in this package is handed its transport, its metadata store, its clock and its randomness, and cannot tell a
simulated world from this one. So this is the one module below the command lines that may ask what time it is.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from bkclient._client.arguments import checked_config
from bkclient._client.client import BookKeeper
from bkclient._client.core import Features
from bkclient._client.plugin_guards import guarded_stats
from bkclient.config import ClientConfig
from bkclient.errors import ArgumentError
from bkclient.metadata.base import BookieAddress, MetadataStore
from bkclient.metadata.opening import open_store
from bkclient.metadata.records import parse_bookie_address
from bkclient.observability import log
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.observability.stats import BookieStats, ClientStats
from bkclient.observability.tracer import Tracer
from bkclient.placement import NetworkLocations, PlacementPolicy
from bkclient.security.auth import AuthProvider
from bkclient.security.tls import client_context
from bkclient.transport.base import BookieTransport
from bkclient.transport.handshake import Security
from bkclient.transport.measured import MeasuredTransport
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig

__all__ = ["connect"]


@asynccontextmanager
async def connect(
    metadata_uri: str | None = None,
    *,
    config: ClientConfig | None = None,
    rng: random.Random | None = None,
    wall_clock: Callable[[], float] = time.time,
    placement: PlacementPolicy | None = None,
    locations: NetworkLocations | None = None,
    observer: RecoveryObserver | None = None,
    features: Features | None = None,
    stats: ClientStats | None = None,
    tracer: Tracer | None = None,
    auth: AuthProvider | None = None,
) -> AsyncIterator[BookKeeper]:
    """A client, over TCP, for the bookies registered under ``metadata_uri``.

    ::

        async with bkclient.connect("zk://localhost:2181/ledgers") as bk:
            writer = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)

    URIs: ``zk://host:port[;host:port...]/root`` (also ``zk+hierarchical``, ``zk+longhierarchical``, ``zk+flat``) and
    ``mem://name`` for a store inside this process; without one, that of the configuration
    (``ClientConfig.from_file("bookkeeper.conf")``). ``wall_clock``, seconds since 1970, stamps new ledgers if the configuration
    asks for it.

    ``placement`` chooses bookies in place of the policy of the configuration, ``locations`` tells that one where bookies are (in
    place of the script of the configuration, see ``docs/placement.md``), ``features`` tells which features are on,
    ``observer`` hears of recoveries and ``stats`` of everything that can be counted; if it is a
    :class:`~bkclient.observability.stats.BookieStats` too, of requests and connections, bookie by bookie; ``tracer`` shows
    operations as spans. ``auth`` proves to bookies who connects (:mod:`bkclient.security.auth`); the configuration switches TLS
    on (``docs/security.md``).

    Raises :class:`~bkclient.errors.ArgumentError` for other URIs, without any, and for certificates that cannot be read, and
    :class:`~bkclient.errors.MetadataStoreError` when the service cannot be reached.
    """
    config = checked_config(config)
    stats = guarded_stats(stats)
    uri = metadata_uri if metadata_uri is not None else config.metadata_uri
    if uri is None:
        raise ArgumentError("give connect() a metadata URI, or set metadata_uri in the configuration")
    security = _security(config, auth)
    rng = rng or random.Random()  # noqa: S311 - placement and back-off need no secrecy
    async with AsyncExitStack() as stack:
        store = await open_store(uri, rng=rng, session_timeout_s=config.metadata_timeout_s)
        stack.push_async_callback(store.aclose)
        transport = _transport(config, store, rng, stats, security)
        stack.push_async_callback(transport.aclose)
        client = BookKeeper(
            store,
            transport,
            config=config,
            rng=rng,
            wall_clock=wall_clock,
            placement=placement,
            locations=locations,
            observer=observer,
            features=features,
            stats=stats,
            tracer=tracer,
        )
        entered = await stack.enter_async_context(client)
        log.CLIENT_CONNECTED(uri=uri)
        stack.callback(log.CLIENT_CLOSED, uri=uri)
        yield entered


def _security(config: ClientConfig, auth: AuthProvider | None) -> Security | None:
    tls = client_context(config)
    return None if tls is None and auth is None else Security(tls, auth, config.start_tls_timeout_s)


def _transport(
    config: ClientConfig, store: MetadataStore, rng: random.Random, stats: object, security: Security | None
) -> BookieTransport:
    resolve: Callable[[str], Awaitable[BookieAddress]] = (
        store.bookie_address if config.resolve_bookie_ids else _address_in
    )
    transport_config = TcpTransportConfig.of_client(config)
    if isinstance(stats, BookieStats):
        measured = TcpTransport(resolve, transport_config, rng=rng, stats=stats, security=security)
        return MeasuredTransport(measured, stats)
    return TcpTransport(resolve, transport_config, rng=rng, security=security)


async def _address_in(bookie_id: str) -> BookieAddress:
    """The address that a bookie id is, where ids are addresses."""
    return parse_bookie_address(bookie_id)
