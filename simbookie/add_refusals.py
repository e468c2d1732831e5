"""What an entry is refused for, once its ledger is known."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bkclient.wire.messages import LAST_ENTRY, AddRequest, Status
from simbookie.config import BookieConfig
from simbookie.ledgers import LedgerHandle, LedgerTable
from simbookie.storage.base import LedgerStorage

__all__ = ["add_refusal", "status_of_short_add", "takes_high_priority"]

_LEDGER_ID: Final = Struct(">q")
# Every add asks for it, and members of an enumeration take longer to find.
_OK: Final = Status.OK


def add_refusal(request: AddRequest, handle: LedgerHandle, entry_id: int) -> Status:
    """Why the ledger of ``handle`` takes no entry with this id from ``request``; OK if it does."""
    if handle.fenced and not request.recovery:
        return Status.FENCED
    if handle.in_limbo and not request.recovery:
        return Status.UNAUTHORIZED
    return Status.BAD_REQUEST if entry_id < 0 else _OK


def takes_high_priority(config: BookieConfig, storage: LedgerStorage) -> bool:
    """Whether a read-only bookie takes adds of high priority."""
    return config.high_priority_adds_when_read_only and storage.has_high_priority_room


def status_of_short_add(table: LedgerTable, request: AddRequest, body: bytes) -> Status:
    """The answer to a body that is too short for an entry."""
    # an intruder or a fenced writer is told so first, but a ledger is not created for garbage
    if len(body) >= _LEDGER_ID.size:
        handle = table.find(_LEDGER_ID.unpack_from(body)[0])
        if handle is not None:
            if handle.master_key not in (None, request.master_key):
                return Status.UNAUTHORIZED
            return add_refusal(request, handle, LAST_ENTRY)
    return Status.BAD_REQUEST
