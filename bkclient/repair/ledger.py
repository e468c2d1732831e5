"""Ledgers as repairs open them: as an administrator, who knows no password and disturbs no writer."""

from __future__ import annotations

from dataclasses import dataclass

from bkclient._client.core import ClientCore, entry_codec_for
from bkclient._client.open import read_metadata
from bkclient._client.reading.lac import least_lac, read_last_add_confirmed
from bkclient._client.recover import recover_ledger
from bkclient.errors import BookKeeperError, ClientClosed, MetadataStoreError, NoSuchLedger
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.repair.fragments import LedgerFragment, fragments_of
from bkclient.wire.entry import EntryCodec

__all__ = ["OpenedLedger", "administrative_codec", "open_as_administrator", "open_or_view", "view_of"]


@dataclass(frozen=True, slots=True)
class OpenedLedger:
    """A ledger as it was when it was opened: its metadata, the means to read it, and how far it was confirmed."""

    value: Versioned
    codec: EntryCodec
    last_add_confirmed: int

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata at that time."""
        return self.value.metadata

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        return self.value.metadata.ledger_id

    @property
    def fragments(self) -> tuple[LedgerFragment, ...]:
        """The ledger's fragments at that time."""
        return fragments_of(self.value.metadata, self.last_add_confirmed)


def administrative_codec(core: ClientCore, metadata: LedgerMetadata) -> EntryCodec:
    """The codec by the ledger's own password and digest type; by the configured ones for ledgers older than passwords."""
    return entry_codec_for(metadata, core.admin_keys)


def view_of(core: ClientCore, value: Versioned) -> OpenedLedger:
    """The ledger without asking any bookie: as far as its metadata proves it to be confirmed."""
    return OpenedLedger(value, administrative_codec(core, value.metadata), least_lac(value.metadata))


async def open_as_administrator(core: ClientCore, ledger_id: int, *, recover: bool = False) -> OpenedLedger:
    """Open a ledger; with ``recover`` it is fenced, recovered and closed first if it is not closed.

    Raises as :meth:`bkclient.BookKeeper.open_ledger` does, :class:`~bkclient.errors.UnauthorizedAccess` excepted.
    """
    value = await read_metadata(core, ledger_id)
    if recover and not value.metadata.is_closed:
        value = await recover_ledger(core, value, administrative_codec(core, value.metadata))
    view = view_of(core, value)
    if value.metadata.is_closed:
        return view
    found, _ = await read_last_add_confirmed(core, value.metadata, view.codec)
    return OpenedLedger(value, view.codec, found)


async def open_or_view(core: ClientCore, ledger_id: int) -> OpenedLedger:
    """The ledger opened without recovery or, if too few bookies tell how far it is confirmed, what its metadata tells."""
    try:
        return await open_as_administrator(core, ledger_id)
    except (ClientClosed, NoSuchLedger, MetadataStoreError):
        raise
    except BookKeeperError:
        return view_of(core, await read_metadata(core, ledger_id))
