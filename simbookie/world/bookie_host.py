"""A bookie on a host of the simulated world.

The same :class:`simbookie.bookie.Bookie` that a TCP server serves. Its host gives it a process, a listener on the network and a
registration in the metadata service, and takes them away again: a crash loses what the storage had not made safe and leaves the
registration behind until its session times out; a restart replays the storage and registers anew once the old session has ended.

It is served either as objects, or over streams by :class:`simbookie.server.BookieServer`, the server that serves real clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from bkclient.errors import BookKeeperError, ClientClosed
from bkclient.metadata.base import BookieAddress
from bkclient.wire.messages import Response
from simbookie.bookie import Bookie, BookieState
from simbookie.config import BookieConfig
from simbookie.garbage import GarbageCollector, GarbageConfig
from simbookie.observed import ObservedBookie, RequestObserver
from simbookie.observer import BookieObserver
from simbookie.server import BookieServer, ServerConfig
from simbookie.start_checks import StartChecks
from simbookie.storage.base import CrashMode, LedgerStorage, StorageError
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.memory import MemoryStorage, RecordLog
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.connection_end import ConnectionEnd
from simbookie.world.errors import WorldError
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import OpenSession, SimulatedMetadataStore

if TYPE_CHECKING:
    import socket

__all__ = ["BookieHost"]

#: Where bookies listen that are served over streams.
_PORT = 3181
_BACKLOG = 1_024
#: After what time the checks of a start are made again when the metadata service fails.
_CHECK_AGAIN_S = 0.5


class BookieHost(Host):
    """A host with a bookie of the same name, started with the world and again by :meth:`restart`.

    ``storage`` outlives crashes and is the bookie's for ever; without one, entries are kept in memory over a disk of their own.
    ``open_session`` is what :class:`~simbookie.world.metadata.SimulatedMetadataStore` takes. With ``server`` the bookie is served
    over streams, with these limits; otherwise its requests are objects (:class:`~simbookie.world.transport.SimulatedTransport`).
    With ``garbage`` it collects its garbage; ``requests`` hears of every request and answer. ``start_checks`` makes what sees to
    it that the bookie and its data belong together, in each life. A bookie that is refused, or whose storage fails before it
    serves, does not start, and its process ends.
    """

    def __init__(
        self,
        world: World,
        name: str,
        *,
        storage: LedgerStorage | None = None,
        config: BookieConfig | None = None,
        observer: BookieObserver | None = None,
        open_session: OpenSession | None = None,
        server: ServerConfig | None = None,
        garbage: GarbageConfig | None = None,
        requests: RequestObserver | None = None,
        start_checks: Callable[[Bookie, SimulatedMetadataStore], StartChecks] | None = None,
    ) -> None:
        super().__init__(world, name)
        self._start_checks = start_checks
        #: Why it did not start when it was to start last, if it did not.
        self.refusal = ""
        if storage is None:
            storage = MemoryStorage(disk=RecordLog())
        self.bookie = (
            Bookie(name, storage, config, observer, wall_clock=self.wall_clock)
            if requests is None
            else ObservedBookie(name, storage, config, observer, wall_clock=self.wall_clock, requests=requests)
        )
        self._observer = observer
        self._checks: StartChecks | None = None
        self.store: SimulatedMetadataStore | None = None
        #: What serves it over streams, if anything does, in its present life.
        self.server: BookieServer | None = None
        self._server_config = server
        self._garbage = garbage
        #: What collects its garbage, if anything does, in its present life.
        self.collector: GarbageCollector | None = None
        #: What is waited for when the bookie has started, before it takes a request, in each of its lives.
        self.before_serving: Callable[[BookieHost], Awaitable[None]] | None = None
        self._open_session = open_session
        self._registered = asyncio.Event()
        self._registration_changed = asyncio.Event()
        self.bookie.watch_read_only(lambda _: self._registration_changed.set())
        self._boot()

    @property
    def storage(self) -> LedgerStorage:
        """Where the bookie keeps its entries."""
        return self.bookie.storage

    async def registered(self) -> None:
        """Wait until the bookie serves and the metadata service knows it."""
        await self._registered.wait()

    def crash(self, mode: CrashMode = CrashMode.PROCESS) -> None:
        """Kill the bookie; its storage keeps what survives this kind of crash. Idempotent."""
        if not self.is_alive:
            return
        super().crash(mode)
        self.store = self.server = self.collector = self._checks = None
        self._registered.clear()
        if self.bookie.state not in (BookieState.NEW, BookieState.STOPPED):
            self.bookie.crash(mode)
        elif isinstance(self.storage, JournaledStorage):
            self.storage.crash(mode)  # what was written at the start, and not synced

    def restart(self) -> None:
        """Start the bookie again after a crash, with what its storage has kept."""
        super().restart()
        self._boot()

    async def stop(self) -> None:
        """Shut the bookie down in order: everything is saved and answered, the registration withdrawn, the process ends."""
        if self.bookie.state is not BookieState.RUNNING or self.store is None:
            raise WorldError(f"{self!r} is not running")
        await self.world.join(self.spawn(self._stop, self.store))
        self.crash()

    async def _stop(self, store: SimulatedMetadataStore) -> None:
        if self.server is not None:
            await self.server.aclose()
        else:
            stopped = asyncio.Event()
            self.bookie.shutdown(stopped.set)
            await stopped.wait()
        await store.aclose()

    def _boot(self) -> None:
        self._starts_before = self.bookie.incarnation
        self._registration_changed = asyncio.Event()
        self.world.loop.call_soon(self._start, context=self.process.context())

    def _start(self) -> None:
        self.refusal = ""
        if self._start_checks is None:
            self._serve()
            return
        self.world.loop.create_task(
            self._check(self._start_checks), name=f"checks of {self.name}", context=self.process.context()
        )

    async def _check(self, make: Callable[[Bookie, SimulatedMetadataStore], StartChecks]) -> None:
        """Start the bookie if its data is its own; ask again while the metadata service fails."""
        self.store = SimulatedMetadataStore(self.world, self, self._open_session)
        checks = make(self.bookie, self.store)
        while True:
            try:
                await checks.verify()
            except StorageError as error:
                self._refuse(error)
                return
            except BookKeeperError:
                await asyncio.sleep(_CHECK_AGAIN_S)
            else:
                break
        self._checks = checks
        self._serve()

    def _refuse(self, error: StorageError) -> None:
        """End the process of a bookie that cannot start."""
        self.refusal = str(error)
        if self.bookie.incarnation == self._starts_before and self._observer is not None:
            self._observer.crashed(True, f"it does not start: {error}")  # noqa: FBT003
        self.crash()

    async def _before_serving(self) -> None:
        """What has to be done when the bookie has started, before it takes a request."""
        while self._checks is not None:
            try:
                await self._checks.before_serving()
                break
            except BookKeeperError:
                await asyncio.sleep(_CHECK_AGAIN_S)
        if self.before_serving is not None:
            await self.before_serving(self)

    def _serve(self) -> None:
        if self._server_config is None:
            try:
                self.bookie.start(self._serve_objects)
            except StorageError as error:
                self._refuse(error)
        else:
            self.world.loop.create_task(
                self._serve_streams(self._server_config),
                name=f"server of {self.name}",
                context=self.process.context(),
            )

    def _serve_objects(self) -> None:
        if self.before_serving is None and self._checks is None:
            self._take_objects()
        else:
            self.world.loop.create_task(
                self._serve_objects_later(), name=f"start of {self.name}", context=self.process.context()
            )

    async def _serve_objects_later(self) -> None:
        try:
            await self._before_serving()
        except StorageError as error:
            self._refuse(error)
        else:
            self._take_objects()

    def _take_objects(self) -> None:
        self.world.network.listen(self.process, self._accept)
        self._register()

    async def _serve_streams(self, config: ServerConfig) -> None:
        world = self.world

        def bind(_host: str, port: int) -> socket.socket:
            return cast("socket.socket", world.tcp.listen(self.process, port, _BACKLOG))  # has what servers ask of one

        self.server = BookieServer(
            self.bookie,
            self.name,
            _PORT,
            config=config,
            bind=bind,
            clock=world.loop.time,
        )
        if self.before_serving is not None or self._checks is not None:
            self.server.before_serving = self._before_serving
        try:
            await self.server.start()
        except StorageError as error:
            self._refuse(error)
        else:
            self._register()

    def _register(self) -> None:
        world, process = self.world, self.process
        if self.store is None:
            self.store = SimulatedMetadataStore(world, self, self._open_session)
        world.loop.create_task(
            self._keep_registered(self.store), name=f"registration of {self.name}", context=process.context()
        )
        if self._garbage is not None:
            self.collector = GarbageCollector(self.bookie, self.store, self._garbage)
            world.loop.create_task(
                self.collector.run(), name=f"garbage collector of {self.name}", context=process.context()
            )

    async def _keep_registered(self, store: SimulatedMetadataStore) -> None:
        address = BookieAddress(self.name, _PORT)
        while True:
            self._registration_changed.clear()
            try:
                await store.register_bookie(self.name, address, read_only=self.bookie.read_only)
            except ClientClosed:
                return
            except BookKeeperError:
                continue  # it took its time to fail
            self._registered.set()
            await self._registration_changed.wait()

    def _accept(self, end: ConnectionEnd) -> None:
        bookie, source = self.bookie, end.peer_name

        def execute(message: RequestMessage) -> None:
            request, call_id = message.request, message.call_id

            def respond(response: Response) -> None:
                end.send(ResponseMessage(call_id, request, response))

            bookie.submit(request, respond, source=source)

        end.on_message = execute
