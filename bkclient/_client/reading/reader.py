"""Reading a ledger, closed or still being written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Self

from bkclient._client.arguments import check_duration
from bkclient._client.core import ClientCore
from bkclient._client.rate_limit import RateLimit
from bkclient._client.reading.followed import FollowedLedger
from bkclient._client.reading.reads import LedgerReads
from bkclient._client.reading.tail import LedgerTail
from bkclient.entry import Entry
from bkclient.ledger import LedgerMetadata
from bkclient.wire.entry import EntryCodec

__all__ = ["LedgerReader"]

_LONGEST_PATIENCE_S: Final = 86_400.0


class LedgerReader(LedgerReads):
    """Reads a ledger, from :meth:`bkclient.BookKeeper.open_ledger`.

    Entries up to :attr:`last_add_confirmed` can be read; they are acknowledged and stay. On a closed ledger that is its
    last entry. On an open one it advances with :meth:`read_last_add_confirmed`, with what bookies tell in passing, and when
    the ledger is closed. ``async for entry in reader`` yields everything up to it, ``async for entry in
    reader.tail()`` goes on with what is written later.

    The reader of an open ledger follows its metadata, so it learns of new ensembles and of the close from the metadata
    store, whatever bookies answer; of a closed one if it was opened with ``keep_metadata_updated``.

    A ledger that is closed below what its bookies told to be confirmed has lost entries, which the protocol rules out. If it
    happens nevertheless, the reader logs it as an error and keeps to the end of the ledger, the one time that
    :attr:`last_add_confirmed` goes back; a tail that has delivered more fails.
    """

    __module__ = "bkclient"

    def __init__(self, core: ClientCore, followed: FollowedLedger, codec: EntryCodec) -> None:
        super().__init__(core, followed, codec, RateLimit.of(core.config.limits))
        self._followed = followed
        followed.on_metadata_changed = self._polls.on_metadata
        followed.on_client_closed = self._reads.stop

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this reader knows it."""
        return self._followed.metadata

    @property
    def metadata_version(self) -> int:
        """The version of :attr:`metadata` in the store."""
        return self._followed.value.version

    @property
    def is_closed(self) -> bool:
        """Whether the end of the ledger is final."""
        return self._followed.metadata.is_closed

    @property
    def is_deleted(self) -> bool:
        """Whether this reader, while it followed the ledger, saw it deleted. Bookies drop its entries some time later."""
        return self._followed.is_deleted

    @property
    def is_following(self) -> bool:
        """Whether this reader learns what becomes of the ledger."""
        return self._followed.is_following

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; of an open one those up to the last confirmed entry read here."""
        return self._followed.length

    def __repr__(self) -> str:
        state = "deleted" if self.is_deleted else self.metadata.state.name.lower()
        return f"<LedgerReader ledger_id={self.ledger_id} {state} last_add_confirmed={self.last_add_confirmed}>"

    # Reading -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Entry]:
        if self.last_add_confirmed < 0:
            return _nothing()
        return self._iterate(0, self.last_add_confirmed, parallel=False)

    def tail(self, first_entry_id: int = 0, *, patience_s: float = 60.0) -> LedgerTail:
        """The entries from ``first_entry_id`` on, each once and in order, as they are confirmed, until the ledger is closed.

        The last entry before a pause of the writer comes 0.1 to 0.2 seconds late, or what that writer's
        ``writing.explicit_lac_interval_s`` says; without explicit LACs, as from BookKeeper's own client by default, it comes
        with the next entry or at the close.
        Bookies that fail and ensembles that change are lived through; :meth:`~bkclient.LedgerTail.__anext__` raises
        the error of the bookies once nothing but failures came for ``patience_s`` seconds, and at once what repeating does
        not help against. After the ledger was deleted it raises :class:`~bkclient.errors.NoSuchLedger` where it would have
        to wait.
        """
        self._check_range(first_entry_id, first_entry_id, unconfirmed=True)
        check_duration("patience_s", patience_s, _LONGEST_PATIENCE_S)
        return LedgerTail(self._followed, self._reads, self._polls, first_entry_id, patience_s)

    # Following the metadata --------------------------------------------------------------------------------------

    async def wait_closed(self) -> None:
        """Wait until the ledger is closed: its end is final, and :attr:`last_add_confirmed` tells it.

        Returns at once if it is. Raises :class:`~bkclient.errors.NoSuchLedger` when the ledger is deleted instead,
        :class:`~bkclient.errors.ClientClosed` when the client is closed, and :class:`~bkclient.errors.IllegalOperation`
        when this reader is, or never followed its ledger.
        """
        if not self.is_closed:
            self._reads.check_open()
            await self._followed.closed()

    async def aclose(self) -> None:
        """Stop following the ledger, as leaving ``async with`` does. Nothing happens to the ledger. Idempotent.

        What is known of it can still be read; tails and :meth:`wait_closed` end.
        """
        self._followed.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


async def _nothing() -> AsyncIterator[Entry]:
    return
    yield
