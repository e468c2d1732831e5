"""What a bookie process does: open the metadata store, serve one bookie until told to stop.

The one place besides the command line that knows the real clock, real chance, and signals.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import random
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import bkclient
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.opening import open_store
from bkclient.metadata.uri import MemoryUri, parse_metadata_uri
from simbookie.bookie import Bookie
from simbookie.config import BookieConfig
from simbookie.garbage import GarbageCollector, GarbageConfig
from simbookie.heap import HeapTrimmer, find_malloc_trim
from simbookie.integrity import IntegrityConfig
from simbookie.measured import MeasuredBookie
from simbookie.observed import ObservedBookie, RequestObserver
from simbookie.observer import BookieObserver
from simbookie.server import BookieServer, ServerConfig
from simbookie.start_checks import StartChecks
from simbookie.storage.base import LedgerStorage, NoSpace, StorageError
from simbookie.storage.conf import StorageConf
from simbookie.storage.data_folder import DataPlaces, cookie_of, data_folder
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig
from simbookie.storage.status_file import BookieStatus, read_status, write_status
from simbookie.tcp.admission import DESCRIPTORS_KEPT
from simbookie.tcp.listener import bound_socket

__all__ = [
    "BookieOptions",
    "Watching",
    "raise_descriptor_limit",
    "run",
    "serve_bookie",
    "stop_signal",
    "uvloop_is_installed",
]

Result = TypeVar("Result")
OnReady = Callable[[BookieServer, int | None], None]


@dataclass(frozen=True, slots=True)
class BookieOptions:
    """Everything a bookie process is told; times in seconds. ``bookie_id`` defaults to ``host:port``."""

    metadata_uri: str
    host: str = "127.0.0.1"
    port: int = 0
    bookie_id: str | None = None
    advertised_host: str | None = None
    advertised_port: int | None = None
    session_timeout_s: float = 10.0
    garbage: GarbageConfig = field(default_factory=lambda: GarbageConfig(interval_s=60.0))
    exit_with_stdin: bool = False
    storage: MemoryStorageConfig = field(default_factory=MemoryStorageConfig)
    #: Where the bookie keeps its data; without, it is in memory, as ``storage`` says. With it, ``conf`` says how.
    data: DataPlaces | None = None
    conf: StorageConf = field(default_factory=StorageConf)
    #: Where operators' requests are served, if they are (:mod:`simbookie.admin`); port 0: the system chooses one.
    admin_port: int | None = None
    admin_host: str = "127.0.0.1"
    #: What the bookie was configured with, by BookKeeper's keys, to be shown to operators.
    properties: dict[str, str] = field(default_factory=dict)
    bookie: BookieConfig = field(default_factory=BookieConfig)
    integrity: IntegrityConfig = field(default_factory=IntegrityConfig)
    server: ServerConfig = field(default_factory=ServerConfig)


@dataclass(frozen=True, slots=True)
class Watching:
    """Who hears of what happens inside a bookie; ``before_serving`` is called once its storage is open, before it serves."""

    observer: BookieObserver
    requests: RequestObserver
    before_serving: Callable[[Bookie], object]


def uvloop_is_installed() -> bool:
    """Whether the faster event loop can be used."""
    return importlib.util.find_spec("uvloop") is not None


def run(main: Coroutine[Any, Any, Result], *, uvloop: bool) -> Result:
    """Run ``main`` to its end on a fresh event loop, on uvloop's if wanted."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    if uvloop:
        import uvloop as uvloop_module  # noqa: PLC0415  optional

        new_loop = uvloop_module.new_event_loop
    gc.freeze()  # what was imported stays, and a collection that looked at it would be a pause of 10 to 20 ms
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(main)
    finally:
        gc.unfreeze()


