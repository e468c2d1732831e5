"""The ``mem://`` driver: a metadata service inside the process.

A :class:`MemoryMetadataService` is the shared state, the counterpart of a ZooKeeper ensemble. A
:class:`MemoryMetadataStore` is one session with it, the counterpart of a connection: bookies registered through a
session disappear when it is closed. Sessions meet through the service object or, with ``mem://name``, through its
name, which lives as long as the process.

What it guarantees:

* one total order: an operation takes effect at one moment between its call and its return, and never at the call
  itself: every operation first passes control to the loop, so a caller cannot come to rely on synchronous completion;
* the stored value is the encoded one, so what this store keeps is what ZooKeeper would keep (a creator token only in
  format 3, for example), and the same values are refused;
* listeners are called by ``loop.call_soon``, in the order of the changes, never from within a call of the store;
* no thread, no clock, no chance but the ``random.Random`` handed in, no iteration order but insertion or sorted.

It is not thread-safe: all sessions of a service belong to one event loop at a time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import ClassVar, Final, Self

from bkclient.errors import (
    BookieNotAvailable,
    ClientClosed,
    LedgerExists,
    LedgerIdOverflow,
    MetadataStoreError,
    MetadataVersionConflict,
    NoSuchLedger,
)
from bkclient.ledger import BookieId, LedgerMetadata, Versioned
from bkclient.metadata.base import BookieAddress, BookieListener, BookieSets, Cancel, LedgerListener
from bkclient.metadata.codec import decode_ledger_metadata, encode_ledger_metadata
from bkclient.metadata.creator_token import is_created_by, with_creator_token
from bkclient.metadata.listeners import ListenerCalls
from bkclient.metadata.memory_tree import MemoryTree, MemoryTreeSession
from bkclient.metadata.paths import LEDGER_ID_MAX, check_bookie_id, check_ledger_id

__all__ = ["MemoryMetadataService", "MemoryMetadataStore", "MetadataContents"]

LEDGERS_PER_RANGE: Final = 1000
"""How many ids a listing takes from the service at a time; between ranges it passes control to the loop."""


@dataclass(slots=True)
class _StoredLedger:
    """The value as a znode would hold it."""

    data: bytes = field(repr=False)
    version: int
    #: The bytes that :meth:`decode` saw last, and what it found: all who read a version get one value, which nothing changes.
    _decoded: tuple[bytes, Versioned] | None = field(default=None, repr=False)

    def decode(self, ledger_id: int) -> Versioned:
        if self._decoded is None or self._decoded[0] is not self.data or self._decoded[1].version != self.version:
            self._decoded = self.data, Versioned(decode_ledger_metadata(ledger_id, self.data), self.version)
        return self._decoded[1]


@dataclass(frozen=True, slots=True)
class MetadataContents:
    """What a :class:`MemoryMetadataService` holds at one moment, for tests of applications and of this package."""

    #: By id, the version and the encoded metadata.
    ledgers: dict[int, tuple[int, bytes]] = field(repr=False)  # which hold passwords
    #: The next id that is generated.
    next_ledger_id: int
    #: The registered bookies.
    bookies: BookieSets
    #: By path, the data of the nodes of repairs.
    nodes: dict[str, bytes] = field(repr=False)
    #: By ledger id, how many sessions watch it; ledgers that are not watched are left out.
    ledger_watches: dict[int, int]
    #: How many watch the bookies.
    bookie_watches: int
    #: By path, how many watch a node; those that are not watched are left out.
    node_watches: dict[str, int]


@dataclass(slots=True)
class _Registration:
    """One bookie and the session that keeps it alive."""

    session: MemoryMetadataStore
    address: BookieAddress
    read_only: bool


class MemoryMetadataService:
    """The state that sessions share: ledgers, their versions, the id counter and the registered bookies."""

    _by_name: ClassVar[dict[str, MemoryMetadataService]] = {}

    def __init__(self, *, first_ledger_id: int = 0) -> None:
        self._ledgers: dict[int, _StoredLedger] = {}
        self._next_ledger_id = first_ledger_id
        self._registrations: dict[BookieId, _Registration] = {}
        #: What they come to, unless they have changed since anybody asked.
        self._bookies: BookieSets | None = None
        self._last_addresses: dict[BookieId, BookieAddress] = {}
        self._ledger_watches: dict[int, dict[ListenerCalls[Versioned | None], None]] = {}
        self._bookie_watches: dict[ListenerCalls[BookieSets], None] = {}
        self.tree = MemoryTree()

    @classmethod
    def named(cls, name: str) -> MemoryMetadataService:
        """The service of that name, made at the first call; what ``mem://name`` reaches."""
        return cls._by_name.setdefault(name, MemoryMetadataService())

    @classmethod
    def forget(cls, name: str) -> None:
        """Let the next :meth:`named` begin with an empty service. Sessions of the old one go on with it. Idempotent."""
        cls._by_name.pop(name, None)

    def session(self, *, rng: Random) -> MemoryMetadataStore:
        """A new session. ``rng`` supplies its creator tokens."""
        return MemoryMetadataStore(self, rng=rng)

    def take_ledger_id(self) -> int:
        """The next id of the counter."""
        if self._next_ledger_id > LEDGER_ID_MAX:
            raise LedgerIdOverflow(f"all ids up to {LEDGER_ID_MAX} are given out")
        ledger_id = self._next_ledger_id
        self._next_ledger_id += 1
        return ledger_id

    def create(self, metadata: LedgerMetadata) -> Versioned:
        """Store a new ledger at version 0, or find that it is there already by this very creation."""
        ledger_id = metadata.ledger_id
        data = encode_ledger_metadata(metadata)
        stored = self._ledgers.get(ledger_id)
        if stored is not None:
            present = stored.decode(ledger_id)
            if is_created_by(present.metadata, metadata):
                return present
            raise LedgerExists(ledger_id=ledger_id)
        self._ledgers[ledger_id] = _StoredLedger(data, version=0)
        return self._announce_ledger(ledger_id)

    def read(self, ledger_id: int) -> Versioned:
        """The value and its version."""
        return self._stored(ledger_id).decode(ledger_id)

    def write(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """Replace the value at ``expected_version``."""
        ledger_id = metadata.ledger_id
        data = encode_ledger_metadata(metadata)
        stored = self._stored(ledger_id)
        if stored.version != expected_version:
            raise MetadataVersionConflict(
                f"the version is {stored.version}, not {expected_version}", ledger_id=ledger_id
            )
        stored.data, stored.version = data, expected_version + 1
        return self._announce_ledger(ledger_id)

    def delete(self, ledger_id: int) -> None:
        """Drop the value, if there is one."""
        if self._ledgers.pop(ledger_id, None) is not None:
            for watch in self._ledger_watches.get(ledger_id, {}):
                watch.notify(None)

    def ledger_ids_above(self, floor: int, limit: int) -> list[int]:
        """The ``limit`` smallest ids greater than ``floor``, ascending."""
        return heapq.nsmallest(limit, (ledger_id for ledger_id in self._ledgers if ledger_id > floor))

    def watch_ledger(self, ledger_id: int, watch: ListenerCalls[Versioned | None]) -> Cancel:
        """Report the present value and every later one to ``watch``."""
        watches = self._ledger_watches.setdefault(ledger_id, {})
        watches[watch] = None
        stored = self._ledgers.get(ledger_id)
        watch.notify(None if stored is None else stored.decode(ledger_id))

        def cancel() -> None:
            watch.cancel()
            watches.pop(watch, None)
            if not watches and self._ledger_watches.get(ledger_id) is watches:
                del self._ledger_watches[ledger_id]

        return cancel

    def watch_bookies(self, watch: ListenerCalls[BookieSets]) -> Cancel:
        """Report the present sets and every later ones to ``watch``."""
        self._bookie_watches[watch] = None
        watch.notify(self.bookies())

        def cancel() -> None:
            watch.cancel()
            self._bookie_watches.pop(watch, None)

        return cancel

    def bookies(self) -> BookieSets:
        """The registered bookies."""
        if self._bookies is None:
            found = sorted(self._registrations.items())
            self._bookies = BookieSets(
                writable=tuple([bookie_id for bookie_id, present in found if not present.read_only]),
                read_only=tuple([bookie_id for bookie_id, present in found if present.read_only]),
            )
        return self._bookies

    def address(self, bookie_id: BookieId) -> BookieAddress:
        """Where the bookie listens, or did when it was last registered."""
        address = self._last_addresses.get(bookie_id)
        if address is None:
            raise BookieNotAvailable("it was never registered", bookie_id=bookie_id)
        return address

    def register(self, bookie_id: BookieId, registration: _Registration) -> None:
        """Enter or move a bookie of the registration's session."""
        present = self._registrations.get(bookie_id)
        if present is not None and present.session is not registration.session:
            raise MetadataStoreError("another session has registered this bookie id", bookie_id=bookie_id)
        before = self.bookies()
        self._registrations[bookie_id] = registration
        self._bookies = None
        self._last_addresses[bookie_id] = registration.address
        self._announce_bookies(before)

    def unregister(self, session: MemoryMetadataStore, bookie_ids: Iterable[BookieId]) -> None:
        """Withdraw those of the bookies that ``session`` has registered."""
        before = self.bookies()
        for bookie_id in bookie_ids:
            present = self._registrations.get(bookie_id)
            if present is not None and present.session is session:
                del self._registrations[bookie_id]
                self._bookies = None
        self._announce_bookies(before)

    def registered_by(self, session: MemoryMetadataStore) -> list[BookieId]:
        """The bookies that live with ``session``."""
        return [bookie_id for bookie_id, present in self._registrations.items() if present.session is session]

    def snapshot(self) -> MetadataContents:
        """What is stored, and how many watches there are."""
        return MetadataContents(
            ledgers={ledger_id: (stored.version, stored.data) for ledger_id, stored in self._ledgers.items()},
            next_ledger_id=self._next_ledger_id,
            bookies=self.bookies(),
            nodes=self.tree.contents(),
            ledger_watches={ledger_id: len(watches) for ledger_id, watches in self._ledger_watches.items()},
            bookie_watches=len(self._bookie_watches),
            node_watches=self.tree.watch_counts(),
        )

    def _stored(self, ledger_id: int) -> _StoredLedger:
        stored = self._ledgers.get(ledger_id)
        if stored is None:
            raise NoSuchLedger(ledger_id=ledger_id)
        return stored

    def _announce_ledger(self, ledger_id: int) -> Versioned:
        value = self._ledgers[ledger_id].decode(ledger_id)
        for watch in self._ledger_watches.get(ledger_id, {}):
            watch.notify(value)
        return value

    def _announce_bookies(self, before: BookieSets) -> None:
        after = self.bookies()
        if after != before:
            for watch in self._bookie_watches:
                watch.notify(after)


class MemoryMetadataStore:
    """One session with a :class:`MemoryMetadataService`; implements :class:`bkclient.metadata.base.MetadataStore`.

    After :meth:`aclose` every operation raises :class:`~bkclient.errors.ClientClosed`. There is no connection to lose,
    so no operation ends with an unknown outcome; wrappers simulate that.
    """

    def __init__(self, service: MemoryMetadataService, *, rng: Random) -> None:
        self._service = service
        self._rng = rng
        self._cancels: dict[Cancel, None] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def generate_ledger_id(self) -> int:
        """The next id of the service's counter; :class:`~bkclient.errors.LedgerIdOverflow` above 2^63 - 1."""
        await self._checkpoint()
        return self._service.take_ledger_id()

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned:
        """Register a ledger at version 0; with a known creator token, find one's own creation again."""
        metadata = with_creator_token(metadata, self._rng)
        await self._checkpoint(metadata.ledger_id)
        return self._service.create(metadata)

    async def read_ledger(self, ledger_id: int) -> Versioned:
        """The present value; :class:`~bkclient.errors.NoSuchLedger` if there is none."""
        await self._checkpoint(ledger_id)
        return self._service.read(ledger_id)

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """Replace the value if its version still is ``expected_version``, as the seam says."""
        await self._checkpoint(metadata.ledger_id)
        return self._service.write(metadata, expected_version)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Remove the ledger, whatever its version, if there is one."""
        await self._checkpoint(ledger_id)
        self._service.delete(ledger_id)

    async def list_ledgers(self) -> AsyncIterator[int]:
        """All ledger ids, ascending. Ledgers created or deleted meanwhile may be missing or present."""
        floor = -1
        while True:
            await self._checkpoint()
            ledger_ids = self._service.ledger_ids_above(floor, LEDGERS_PER_RANGE)
            for ledger_id in ledger_ids:
                yield ledger_id
            if len(ledger_ids) < LEDGERS_PER_RANGE:
                return
            floor = ledger_ids[-1]

    def watch_ledger(self, ledger_id: int, listener: LedgerListener) -> Cancel:
        """Call ``listener`` with the value soon, and after every change."""
        self._check_open(ledger_id)
        return self._until_closed(self._service.watch_ledger(ledger_id, ListenerCalls(listener)))

    async def bookies(self) -> BookieSets:
        """The bookies registered now, by all sessions."""
        await self._checkpoint()
        return self._service.bookies()

    def watch_bookies(self, listener: BookieListener) -> Cancel:
        """Call ``listener`` with the registered sets soon, and after every change."""
        self._check_open()
        return self._until_closed(self._service.watch_bookies(ListenerCalls(listener)))

    async def bookie_address(self, bookie_id: BookieId) -> BookieAddress:
        """Where the bookie listens, or last did; :class:`~bkclient.errors.BookieNotAvailable` if never registered."""
        check_bookie_id(bookie_id)
        await self._checkpoint()
        return self._service.address(bookie_id)

    async def register_bookie(self, bookie_id: BookieId, address: BookieAddress, *, read_only: bool = False) -> None:
        """Announce a bookie until this session is closed.

        :class:`~bkclient.errors.MetadataStoreError` at once if another session holds the id: here a session that is
        gone is gone immediately, so there is nothing to wait for.
        """
        check_bookie_id(bookie_id)
        await self._checkpoint()
        self._service.register(bookie_id, _Registration(self, address, read_only))

    async def unregister_bookie(self, bookie_id: BookieId) -> None:
        """Withdraw an announcement of this session. Idempotent."""
        check_bookie_id(bookie_id)
        await self._checkpoint()
        self._service.unregister(self, (bookie_id,))

    def node_tree(self) -> MemoryTreeSession:
        """The service's tree of nodes, seen by this session."""
        self._check_open()
        return MemoryTreeSession(self._service.tree, self, self._checkpoint, self._until_closed)

    async def aclose(self) -> None:
        """End the session: its bookies and nodes disappear and its listeners are called no more. Idempotent."""
        self._is_closed = True
        for cancel in tuple(self._cancels):
            cancel()
        self._service.unregister(self, self._service.registered_by(self))
        self._service.tree.end_session(self)
        await asyncio.sleep(0)

    async def _checkpoint(self, ledger_id: int | None = None) -> None:
        self._check_open(ledger_id)
        await asyncio.sleep(0)
        self._check_open(ledger_id)

    def _check_open(self, ledger_id: int | None = None) -> None:
        if ledger_id is not None:
            check_ledger_id(ledger_id)
        if self._is_closed:
            raise ClientClosed("the session with the metadata service is closed", ledger_id=ledger_id)

    def _until_closed(self, cancel: Cancel) -> Cancel:
        def cancel_and_forget() -> None:
            self._cancels.pop(cancel_and_forget, None)
            cancel()

        self._cancels[cancel_and_forget] = None
        return cancel_and_forget
