"""The client: creating, opening, deleting and looking up ledgers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import Self

import anyio

from bkclient.config import ClientConfig
from bkclient.core import ClientCore, Features, entry_codec_for
from bkclient.errors import (
    ArgumentError,
    ClientClosed,
    LedgerExists,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from bkclient.lac import read_last_add_confirmed
from bkclient.metadata.base import BookieSets, MetadataStore
from bkclient.metadata.model import DigestType, Fragment, LedgerMetadata, Versioned
from bkclient.metadata.uri import open_store
from bkclient.observer import RecoveryObserver
from bkclient.placement import BookieWatcher, LedgerShape, PlacementPolicy, RandomPlacement
from bkclient.protocol.quorum import QuorumSizes
from bkclient.reader import LedgerReader
from bkclient.recovery import recover_ledger
from bkclient.stats import ClientStats
from bkclient.transport.base import BookieTransport
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.writer import LedgerWriter

__all__ = ["BookKeeper", "connect"]

#: A generated id that is taken means another generator works on the same store; that cannot go on for long.
_CREATE_ATTEMPTS = 100


class BookKeeper:
    """A BookKeeper client over any metadata store and bookie transport; :func:`connect` makes one for real bookies.

    Use it as an async context manager: its background work lives exactly as long as the block. ``rng`` drives placement
    and back-off; hand in a seeded one for runs that can be repeated. The client takes over ``transport`` and closes it on
    leaving: requests still under way end with :class:`~bkclient.errors.ClientClosed`, and ledgers that were not closed
    stay open (API-19). ``metadata`` stays with whoever made it.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        transport: BookieTransport,
        *,
        config: ClientConfig | None = None,
        rng: random.Random | None = None,
        placement: PlacementPolicy | None = None,
        observer: RecoveryObserver | None = None,
        features: Features | None = None,
        stats: ClientStats | None = None,
    ) -> None:
        self._metadata = metadata
        self._transport = transport
        self._config = config or ClientConfig()
        self._rng = rng or random.Random()  # noqa: S311 - placement needs no secrecy
        self._watcher = BookieWatcher(placement or RandomPlacement(self._rng))
        self._observer = observer
        self._features = features or _no_features
        self._stats = stats
        self._stack: AsyncExitStack | None = None
        self._core: ClientCore | None = None

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise ArgumentError("a client can be entered once; make another one")
        self._stack = AsyncExitStack()
        try:
            tasks = await self._stack.enter_async_context(anyio.create_task_group())
            self._core = ClientCore(
                config=self._config,
                metadata=self._metadata,
                transport=self._transport,
                watcher=self._watcher,
                observer=self._observer,
                tasks=tasks,
                rng=self._rng,
                features=self._features,
                stats=self._stats,
            )
            self._stack.push_async_callback(self._shut_down, self._core)
            # In this order: the watch begins by reporting what changed since, and nothing older comes after it.
            self._watcher.update(await self._metadata.bookies())
            self._stack.callback(self._metadata.watch_bookies(self._watcher.update))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._stack is not None, "entered before left"
        try:
            return await self._stack.__aexit__(exc_type, exc, traceback)
        except BaseExceptionGroup as group:
            # The task group wraps whatever leaves the block, which must stay what it was for the caller's ``except``.
            if exc is None or group.exceptions != (exc,):
                raise
            return False

    async def _shut_down(self, core: ClientCore) -> None:
        core.is_closed = True
        with anyio.CancelScope(shield=True):
            await self._transport.aclose()
        core.tasks.cancel_scope.cancel()

    def _open_core(self) -> ClientCore:
        if self._core is None:
            raise ArgumentError("use the client inside its 'async with' block")
        if self._core.is_closed:
            raise ClientClosed
        return self._core

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
    ) -> LedgerWriter:
        """Create a ledger and return its writer.

        Each entry goes to ``write_quorum_size`` of the ``ensemble_size`` bookies and is acknowledged once
        ``ack_quorum_size`` of them stored it. Raises :class:`~bkclient.errors.ArgumentError` unless ensemble >= write quorum >=
        ack quorum >= 1 (API-3), :class:`~bkclient.errors.NotEnoughBookies` before anything is written (API-5).
        """
        core = self._open_core()
        _check_sizes(ensemble_size, write_quorum_size, ack_quorum_size)
        _check_password(password)
        if not isinstance(digest_type, DigestType):
            raise ArgumentError(f"digest_type is a DigestType, not {digest_type!r}")
        custom = _checked_custom_metadata(custom_metadata)
        ensemble = core.watcher.new_ensemble(LedgerShape(ensemble_size, write_quorum_size, ack_quorum_size, custom))
        if ensemble is None:
            registered = await core.metadata.bookies()
            raise NotEnoughBookies(
                f"an ensemble of {ensemble_size} is wanted, the writable bookies are: "
                f"{', '.join(registered.writable) or 'none'}"
            )
        for _ in range(_CREATE_ATTEMPTS):
            metadata = LedgerMetadata(
                ledger_id=await core.metadata.generate_ledger_id(),
                ensemble_size=ensemble_size,
                write_quorum_size=write_quorum_size,
                ack_quorum_size=ack_quorum_size,
                fragments=(Fragment(0, ensemble),),
                digest_type=digest_type,
                password=password,
                custom_metadata=custom,
            )
            try:
                return LedgerWriter(core, await core.metadata.create_ledger(metadata))
            except LedgerExists:
                continue
        raise LedgerExists(f"{_CREATE_ATTEMPTS} generated ledger ids in a row were taken")

    async def open_ledger(self, ledger_id: int, *, password: bytes = b"", recover: bool = True) -> LedgerReader:
        """Open a ledger for reading.

        With ``recover`` a ledger that is not closed is fenced, recovered and closed first: its writer can add nothing any
        more, and the reader sees the final end. Without, nothing is changed and the reader follows the living ledger.

        Raises :class:`~bkclient.errors.NoSuchLedger` for an unknown id, :class:`~bkclient.errors.UnauthorizedAccess` for a wrong
        password before any bookie is contacted (API-7), :class:`~bkclient.errors.LedgerRecoveryFailed` or
        :class:`~bkclient.errors.RequestTimeout` when recovery could not decide; repeat it once more bookies answer.
        """
        core = self._open_core()
        _check_ledger_id(ledger_id)
        _check_password(password)
        if ledger_id < 0:
            raise NoSuchLedger("ledger ids are not negative", ledger_id=ledger_id)
        value = await core.metadata.read_ledger(ledger_id)
        if value.metadata.has_password and value.metadata.password != password:
            raise UnauthorizedAccess(ledger_id=ledger_id)
        if not value.metadata.is_closed and recover:
            value = await recover_ledger(core, value)
        if value.metadata.is_closed:
            return LedgerReader(core, value, value.metadata.last_entry_id)
        return await self._open_tail(core, value)

    async def _open_tail(self, core: ClientCore, value: Versioned) -> LedgerReader:
        found = await read_last_add_confirmed(core, value.metadata, entry_codec_for(value.metadata))  # NR-1
        reader = LedgerReader(core, value, found)
        reader.follow_metadata()
        return reader

    async def delete_ledger(self, ledger_id: int) -> None:
        """Delete a ledger; bookies drop its entries later. Succeeds if there is none (DEL-1, DEL-2).

        Neither the password nor the state of the ledger is looked at (DEL-3). Raises
        :class:`~bkclient.errors.ArgumentError` for a negative id (API-9).
        """
        core = self._open_core()
        _check_ledger_id(ledger_id)
        if ledger_id < 0:
            raise ArgumentError("ledger ids are not negative", ledger_id=ledger_id)
        await core.metadata.delete_ledger(ledger_id)

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """What the metadata store holds about a ledger; :class:`~bkclient.errors.NoSuchLedger` if nothing."""
        core = self._open_core()
        _check_ledger_id(ledger_id)
        if ledger_id < 0:
            raise NoSuchLedger("ledger ids are not negative", ledger_id=ledger_id)
        return (await core.metadata.read_ledger(ledger_id)).metadata

    def list_ledgers(self) -> AsyncIterator[int]:
        """All ledger ids. Not a snapshot: what is created or deleted meanwhile may or may not appear (DEL-6)."""
        return self._open_core().metadata.list_ledgers()

    async def bookies(self) -> BookieSets:
        """The bookies registered now."""
        return await self._open_core().metadata.bookies()


