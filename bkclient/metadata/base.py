"""The one seam between the client and the metadata service.

A :class:`MetadataStore` is a linearizable register per ledger with compare-and-set, an id generator, and the registry
of bookies. All methods raise :class:`bkclient.errors.BookKeeperError` subclasses only; exceptions of a driver's own
library stop inside the driver.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from bkclient.ledger import BookieId, LedgerMetadata, Versioned

__all__ = [
    "BookieAddress",
    "BookieListener",
    "BookieRegistry",
    "BookieSets",
    "Cancel",
    "LedgerListener",
    "MetadataStore",
]

Cancel = Callable[[], None]
"""Ends a watch. Idempotent; the listener is not called afterwards."""

LedgerListener = Callable[[Versioned | None], None]
"""Called with the new value after a ledger's metadata changed, ``None`` after it was deleted."""


@dataclass(frozen=True, slots=True)
class BookieAddress:
    """Where a bookie listens, and what it offers there beyond requests in clear: ``tls`` is all that is known today."""

    host: str
    port: int
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BookieSets:
    """The registered bookies, each set sorted by id."""

    writable: tuple[BookieId, ...] = ()
    read_only: tuple[BookieId, ...] = ()


BookieListener = Callable[[BookieSets], None]


class BookieRegistry(Protocol):
    """Which bookies are alive, and where."""

    async def bookies(self) -> BookieSets:
        """The bookies registered now."""
        ...

    def watch_bookies(self, listener: BookieListener) -> Cancel:
        """Call ``listener`` with the registered sets soon after this call, and again after every change of them.

        Calls come from the event loop, in order, never from within this call; sets that changed several times in quick
        succession may be reported once.
        """
        ...

    async def bookie_address(self, bookie_id: BookieId) -> BookieAddress:
        """Where ``bookie_id`` listens; :class:`~bkclient.errors.BookieNotAvailable` if it was never registered."""
        ...

    async def register_bookie(self, bookie_id: BookieId, address: BookieAddress, *, read_only: bool = False) -> None:
        """Announce a bookie for as long as this store's session lives; again with another ``read_only`` to move it.

        :class:`~bkclient.errors.MetadataStoreError` if another session holds the id and keeps it.
        """
        ...

    async def unregister_bookie(self, bookie_id: BookieId) -> None:
        """Withdraw the announcement. Idempotent."""
        ...


class MetadataStore(BookieRegistry, Protocol):
    """Versioned ledger metadata with compare-and-set."""

    async def generate_ledger_id(self) -> int:
        """A ledger id that no earlier call, of any client, returned."""
        ...

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned:
        """Register a new ledger; :class:`~bkclient.errors.LedgerExists` if another creator has the id."""
        ...

    async def read_ledger(self, ledger_id: int) -> Versioned:
        """The present value; :class:`~bkclient.errors.NoSuchLedger` if there is none."""
        ...

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """Replace the value if its version still is ``expected_version``.

        Raises :class:`~bkclient.errors.MetadataVersionConflict` if it is not, :class:`~bkclient.errors.NoSuchLedger`
        if the ledger is gone, :class:`~bkclient.errors.MetadataOutcomeUnknown` if the connection was lost in between.
        """
        ...

    async def delete_ledger(self, ledger_id: int) -> None:
        """Remove the ledger whatever its version; succeeds if there is none."""
        ...

    def list_ledgers(self) -> AsyncIterator[int]:
        """All ledger ids, ascending within a range of the store; not a snapshot."""
        ...

    def watch_ledger(self, ledger_id: int, listener: LedgerListener) -> Cancel:
        """Call ``listener`` with the ledger's metadata soon after this call, and again after every change of it.

        The first call closes the gap between the caller's last read and the watch. Calls come from the event loop, in
        order, never from within this call; changes in quick succession may be reported once, by the last of them.
        """
        ...

    async def aclose(self) -> None:
        """End the session; bookies registered through it disappear. Idempotent."""
        ...
