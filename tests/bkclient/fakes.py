"""A cluster of fake bookies for the client's shells: one event loop, no sockets, no clocks but the loop's.

Bookies answer at the next turn of the loop. A test may make one hold its answers, or answer with a code; and make the
metadata store wait or fail. Everything a client sent is on record.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, ParamSpec

from bkclient._client.client import BookKeeper
from bkclient._client.core import Features
from bkclient._client.writing.advanced import AdvancedLedgerWriter
from bkclient._client.writing.writer import LedgerWriter
from bkclient.config import ClientConfig
from bkclient.errors import BookKeeperError, Code
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.observability.stats import ClientStats
from bkclient.placement import PlacementPolicy
from bkclient.protocol.batch_read import BATCH_ENTRY_OVERHEAD, BATCH_OVERHEAD
from bkclient.transport.base import ReplyHandler
from bkclient.wire.availability import encode_availability
from bkclient.wire.messages import (
    LAST_ENTRY,
    AddRequest,
    BatchReadRequest,
    BatchReadResponse,
    EntryListRequest,
    EntryListResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    WriteLacRequest,
    WriteLacResponse,
)
from simbookie.world.loop import VirtualTimeLoop

Answer = tuple[int, Response | None]

_SESSIONS = itertools.count(1)

P = ParamSpec("P")


@dataclass(eq=False)
class FakeBookie:
    """Stores entries in a dict. ``code`` overrules every answer, ``add_code`` those to adds; ``holds`` keeps requests."""

    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    code: int | None = None
    add_code: int | None = None
    holds: bool = False
    #: Told by the answers to ordinary reads, as bookies do over version 3.
    max_lac: int | None = None
    explicit_lac: bytes | None = None
    #: Bookies that do not, being older, lose the connection over a batch read.
    knows_batches: bool = True
    #: Entries acknowledged before they were durable, for each ledger since it was last forced.
    unforced: dict[int, int] = field(default_factory=dict)

    def answer(self, request: Request) -> Answer:
        code = self.add_code if isinstance(request, AddRequest) and self.code is None else self.code
        if code is not None:
            return code, None
        if isinstance(request, AddRequest):
            if request.ledger_id in self.fenced and not request.recovery:
                return Code.LEDGER_FENCED, None
            self.entries[request.ledger_id, request.entry_id] = request.body
            if request.write_flags:
                self.unforced[request.ledger_id] = self.unforced.get(request.ledger_id, 0) + 1
            return Code.OK, None
        if isinstance(request, ReadLacRequest):
            return self._answer_lac(request)
        if isinstance(request, WriteLacRequest):
            self.explicit_lac = request.body
            return Code.OK, WriteLacResponse(Status.OK, request.ledger_id)
        if isinstance(request, ForceLedgerRequest):
            self.unforced.pop(request.ledger_id, None)
            return Code.OK, ForceLedgerResponse(Status.OK, request.ledger_id)
        if isinstance(request, EntryListRequest):
            stored = sorted(entry for ledger, entry in self.entries if ledger == request.ledger_id)
            return Code.OK, EntryListResponse(Status.OK, request.ledger_id, encode_availability(stored))
        assert isinstance(request, ReadRequest | BatchReadRequest), "clients send nothing else yet"
        return self._answer_read(request) if isinstance(request, ReadRequest) else self._answer_batch(request)

    def last_entry(self, ledger_id: int) -> int:
        return max((entry for ledger, entry in self.entries if ledger == ledger_id), default=-1)

    def _answer_read(self, request: ReadRequest) -> Answer:
        if request.fence_key is not None:
            self.fenced.add(request.ledger_id)
        entry_id = self.last_entry(request.ledger_id) if request.entry_id == LAST_ENTRY else request.entry_id
        body = self.entries.get((request.ledger_id, entry_id))
        if body is None:
            return Code.NO_SUCH_ENTRY, None
        return Code.OK, ReadResponse(Status.OK, request.ledger_id, entry_id, body, self.max_lac)

    def _answer_batch(self, request: BatchReadRequest) -> Answer:
        if not self.knows_batches:
            return Code.BOOKIE_NOT_AVAILABLE, None
        bodies: list[bytes] = []
        used = BATCH_OVERHEAD
        while body := self.entries.get((request.ledger_id, request.entry_id + len(bodies))):
            used += BATCH_ENTRY_OVERHEAD + len(body)
            if bodies and (used > request.max_size or len(bodies) == request.max_count):
                break
            bodies.append(body)
        if not bodies:
            return Code.NO_SUCH_ENTRY, None
        return Code.OK, BatchReadResponse(Status.OK, request.ledger_id, request.entry_id, tuple(bodies))

    def _answer_lac(self, request: ReadLacRequest) -> Answer:
        body = self.entries.get((request.ledger_id, self.last_entry(request.ledger_id)))
        if body is None and self.explicit_lac is None:
            return Code.NO_SUCH_LEDGER_ON_BOOKIE, None
        return Code.OK, ReadLacResponse(Status.OK, request.ledger_id, self.explicit_lac, body)


class FakeTransport:
    """A :class:`~bkclient.transport.base.BookieTransport` to fake bookies."""

    def __init__(self, bookie_ids: str) -> None:
        self.bookies = {bookie_id: FakeBookie() for bookie_id in bookie_ids}
        #: Tests break and renew connections with :meth:`reconnect`; those that do not have one to every bookie from the start.
        self.connections: dict[str, int] = defaultdict(int)
        self.sent: list[tuple[str, Request]] = []
        self.is_closed = False
        #: Bookies whose connections take no more.
        self.unwritable: set[str] = set()
        self._held: list[tuple[str, Request, ReplyHandler]] = []

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        self.sent.append((bookie_id, request))
        if self.bookies[bookie_id].holds and not self.is_closed:
            self._held.append((bookie_id, request, reply_to))
        else:
            asyncio.get_running_loop().call_soon(self._serve, bookie_id, request, reply_to)

    def reconnect(self, bookies: str) -> None:
        """New connections are established, one to each of ``bookies``."""
        for bookie_id in bookies:
            self.connections[bookie_id] = max(self.connections.values(), default=0) + 1

    def pending_requests(self, bookie_id: str) -> int:
        return sum(held == bookie_id for held, _, _ in self._held)

    def is_writable(self, bookie_id: str) -> bool:
        return bookie_id not in self.unwritable

    def _serve(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        code, response = (Code.CLIENT_CLOSED, None) if self.is_closed else self.bookies[bookie_id].answer(request)
        reply_to(bookie_id, request, code, response)

    def hold(self, bookies: str) -> None:
        for bookie_id in bookies:
            self.bookies[bookie_id].holds = True

    def release(self, bookies: str, code: int | None = None) -> None:
        """Answer requests that were held; with ``code`` instead of the answers of the bookies."""
        for bookie_id in bookies:
            self.bookies[bookie_id].holds = False
        held, self._held = self._held, []
        for bookie_id, request, reply_to in held:
            if bookie_id not in bookies:
                self._held.append((bookie_id, request, reply_to))
            elif code is None:
                self._serve(bookie_id, request, reply_to)
            else:
                reply_to(bookie_id, request, code, None)

    def answer_first(self, count: int) -> None:
        """Answer the oldest requests that are held; the others stay."""
        first, self._held = self._held[:count], self._held[count:]
        for bookie_id, request, reply_to in first:
            self._serve(bookie_id, request, reply_to)

    async def aclose(self) -> None:
        self.is_closed = True
        held, self._held = self._held, []
        for bookie_id, request, reply_to in held:
            reply_to(bookie_id, request, Code.CLIENT_CLOSED, None)


class FakeStore(MemoryMetadataStore):
    """A session with a metadata service whose writes and reads a test may hold up or fail."""

    def __init__(self, service: MemoryMetadataService) -> None:
        super().__init__(service, rng=Random(next(_SESSIONS)))
        #: Writes wait for the one, reads for the other.
        self.gate, self.read_gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.read_gate.set()
        #: Raised by the next writes, in order; one that says "unknown outcome" is raised after the write was applied.
        self.write_errors: list[BookKeeperError] = []
        self.read_errors: list[BookKeeperError] = []
        self.writes = 0

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        await self.gate.wait()
        self.writes += 1
        if self.write_errors:
            error = self.write_errors.pop(0)
            if error.code == Code.METADATA_STORE and "applied" in str(error):
                await super().write_ledger(metadata, expected_version)
            raise error
        return await super().write_ledger(metadata, expected_version)

    async def read_ledger(self, ledger_id: int) -> Versioned:
        await self.read_gate.wait()
        if self.read_errors:
            raise self.read_errors.pop(0)
        return await super().read_ledger(ledger_id)


@dataclass(eq=False)
class FakeCluster:
    """One client, its transport to fake bookies, and its metadata store."""

    bk: BookKeeper
    transport: FakeTransport
    store: FakeStore
    service: MemoryMetadataService

    @property
    def sent(self) -> list[tuple[str, Request]]:
        return self.transport.sent

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        return self.service.read(ledger_id).metadata

    def edit(self, ledger_id: int, change: Callable[[LedgerMetadata], LedgerMetadata]) -> None:
        """Change a ledger's metadata, as another client would."""
        value = self.service.read(ledger_id)
        self.service.write(change(value.metadata), value.version)

    def another_client(self, *, config: ClientConfig | None = None) -> BookKeeper:
        """A second client of the same cluster, with a transport of its own to the same bookies."""
        transport = FakeTransport("")
        transport.bookies = self.transport.bookies
        return BookKeeper(FakeStore(self.service), transport, config=config, rng=Random(2))


