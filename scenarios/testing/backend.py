"""``sim://``: what :func:`bkclient.connect` connects to in a simulated world, with every call of the client recorded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from bkclient import ClientConfig
from bkclient.backends import register_backend
from bkclient.errors import ArgumentError
from bkclient.ledger import BookieId, Versioned
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.protocol.recovery import EntryVerdict
from bkclient.transport.base import BookieTransport
from bkclient.transport.tcp import TcpTransport
from bkclient.transport.tcp_config import TcpTransportConfig
from scenarios.recording import Recorder, RecoveryRecorder
from scenarios.recording_store import AppliedStore, LearnedStore
from scenarios.recording_transport import RecordingTransport
from scenarios.testing.handles import ClientLog, ObservedClient
from simbookie.world.hosts import Host
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.process import current_process
from simbookie.world.transport import SimulatedTransport

if TYPE_CHECKING:
    from scenarios.stage import Stage

__all__ = ["EPOCH_S", "TEST_HOST", "URI", "SimulatedBackend"]

URI: Final = "sim://cluster/ledgers"

#: The host that the body of the test runs on.
TEST_HOST: Final = "test"

#: What wall clocks of a simulated world start from, in seconds since 1970.
EPOCH_S: Final = 1_700_000_000.0

_backends: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, SimulatedBackend]] = WeakKeyDictionary()


class _BothObservers:
    """The recorder of recoveries and the application's own observer."""

    def __init__(self, one: RecoveryObserver, other: RecoveryObserver) -> None:
        self._both = (one, other)

    def recovery_started(self, metadata: Versioned) -> None:
        for observer in self._both:
            observer.recovery_started(metadata)

    def entry_decided(
        self, ledger_id: int, entry_id: int, verdict: EntryVerdict, bookies: tuple[BookieId, ...]
    ) -> None:
        for observer in self._both:
            observer.entry_decided(ledger_id, entry_id, verdict, bookies)


class SimulatedBackend:
    """Makes the clients of one world. Each lives on the host whose code made it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._logs: dict[tuple[str, int], ClientLog] = {}
        _backends[stage.world.loop] = self

    def wall_clock(self) -> float:
        """The time of day in the world, in seconds since 1970."""
        return EPOCH_S + self._world.loop.time()

    def _host(self) -> Host:
        """Where the calling code runs."""
        process = current_process.get()
        assert process is not None, "everything that a world runs has a process"
        return self._world.hosts[process.host_name]

    def _log(self, recorder: Recorder, host: Host) -> ClientLog:
        key = (host.name, host.incarnation)
        if key not in self._logs:
            self._logs[key] = ClientLog(recorder, host.name, host.incarnation)
        return self._logs[key]

    def _transport(self, host: Host, store: LearnedStore, config: ClientConfig) -> BookieTransport:
        settings = TcpTransportConfig.of_client(config)
        if self._stage.conditions.tcp is None:
            return SimulatedTransport(self._world, host, settings)
        rng = self._world.rng(f"transport of {host.name}#{host.incarnation}")
        return TcpTransport(store.bookie_address, settings, rng=rng)

    async def connect(
        self,
        config: ClientConfig,
        rng: random.Random | None,
        wall_clock: Callable[[], float] | None,
        observer: RecoveryObserver | None,
        options: dict[str, Any],
    ) -> ObservedClient:
        """A client on the host whose code calls this."""
        world, recorder, host = self._world, self._stage.recorder, self._host()
        name = host.name

        def open_session() -> AppliedStore:
            return AppliedStore(world.metadata.open_session(), recorder, name)

        store = LearnedStore(SimulatedMetadataStore(world, host, open_session), recorder, name)
        recoveries: RecoveryObserver = RecoveryRecorder(recorder, name)
        if observer is not None:
            recoveries = _BothObservers(recoveries, observer)
        resources = AsyncExitStack()
        resources.push_async_callback(store.aclose)
        client = ObservedClient(
            store,
            RecordingTransport(self._transport(host, store, config), recorder, name, host.incarnation),
            config=config,
            rng=rng or world.rng(f"client {name}#{host.incarnation}"),
            wall_clock=wall_clock or self.wall_clock,
            observer=recoveries,
            resources=resources,
            **options,
        )
        client.log = self._log(recorder, host)
        await client.__aenter__()
        return client


async def _connect(
    uri: str,
    *,
    config: ClientConfig,
    rng: random.Random | None,
    wall_clock: Callable[[], float] | None,
    observer: RecoveryObserver | None,
    auth: object,
    **options: Any,
) -> ObservedClient:
    backend = _backends.get(asyncio.get_running_loop())
    if backend is None:
        raise ArgumentError(f"{uri} leads into a simulated world, and this code does not run in one")
    if auth is not None or config.tls.enabled:
        raise ArgumentError("a simulated world has neither TLS nor authentication; configure the client without them")
    return await backend.connect(config, rng, wall_clock, observer, options)


register_backend("sim", _connect)
