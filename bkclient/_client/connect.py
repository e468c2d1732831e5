"""Where a client meets the real world: sockets, the system's clock, true randomness.

Everything else in this package is handed its transport, its metadata store, its clock and its randomness, and cannot tell a
simulated world from this one. So this is the one module below the command lines that may ask what time it is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any

from bkclient._client.arguments import checked_config
from bkclient._client.client import BookKeeper
from bkclient._client.core import Features
from bkclient._client.home_loop import check_asyncio
from bkclient._client.plugin_guards import guarded_stats
from bkclient.backends import backend_of
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

__all__ = ["PendingClient", "connect"]


class PendingClient(AbstractAsyncContextManager[BookKeeper]):
    """A client that is not connected yet, from :func:`bkclient.connect`: enter it by ``async with``, or await it."""

    __module__ = "bkclient"

    def __init__(self, connecting: Callable[[], Coroutine[Any, Any, BookKeeper]]) -> None:
        self._connecting = connecting
        self._client: BookKeeper | None = None

    def __await__(self) -> Generator[Any, None, BookKeeper]:
        return self._connecting().__await__()

    async def __aenter__(self) -> BookKeeper:
        if self._client is not None:
            raise ArgumentError("a client can be entered once; make another one")
        self._client = await self._connecting()
        return self._client

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._client is not None, "entered before left"
        await self._client.__aexit__(exc_type, exc, traceback)


def connect(
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
) -> PendingClient:
    """A client, over TCP, for the bookies registered under ``metadata_uri``.

    ::

        async with bkclient.connect("zk://localhost:2181/ledgers") as bk:
            writer = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)

    Without a block, await it and call :meth:`BookKeeper.aclose` later::

        bk = await bkclient.connect("zk://localhost:2181/ledgers")
        ...
        await bk.aclose()

    URIs are ``zk://host:port[;host:port...]/root`` (also ``zk+hierarchical``, ``zk+longhierarchical``, ``zk+flat``) and
    ``mem://name`` for a store inside this process; :mod:`bkclient.backends` adds others. The default is that of the
    configuration, ``config.metadata.uri``.

    * ``placement``: a placement policy, in place of the one that the configuration names;
    * ``locations``: where bookies are, in place of the script that the configuration names (``docs/using/placement.md``);
    * ``auth``: authenticates to bookies (:mod:`bkclient.security.auth`); TLS is configured by ``config.tls``;
    * ``stats``: receives metrics; a :class:`~bkclient.observability.stats.BookieStats` also those of each bookie;
    * ``tracer``: receives operations as spans; ``observer``: receives the steps of recoveries;
    * ``features``: tells which features are on;
    * ``wall_clock``, in seconds since 1970: gives the creation time of new ledgers, if the configuration asks for it;
    * ``rng``: drives placement and back-off.

    Raises :class:`~bkclient.errors.ArgumentError` for a missing or unknown URI and for certificates that cannot be read, and
    :class:`~bkclient.errors.MetadataStoreError` when the metadata service cannot be reached.
    """

    async def connected() -> BookKeeper:
        check_asyncio()
        settings = checked_config(config)
        uri = metadata_uri if metadata_uri is not None else settings.metadata.uri
        if uri is None:
            raise ArgumentError("give connect() a metadata URI, or set metadata.uri in the configuration")
        backend = backend_of(uri)
        if backend is not None:
            made: BookKeeper = await backend(
                uri,
                config=settings,
                rng=rng,
                wall_clock=None if wall_clock is time.time else wall_clock,
                placement=placement,
                locations=locations,
                observer=observer,
                features=features,
                stats=stats,
                tracer=tracer,
                auth=auth,
            )
            return made
        security = _security(settings, auth)
        chance = rng or random.Random()  # noqa: S311 - placement and back-off need no secrecy
        counts = guarded_stats(stats)
        async with AsyncExitStack() as stack:
            stack.callback(log.CLIENT_CLOSED, uri=uri)
            store = await open_store(uri, rng=chance, session_timeout_s=settings.timeouts.metadata_session_s)
            stack.push_async_callback(store.aclose)
            transport = _transport(settings, store, chance, counts, security)
            stack.push_async_callback(transport.aclose)
            resources = AsyncExitStack()
            client = BookKeeper(
                store,
                transport,
                config=settings,
                rng=chance,
                wall_clock=wall_clock,
                placement=placement,
                locations=locations,
                observer=observer,
                features=features,
                stats=counts,
                tracer=tracer,
                resources=resources,
            )
            await client.__aenter__()
            log.CLIENT_CONNECTED(uri=uri)
            resources.push_async_exit(stack.pop_all())
            return client
        raise AssertionError("the block returns or raises")

    return PendingClient(connected)


connect.__module__ = "bkclient"


def _security(config: ClientConfig, auth: AuthProvider | None) -> Security | None:
    tls = client_context(config.tls)
    return None if tls is None and auth is None else Security(tls, auth, config.timeouts.start_tls_s)


def _transport(
    config: ClientConfig, store: MetadataStore, rng: random.Random, stats: object, security: Security | None
) -> BookieTransport:
    resolve: Callable[[str], Awaitable[BookieAddress]] = (
        store.bookie_address if config.connections.resolve_bookie_ids else _address_in
    )
    transport_config = TcpTransportConfig.of_client(config)
    if isinstance(stats, BookieStats):
        measured = TcpTransport(resolve, transport_config, rng=rng, stats=stats, security=security)
        return MeasuredTransport(measured, stats)
    return TcpTransport(resolve, transport_config, rng=rng, security=security)


async def _address_in(bookie_id: str) -> BookieAddress:
    """The address that a bookie id is, where ids are addresses."""
    return parse_bookie_address(bookie_id)