@asynccontextmanager
async def connect(
    metadata_uri: str, *, config: ClientConfig | None = None, rng: random.Random | None = None
) -> AsyncIterator[BookKeeper]:
    """A client, over TCP, for the bookies registered under ``metadata_uri``.

    ::

        async with bkclient.connect("zk://localhost:2181/ledgers") as bk:
            writer = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)

    URIs: ``zk://host:port[;host:port...]/root`` (also ``zk+hierarchical``, ``zk+longhierarchical``, ``zk+flat``) and
    ``mem://name`` for a store inside this process. Raises :class:`~bkclient.errors.ArgumentError` for other ones and
    :class:`~bkclient.errors.MetadataStoreError` when the service cannot be reached.
    """
    config = config or ClientConfig()
    rng = rng or random.Random()  # noqa: S311 - placement and back-off need no secrecy
    async with AsyncExitStack() as stack:
        store = await open_store(metadata_uri, rng=rng, session_timeout_s=config.metadata_timeout_s)
        stack.push_async_callback(store.aclose)
        transport = TcpTransport(store.bookie_address, _transport_config(config), rng=rng)
        stack.push_async_callback(transport.aclose)
        yield await stack.enter_async_context(BookKeeper(store, transport, config=config, rng=rng))


def _no_features(name: str) -> bool:  # noqa: ARG001
    return False


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
        max_outstanding_requests=max(limits.max_outstanding_requests, 10 * config.max_in_flight_entries),
        max_outstanding_bytes=max(limits.max_outstanding_bytes, 2 * config.max_in_flight_bytes),
    )


def _check_sizes(ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> None:
    for value in (ensemble_size, write_quorum_size, ack_quorum_size):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentError(f"ensemble and quorum sizes are ints, not {value!r}")
    QuorumSizes(ensemble_size, write_quorum_size, ack_quorum_size)


def _check_ledger_id(ledger_id: int) -> None:
    if isinstance(ledger_id, bool) or not isinstance(ledger_id, int):
        raise ArgumentError(f"a ledger id is an int, not {ledger_id!r}")


def _check_password(password: bytes) -> None:
    if not isinstance(password, bytes):
        raise ArgumentError(f"a password is bytes, not {type(password).__name__}")


def _checked_custom_metadata(custom_metadata: Mapping[str, bytes] | None) -> Mapping[str, bytes]:
    if custom_metadata is not None and not isinstance(custom_metadata, Mapping):
        raise ArgumentError(f"custom metadata is a mapping, not {type(custom_metadata).__name__}")
    custom = dict(custom_metadata or {})
    for key, value in custom.items():
        if not isinstance(key, str) or not isinstance(value, bytes):  # type: ignore[redundant-expr]
            raise ArgumentError(f"custom metadata maps str to bytes, not {key!r} to {value!r}")
    return MappingProxyType(custom)