def stop_signal() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set from now on, instead of what they did."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def raise_descriptor_limit(connections: int) -> None:
    """Let this process open files for so many connections, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + DESCRIPTORS_KEPT
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve_bookie(options: BookieOptions, on_ready: OnReady, watching: Watching | None = None) -> None:
    """Serve until SIGINT or SIGTERM, then stop in order.

    ``on_ready`` is called once the bookie is registered, with the port that operators' requests are served on, if they are.
    With ``watching`` somebody hears of everything that happens inside; metrics are not served then.

    Raises ``OSError`` if the address cannot be used, :class:`~bkclient.errors.BookKeeperError` if the metadata service cannot,
    and :class:`~simbookie.storage.base.StorageError` if the data cannot be used, or no more.
    """
    stop = stop_signal()
    raise_descriptor_limit(options.server.connections_max)
    if options.exit_with_stdin:
        _stop_with_stdin(stop)
    host = options.host
    with bound_socket(host, options.port) as sock:
        port: int = sock.getsockname()[1]
        advertised_host = options.advertised_host or host
        bookie_id = options.bookie_id or f"{advertised_host}:{options.advertised_port or port}"
        failed: list[StorageError] = []
        with _storage(options, failed, stop) as storage:
            bookie = _new_bookie(bookie_id, storage, options, watching)
            if not bookie.config.read_only_allowed:
                bookie.watch_read_only(partial(_end_instead, bookie, failed, stop))
            metadata = await open_store(
                options.metadata_uri,
                rng=random.SystemRandom(),
                session_timeout_s=options.session_timeout_s,
                initialise=True,
            )
            server = BookieServer(
                bookie,
                host,
                port,
                registry=metadata,
                advertised_host=advertised_host,
                advertised_port=options.advertised_port,
                config=options.server,
                sock=sock,
            )
            await _serve(server, metadata, options, stop, on_ready, watching)


def _new_bookie(bookie_id: str, storage: LedgerStorage, options: BookieOptions, watching: Watching | None) -> Bookie:
    if watching is not None:
        observer, requests = watching.observer, watching.requests
        return ObservedBookie(bookie_id, storage, options.bookie, observer, requests=requests, wall_clock=time.time)
    bookie_class = Bookie if options.admin_port is None else MeasuredBookie
    return bookie_class(bookie_id, storage, options.bookie, wall_clock=time.time)


def _end_instead(bookie: Bookie, failed: list[StorageError], stop: asyncio.Event, read_only: bool) -> None:  # noqa: FBT001
    if read_only:
        failed.append(
            NoSpace(f"bookie {bookie.bookie_id} would have to be read-only, and may not be (readOnlyModeEnabled)")
        )
        stop.set()


async def _serve(
    server: BookieServer,
    metadata: MetadataStore,
    options: BookieOptions,
    stop: asyncio.Event,
    on_ready: OnReady,
    watching: Watching | None,
) -> None:
    bookie = server.bookie
    garbage = GarbageCollector(bookie, metadata, options.garbage)
    collector = asyncio.create_task(garbage.run())
    checks = StartChecks(
        bookie,
        metadata,
        cookie_of(options.data, bookie.bookie_id) if options.data is not None else None,
        options.integrity,
        partial(bkclient.connect, options.metadata_uri),
        forgets=isinstance(parse_metadata_uri(options.metadata_uri), MemoryUri),
    )
    try:
        await checks.verify()

        async def before_serving() -> None:
            await checks.before_serving()
            if watching is not None:
                watching.before_serving(bookie)

        server.before_serving = before_serving
        _remember_read_only(bookie)
        operated = _operated(server, metadata, garbage, options, checks.belong_together)
        async with operated as admin_port:
            if not await _started(server, stop):
                return
            async with aclosing(server), _trimmed_heap(server):
                checking = asyncio.create_task(checks.run())
                on_ready(server, admin_port)
                await stop.wait()
                checking.cancel()
                await asyncio.gather(checking, return_exceptions=True)
        checks.ended()
    finally:
        collector.cancel()
        await asyncio.gather(collector, return_exceptions=True)
        await metadata.aclose()


async def _started(server: BookieServer, stop: asyncio.Event) -> bool:
    """Start the server; false if ``stop`` was set before it served, as when a replay finds late that a journal is damaged."""
    starting, stopping = asyncio.create_task(server.start()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        return False
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)


def _remember_read_only(bookie: Bookie) -> None:
    """Be read-only by hand if that is remembered, and remember it from now on, where the bookie does so."""
    storage = bookie.storage
    if not bookie.config.read_only_remembered or not isinstance(storage, JournaledStorage):
        return
    known = read_status(storage.ledger_folders)
    if known is not None and known.read_only and known.by_hand:
        bookie.set_read_only(True)

    def remember(read_only: bool) -> None:  # noqa: FBT001  a callback
        status = BookieStatus(read_only, bookie.is_read_only_by_hand, int(time.time() * 1000))
        write_status(storage.ledger_folders, status)

    bookie.watch_read_only(remember)


@asynccontextmanager
async def _operated(
    server: BookieServer,
    metadata: MetadataStore,
    garbage: GarbageCollector,
    options: BookieOptions,
    expand: Callable[[], Awaitable[None]],
) -> AsyncIterator[int | None]:
    """Serve operators' requests, from before the bookie is there until after it has gone, on the port that this gives.

    ``expand`` checks new folders of the bookie against their cookies.
    """
    if options.admin_port is None:
        yield None
        return
    from simbookie.admin.endpoints import Administered  # noqa: PLC0415  optional
    from simbookie.admin.server import AdminServer  # noqa: PLC0415  optional

    subject = Administered(
        server.bookie,
        metadata,
        garbage,
        time.time,
        address=lambda: f"{server.address.host}:{server.port}",
        properties=dict(options.properties),
        expand=expand,
        connect=partial(bkclient.connect, options.metadata_uri),
        announced=server.announced,
    )
    admin = AdminServer(subject, options.admin_host, options.admin_port)
    await admin.start()
    subject.properties |= _properties(server, options, admin.port)
    try:
        yield admin.port
    finally:
        await admin.aclose()


def _properties(server: BookieServer, options: BookieOptions, admin_port: int) -> dict[str, str]:
    """What a bookie of BookKeeper so configured would have in its file."""
    found = {
        "bookieId": server.bookie.bookie_id,
        "bookiePort": str(server.port),
        "advertisedAddress": server.address.host,
        "metadataServiceUri": options.metadata_uri,
        "httpServerEnabled": "true",
        "httpServerHost": options.admin_host,
        "httpServerPort": str(admin_port),
    }
    if options.data is not None:
        cookie = cookie_of(options.data, server.bookie.bookie_id)
        found |= {
            "journalDirectories": ",".join(cookie.journal_dirs),
            "ledgerDirectories": ",".join(cookie.ledger_dirs),
        }
    return found


@contextmanager
def _storage(options: BookieOptions, failed: list[StorageError], stop: asyncio.Event) -> Iterator[LedgerStorage]:
    """What the bookie stores in; a journal that fails stops the bookie, and is raised in the end, as is what has ``failed``."""
    if options.data is None:
        # no disk: this process is the machine, and nothing of it is left when it dies
        yield MemoryStorage(options.storage)
        if failed:
            raise failed[0]
        return

    def fail(error: StorageError) -> None:
        failed.append(error)
        stop.set()

    with data_folder(
        options.data,
        options.conf,
        clock_ms=lambda: int(time.time() * 1000),
        rng=random.SystemRandom(),
        on_fatal=fail,
    ) as storage:
        yield storage
    if failed:
        raise failed[0]


@asynccontextmanager
async def _trimmed_heap(server: BookieServer) -> AsyncIterator[None]:
    malloc_trim = find_malloc_trim()
    if malloc_trim is None:
        yield
        return
    trimming = asyncio.create_task(HeapTrimmer(malloc_trim, lambda: server.turns.count, time.perf_counter).run())
    try:
        yield
    finally:
        trimming.cancel()
        await asyncio.gather(trimming, return_exceptions=True)


def _stop_with_stdin(stop: asyncio.Event) -> None:
    """Set ``stop`` when standard input ends, that is when the process that holds its other end is gone."""
    loop = asyncio.get_running_loop()
    stdin = sys.stdin.fileno()

    def read() -> None:
        data = b""
        with suppress(OSError):
            data = os.read(stdin, 4096)
        if not data:
            loop.remove_reader(stdin)
            stop.set()

    loop.add_reader(stdin, read)
