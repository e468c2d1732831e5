"""What the handles of one client share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from bkclient._client.background import Background
from bkclient._client.defects import report
from bkclient._client.health import SharedBookieMemory
from bkclient._client.updates import drive_update
from bkclient._client.window import ClientWindow
from bkclient.config import ClientConfig
from bkclient.errors import ClientClosed
from bkclient.ledger import DigestType, LedgerMetadata
from bkclient.metadata.base import Cancel, MetadataStore
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.observability.stats import ClientStats
from bkclient.observability.tracer import Tracer
from bkclient.placement import BookieWatcher
from bkclient.protocol.update import UpdateHandle
from bkclient.transport.base import BookieTransport
from bkclient.wire.entry import EntryCodec

__all__ = ["ClientCore", "Features", "LedgerKeys", "entry_codec_for", "nobody"]

Features = Callable[[str], bool]
"""Tells whether a feature, by its name, is switched on at this moment; asked anew each time."""


def nobody() -> None:
    """A handler of what nobody has to be told of."""


class _Closer:
    """To be called when the client is closed, unless it was called itself before. Compared by identity."""

    __slots__ = ("_closers", "callback")

    def __init__(self, closers: dict[_Closer, None], callback: Callable[[], None]) -> None:
        self._closers = closers
        self.callback = callback

    def __call__(self) -> None:
        self._closers.pop(self, None)


@dataclass(slots=True)
class ClientCore:
    """The seams of a client, and what starts its background work."""

    config: ClientConfig
    metadata: MetadataStore
    transport: BookieTransport
    watcher: BookieWatcher
    observer: RecoveryObserver | None
    background: Background
    rng: random.Random
    features: Features
    stats: ClientStats | None
    tracer: Tracer | None = None
    is_closed: bool = False
    #: The event loop that everything of the client belongs to.
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    #: What reads learn about bookies.
    memory: SharedBookieMemory = field(init=False)
    #: What all writers have in flight together.
    window: ClientWindow = field(init=False)
    _closers: dict[_Closer, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = SharedBookieMemory(self.config.reading)
        limits = self.config.limits
        # The window of the client is never narrower than that of a writer: a wide one was asked for.
        self.window = ClientWindow(
            max(limits.max_client_in_flight_entries, limits.max_in_flight_entries),
            max(limits.max_client_in_flight_bytes, limits.max_in_flight_bytes),
        )

    @property
    def admin_keys(self) -> LedgerKeys:
        """Those that administrators use where the metadata holds none (API-8)."""
        return LedgerKeys(self.config.admin.password, self.config.admin.digest_type)

    def at_close(self, callback: Callable[[], None]) -> Cancel:
        """Call ``callback`` when the client is closed, unless what is returned is called before."""
        closer = _Closer(self._closers, callback)
        self._closers[closer] = None
        return closer

    def close(self) -> None:
        """The client is closed: nothing new begins, and waiters for what cannot come any more are told. Idempotent."""
        self.is_closed = True
        closers, self._closers = self._closers, {}
        for callback in [closer.callback for closer in closers]:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - one that fails must not keep the others from being told
                report(error, f"the handler {callback!r} of the end of a client raised")

    def run_update(self, update: UpdateHandle, done: Callable[[UpdateHandle], None]) -> None:
        """Drive ``update`` in the background, then call ``done`` with it; never from within this call.

        ``done`` is called whatever happens, because somebody may be waiting for what it brings about. When the client is
        closed before the update has ended, it fails with :class:`~bkclient.errors.ClientClosed` (API-17).
        """

        def give_up() -> None:
            if update.action is not None:
                update.on_error(ClientClosed(ledger_id=update.ledger_id))

        async def drive() -> None:
            try:
                await drive_update(update, self.metadata)
            finally:
                give_up()
                tell()

        def tell() -> None:
            try:
                done(update)
            except Exception as error:  # noqa: BLE001 - who is told of one ledger, and fails, must not end the client
                report(error, f"the handler {done!r} of a metadata update raised")

        has_to_be_driven = update.action is not None and not self.is_closed
        if has_to_be_driven and self.background.start(drive, f"metadata update ({update.cause})"):
            return
        give_up()
        asyncio.get_running_loop().call_soon(tell)


@dataclass(frozen=True, slots=True)
class LedgerKeys:
    """The keys of a ledger whose metadata, older than stored passwords, does not hold them."""

    password: bytes = field(default=b"", repr=False)
    digest_type: DigestType = DigestType.CRC32


_NO_KEYS = LedgerKeys()


def entry_codec_for(metadata: LedgerMetadata, keys: LedgerKeys = _NO_KEYS) -> EntryCodec:
    """The codec for a ledger's entries. ``keys`` count only where the metadata has none (API-7, API-8)."""
    if metadata.digest_type is None:
        return EntryCodec(metadata.ledger_id, keys.digest_type, keys.password)
    return EntryCodec(metadata.ledger_id, metadata.digest_type, metadata.password)
