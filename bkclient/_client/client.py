"""The client: creating, opening, deleting and looking up ledgers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from bkclient._client.arguments import check_flag, check_ledger_id, checked_config
from bkclient._client.background import Background
from bkclient._client.core import ClientCore, Features
from bkclient._client.create import CreatedLedger, NewLedger, create_ledger
from bkclient._client.free_space import free_space_of
from bkclient._client.home_loop import check_asyncio, running_loop, wrong_loop
from bkclient._client.hosted import Hosted
from bkclient._client.measure import observed
from bkclient._client.open import Credentials, open_ledger, read_metadata
from bkclient._client.plugin_guards import guarded_features, guarded_observer, guarded_stats, guarded_tracer
from bkclient._client.reading.reader import LedgerReader
from bkclient._client.tree import ClientTree
from bkclient._client.watch import watch_metadata
from bkclient._client.writing.advanced import AdvancedLedgerWriter
from bkclient._client.writing.payloads import FRAME_OVERHEAD_BYTES
from bkclient._client.writing.writer import LedgerWriter
from bkclient.config import ClientConfig
from bkclient.errors import ArgumentError, ClientClosed, MetadataDriverError, MetadataStoreError, UnexpectedCondition
from bkclient.ledger import DigestType, LedgerMetadata
from bkclient.metadata.base import BookieSets, MetadataStore
from bkclient.metadata.tree import NodeTree, parent_tree_of, tree_of
from bkclient.observability import stats as names
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.observability.stats import ClientStats
from bkclient.observability.tracer import Tracer
from bkclient.placement import NetworkLocations, PlacementPolicy
from bkclient.placement.client_side import ClientPlacement
from bkclient.transport.base import BookieTransport

__all__ = ["BookKeeper"]


class BookKeeper:
    """A BookKeeper client over any metadata store and bookie transport; :func:`bkclient.connect` makes one for real bookies.

    Use it as an async context manager: its background work ends with the block. The block may be left by another task than the
    one that entered it, as test fixtures and lifespan hooks do. Leaving waits until all work has ended, even if it is cancelled.

    The client owns ``transport`` and closes it at the end: requests in flight end with :class:`~bkclient.errors.ClientClosed`,
    and ledgers that were not closed stay open. ``metadata`` belongs to the caller. ``rng`` drives placement and back-off; a
    seeded one makes runs repeatable. ``wall_clock``, in seconds since 1970, is needed only if the configuration asks for the
    creation time of new ledgers. ``resources`` are closed last.

    The configuration names the placement policy, which uses ``locations``; ``placement`` is a policy of the application in its
    place (``docs/using/placement.md``). Exceptions of statistics, tracer, observer and features are logged and ignored.

    Wrong arguments raise :class:`~bkclient.errors.ArgumentError` first, even on a closed client. Every call may be cancelled;
    its docstring says what that leaves behind, if anything.
    """

    __module__ = "bkclient"

    def __init__(
        self,
        metadata: MetadataStore,
        transport: BookieTransport,
        *,
        config: ClientConfig | None = None,
        rng: random.Random | None = None,
        placement: PlacementPolicy | None = None,
        locations: NetworkLocations | None = None,
        observer: RecoveryObserver | None = None,
        features: Features | None = None,
        stats: ClientStats | None = None,
        tracer: Tracer | None = None,
        wall_clock: Callable[[], float] | None = None,
        resources: AsyncExitStack | None = None,
    ) -> None:
        self._metadata = metadata
        self._transport = transport
        self._config = checked_config(config)
        self._rng = rng or random.Random()  # noqa: S311 - placement needs no secrecy
        self._observer = guarded_observer(observer)
        self._features = guarded_features(features)
        self._stats = guarded_stats(stats)
        self._tracer = guarded_tracer(tracer)
        self._placement = ClientPlacement(
            self._config, self._rng, policy=placement, locations=locations, features=self._features, stats=self._stats
        )
        self._wall_clock = wall_clock
        self._now_ms = None
        if self._config.metadata.store_creation_time:
            if wall_clock is None:
                raise ArgumentError("metadata.store_creation_time is on, so the client needs a wall_clock")
            self._now_ms = _milliseconds(wall_clock)
        self._life = Hosted(self._live, "background work of a BookKeeper client")
        self._core: ClientCore | None = None
        self._resources = resources

    async def __aenter__(self) -> Self:
        if self._life.is_used:
            raise ArgumentError("a client can be entered once; make another one")
        check_asyncio()
        self._core = await self._life.enter()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        failure = await self._end()
        if failure is None:
            return
        if exc is None:
            raise UnexpectedCondition("the background work of the client failed") from failure
        exc.add_note(f"the background work of the client failed too: {failure!r}")

    async def aclose(self) -> None:
        """End the client and everything that belongs to it, as leaving ``async with`` does. Idempotent.

        Requests still under way end with :class:`~bkclient.errors.ClientClosed`; ledgers that were not closed stay open.
        """
        await self.__aexit__(None, None, None)

    async def _end(self) -> BaseException | None:
        """End the background work; returns what ended it before, if anything did."""
        if self._core is None:
            return None  # never entered
        if running_loop() is not self._core.loop:
            raise wrong_loop()
        self._core.close()
        try:
            await self._life.leave()
        finally:
            if self._resources is not None:
                await self._resources.aclose()
        return self._life.failure

    def __repr__(self) -> str:
        state = "not entered" if self._core is None else "closed" if self._core.is_closed else "open"
        return f"<BookKeeper {state}>"

    @asynccontextmanager
    async def _live(self, tasks: TaskGroup) -> AsyncIterator[ClientCore]:
        core = ClientCore(
            config=self._config,
            metadata=self._metadata,
            transport=self._transport,
            watcher=self._placement.watcher,
            observer=self._observer,
            background=Background(tasks),
            rng=self._rng,
            features=self._features,
            stats=self._stats,
            tracer=self._tracer,
        )
        try:
            # In this order: the watch begins by reporting what changed since, and nothing older comes after it.
            await self._placement.start(self._metadata, partial(free_space_of, core), tasks)
            end_watch = self._metadata.watch_bookies(self._placement.watcher.update)
            try:
                yield core
            finally:
                end_watch()
        finally:
            core.close()
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()

    def _open_core(self) -> ClientCore:
        if self._core is None:
            raise ArgumentError("use the client inside its 'async with' block")
        if self._core.is_closed:
            raise ClientClosed from self._life.failure
        if running_loop() is not self._core.loop:
            raise wrong_loop()
        return self._core

    @property
    def in_flight_entries(self) -> int:
        """Entries in flight of all writers of this client."""
        return 0 if self._core is None else self._core.window.entries

    @property
    def in_flight_bytes(self) -> int:
        """Payload bytes of the entries in flight of all writers of this client."""
        return 0 if self._core is None else self._core.window.in_flight_bytes

    # Ledgers -----------------------------------------------------------------------------------------------------

    async def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum_size: int = 2,
        ack_quorum_size: int = 2,
        password: bytes = b"",
        digest_type: DigestType = DigestType.CRC32C,
        custom_metadata: Mapping[str, bytes] | None = None,
        deferred_sync: bool = False,
        ledger_id: int | None = None,
    ) -> LedgerWriter:
        """Create a ledger and return its writer.

        Each entry goes to ``write_quorum_size`` of the ``ensemble_size`` bookies and is acknowledged once
        ``ack_quorum_size`` of them stored it. The ``password`` is needed to open the ledger; it may be empty. With
        ``deferred_sync`` bookies acknowledge entries before they are durable, and :meth:`LedgerWriter.force` makes them
        durable. ``ledger_id`` is generated by default.

        Raises :class:`~bkclient.errors.ArgumentError` unless ensemble >= write quorum >= ack quorum >= 1,
        :class:`~bkclient.errors.NotEnoughBookies` before anything is written,
        :class:`~bkclient.errors.LedgerExists` for a chosen id that is taken. A cancelled call may leave an empty ledger.
        """
        wanted = NewLedger(
            ensemble_size=ensemble_size,
            write_quorum_size=write_quorum_size,
            ack_quorum_size=ack_quorum_size,
            password=password,
            digest_type=digest_type,
            custom_metadata=custom_metadata,
            deferred_sync=deferred_sync,
            ledger_id=ledger_id,
        )
        created = await self._create(wanted)
        return LedgerWriter(self._open_core(), created, deferred_sync=deferred_sync)

    async def create_advanced_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum_size: int = 2,
        ack_quorum_size: int = 2,
        password: bytes = b"",
        digest_type: DigestType = DigestType.CRC32C,
        custom_metadata: Mapping[str, bytes] | None = None,
        deferred_sync: bool = False,
        ledger_id: int | None = None,
    ) -> AdvancedLedgerWriter:
        """Create a ledger whose entry ids the application chooses; arguments and errors as :meth:`create_ledger`."""
        wanted = NewLedger(
            ensemble_size=ensemble_size,
            write_quorum_size=write_quorum_size,
            ack_quorum_size=ack_quorum_size,
            password=password,
            digest_type=digest_type,
            custom_metadata=custom_metadata,
            deferred_sync=deferred_sync,
            ledger_id=ledger_id,
        )
        created = await self._create(wanted)
        return AdvancedLedgerWriter(self._open_core(), created, deferred_sync=deferred_sync)

    async def _create(self, wanted: NewLedger) -> CreatedLedger:
        core = self._open_core()
        return await observed(core, names.CREATE, create_ledger(core, wanted, self._now_ms))

    async def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        digest_type: DigestType | None = None,
        recover: bool = False,
        keep_metadata_updated: bool = False,
    ) -> LedgerReader:
        """Open a ledger for reading.

        By default nothing is changed: a ledger that is not closed may have a writer, and the reader follows what it writes.
        ``recover=True`` is for ledgers whose writer is gone: the ledger is fenced, recovered and closed, so the reader sees its
        final end, and a writer that is still running can append no more. ``keep_metadata_updated`` is for long-lived readers
        of closed ledgers, whose bookies may be replaced. The digest type is taken from the metadata, unless the configuration
        switches autodetection off.

        Raises :class:`~bkclient.errors.NoSuchLedger` for an unknown id; :class:`~bkclient.errors.UnauthorizedAccess` for a wrong
        password and, without autodetection, :class:`~bkclient.errors.DigestMismatch` for a wrong digest type, before any
        bookie is contacted; :class:`~bkclient.errors.LedgerRecoveryFailed` or
        :class:`~bkclient.errors.RequestTimeout` when recovery could not find the end; repeat it when more bookies answer.
        """
        check_ledger_id(ledger_id)
        credentials = Credentials(password, digest_type)
        check_flag("recover", recover)
        check_flag("keep_metadata_updated", keep_metadata_updated)
        credentials.check_against_config(self._config)
        core = self._open_core()
        opening = open_ledger(
            core, ledger_id, credentials, recover=recover, keep_metadata_updated=keep_metadata_updated
        )
        return await observed(core, names.OPEN, opening, ledger_id)

    async def open_ledger_as_administrator(
        self, ledger_id: int, *, recover: bool = False, keep_metadata_updated: bool = False
    ) -> LedgerReader:
        """Open a ledger with the password and digest type in its metadata.

        For tools that repair and inspect: the metadata holds the passwords, so access to it is enough. Raises as
        :meth:`open_ledger`, except for errors about credentials.
        """
        check_ledger_id(ledger_id)
        check_flag("recover", recover)
        check_flag("keep_metadata_updated", keep_metadata_updated)
        core = self._open_core()
        opening = open_ledger(core, ledger_id, None, recover=recover, keep_metadata_updated=keep_metadata_updated)
        return await observed(core, names.OPEN, opening, ledger_id)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Delete a ledger; bookies drop its entries later. Succeeds if there is none.

        Neither the password nor the state of the ledger is checked. Raises
        :class:`~bkclient.errors.ArgumentError` for a negative id.
        """
        check_ledger_id(ledger_id, may_be_negative=False)
        core = self._open_core()
        await observed(core, names.DELETE, core.metadata.delete_ledger(ledger_id), ledger_id)

    # Metadata ----------------------------------------------------------------------------------------------------

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """The metadata of a ledger; raises :class:`~bkclient.errors.NoSuchLedger` if there is none."""
        check_ledger_id(ledger_id)
        return (await read_metadata(self._open_core(), ledger_id)).metadata

    async def is_closed(self, ledger_id: int) -> bool:
        """Whether a ledger is closed; raises :class:`~bkclient.errors.NoSuchLedger` if there is none."""
        return (await self.ledger_metadata(ledger_id)).is_closed

    def watch_metadata(self, ledger_id: int) -> AsyncIterator[LedgerMetadata]:
        """The metadata of a ledger, now and after every change: ensemble changes, recovery, the close.

        ::

            async for metadata in bk.watch_metadata(ledger_id):
                if metadata.is_closed:
                    break

        Changes in quick succession are reported once, by the last. Ends when the ledger is deleted; raises
        :class:`~bkclient.errors.NoSuchLedger` if there is none, :class:`~bkclient.errors.ClientClosed` when the client is
        closed.
        """
        check_ledger_id(ledger_id)
        return watch_metadata(self._open_core(), ledger_id)

    def list_ledgers(self) -> AsyncIterator[int]:
        """All ledger ids. Not a snapshot: ledgers created or deleted meanwhile may or may not appear."""
        return self._open_core().metadata.list_ledgers()

    async def bookies(self) -> BookieSets:
        """The bookies registered now."""
        return await self._open_core().metadata.bookies()

    def node_tree(self) -> NodeTree:
        """The nodes of the metadata service below the cluster's root, by this client's session, for coordination.

        :class:`~bkclient.coordination.VersionedRegister` and :class:`~bkclient.coordination.LeaderElection` are made of it.
        Raises :class:`~bkclient.errors.ArgumentError` for a metadata store of the application that has no such nodes. When the
        client is closed, who watches a node is called, and operations raise :class:`~bkclient.errors.ClientClosed`.
        """
        core = self._open_core()
        return ClientTree(tree_of(core.metadata), core)

    def parent_tree(self) -> NodeTree:
        """The nodes of the metadata service beside the cluster's root, where Pulsar keeps what is in which ledgers.

        Raises :class:`~bkclient.errors.ArgumentError` for a metadata store that has no such nodes, as one in memory.
        """
        return parent_tree_of(self._open_core().metadata)

    @property
    def rng(self) -> random.Random:
        """The chance that the client was made with, for what is built on it."""
        return self._rng

    @property
    def max_entry_bytes(self) -> int:
        """The largest payload of an entry, which ``limits.max_frame_size_bytes`` leaves room for."""
        return self._config.limits.max_frame_size_bytes - FRAME_OVERHEAD_BYTES

    @property
    def stats(self) -> ClientStats | None:
        """What hears of the client's operations, for what is built on it; None if nothing does. It never raises."""
        return self._stats

    @property
    def wall_clock(self) -> Callable[[], float] | None:
        """The clock that the client was made with, in seconds since 1970; None if it was made without."""
        return self._wall_clock

    async def is_metadata_available(self) -> bool:
        """Whether the metadata service answers now; asks it, and waits no longer than any operation does."""
        try:
            await self._open_core().metadata.bookies()
        except (MetadataStoreError, MetadataDriverError):
            return False
        return True


def _milliseconds(wall_clock: Callable[[], float]) -> Callable[[], int]:
    return lambda: int(wall_clock() * 1000)
