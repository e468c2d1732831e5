"""Driving a metadata update against a store."""

from __future__ import annotations

import anyio

from bkclient._backoff import Backoff
from bkclient.errors import (
    BookKeeperError,
    MetadataOutcomeUnknown,
    MetadataStoreError,
    MetadataVersionConflict,
    UnexpectedCondition,
)
from bkclient.ledger import Versioned
from bkclient.metadata.base import MetadataStore
from bkclient.protocol.update import UpdateHandle, WriteMetadata

__all__ = ["drive_update"]

#: A read after an unknown outcome decides whether a write took effect, so it is worth several tries.
_READ_ATTEMPTS = 6
_READ_BACKOFF = Backoff(0.05, 1.0)


async def drive_update(update: UpdateHandle, store: MetadataStore) -> None:
    """Carry out the actions of ``update`` until it has ended. Raises nothing but cancellation; see ``update.error``."""
    while (action := update.action) is not None:
        try:
            if isinstance(action, WriteMetadata):
                update.on_written(await store.write_ledger(action.metadata, action.expected_version))
            else:
                update.on_read(await _read(store, action.ledger_id))
        except BookKeeperError as error:
            is_undecided = isinstance(error, (MetadataVersionConflict, MetadataOutcomeUnknown))
            if is_undecided and isinstance(action, WriteMetadata):
                update.on_conflict()
            else:
                update.on_error(error)
        except Exception as error:  # noqa: BLE001 - of a store, which is a plug-in; somebody waits for the outcome
            failure = UnexpectedCondition(
                f"the metadata store failed as it must not, with {error!r}", ledger_id=update.ledger_id
            )
            failure.__cause__ = error
            update.on_error(failure)


async def _read(store: MetadataStore, ledger_id: int) -> Versioned:
    for attempt in range(_READ_ATTEMPTS - 1):
        try:
            return await store.read_ledger(ledger_id)
        except MetadataStoreError:
            await anyio.sleep(_READ_BACKOFF.nth(attempt))
    return await store.read_ledger(ledger_id)