@asynccontextmanager
async def fake_cluster(
    bookies: str = "abc",
    *,
    config: ClientConfig | None = None,
    observer: RecoveryObserver | None = None,
    features: Features | None = None,
    stats: ClientStats | None = None,
    placement: PlacementPolicy | None = None,
) -> AsyncIterator[FakeCluster]:
    """A client in a cluster of ``bookies``, all of them writable; the rest is handed to the client."""
    service = MemoryMetadataService()
    async with service.session(rng=Random(3)) as registrar:
        for port, bookie_id in enumerate(bookies, start=3181):
            await registrar.register_bookie(bookie_id, BookieAddress("localhost", port))
        transport, store = FakeTransport(bookies), FakeStore(service)
        client = BookKeeper(
            store,
            transport,
            config=config,
            rng=Random(4),
            observer=observer,
            features=features,
            stats=stats,
            placement=placement,
            wall_clock=asyncio.get_running_loop().time,
        )
        async with client as bk:
            yield FakeCluster(bk, transport, store, service)


async def writer_of(where: FakeCluster, sizes: tuple[int, int, int] = (3, 3, 2)) -> LedgerWriter:
    """A new ledger with the password ``secret``."""
    return await where.bk.create_ledger(
        ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2], password=b"secret"
    )


async def payloads_of(where: FakeCluster, ledger_id: int) -> list[bytes]:
    """Everything in such a ledger once it is closed."""
    reader = await where.bk.open_ledger(ledger_id, password=b"secret", recover=True)
    return [entry.payload async for entry in reader]


async def advanced_writer_of(
    where: FakeCluster, sizes: tuple[int, int, int] = (3, 3, 2), *, deferred_sync: bool = False
) -> AdvancedLedgerWriter:
    """A new ledger with given entry ids and the password ``secret``."""
    return await where.bk.create_advanced_ledger(
        ensemble_size=sizes[0],
        write_quorum_size=sizes[1],
        ack_quorum_size=sizes[2],
        password=b"secret",
        deferred_sync=deferred_sync,
    )


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that waits for timers, on a loop whose clock jumps to the next one."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        loop = VirtualTimeLoop()
        try:
            loop.run_until_complete(test(*args, **kwargs))
            assert not loop.unretrieved, f"failed unseen: {loop.unretrieved}"
        finally:
            loop.close()

    return run
