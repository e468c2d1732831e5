"""``sim://``: what :func:`bkclient.connect` connects to in a simulated world, with every call of the client recorded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from bkclient import ClientConfig
from bkclient.backends import register_backend
from bkclient.errors import ArgumentError
from bkclient.observability.recovery_observer import RecoveryObserver
from scenarios.recording.client import RecordedClient
from scenarios.recording.recorders import ClientLog
from simbookie.world.hosts import Host
from simbookie.world.process import current_process

if TYPE_CHECKING:
    from scenarios.stage import Stage

__all__ = ["TEST_HOST", "URI", "SimulatedBackend"]

URI: Final = "sim://cluster/ledgers"

#: The host that the body of the test runs on.
TEST_HOST: Final = "test"

_backends: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, SimulatedBackend]] = WeakKeyDictionary()


class SimulatedBackend:
    """Makes the clients of one world. Each lives on the host whose code made it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        #: By host, the life of its process, and where that records.
        self._logs: dict[str, tuple[int, ClientLog]] = {}
        _backends[stage.world.loop] = self

    def wall_clock(self) -> float:
        """The time of day on the host whose code calls this, in seconds since 1970; outside of hosts, the right one."""
        process = current_process.get()
        return self._world.wall_clock("" if process is None else process.host_name)()

    def _host(self) -> Host:
        """Where the calling code runs."""
        process = current_process.get()
        assert process is not None, "everything that a world runs has a process"
        return self._world.hosts[process.host_name]

    def _log(self, host: Host) -> ClientLog:
        incarnation, log = self._logs.get(host.name, (-1, None))
        if log is None or incarnation != host.incarnation:
            log = ClientLog(self._stage.recorder, host.name, host.incarnation, log)
            self._logs[host.name] = host.incarnation, log
        return log

    async def connect(
        self,
        config: ClientConfig,
        rng: random.Random | None,
        wall_clock: Callable[[], float] | None,
        observer: RecoveryObserver | None,
        options: dict[str, Any],
    ) -> RecordedClient:
        """A client on the host whose code calls this."""
        host = self._host()
        client = self._stage.new_client(
            host,
            self._log(host),
            config,
            rng=rng or self._world.rng(f"client {host.name}#{host.incarnation}"),
            wall_clock=wall_clock or self.wall_clock,
            observer=observer,
            **options,
        )
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
) -> RecordedClient:
    backend = _backends.get(asyncio.get_running_loop())
    if backend is None:
        raise ArgumentError(f"{uri} leads into a simulated world, and this code does not run in one")
    if auth is not None or config.tls.enabled:
        raise ArgumentError("a simulated world has neither TLS nor authentication; configure the client without them")
    return await backend.connect(config, rng, wall_clock, observer, options)


register_backend("sim", _connect)
