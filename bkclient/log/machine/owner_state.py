"""The states of an owner, and what may follow what.

::

    NEW -> CLAIMING                            claim() was called
    CLAIMING -> RECOVERING                     the predecessor left a ledger that may be written to
    CLAIMING -> READY                          there is none
    RECOVERING -> RECORDING | CREATING         every such ledger has ended; without entries to send | with some
    RECORDING -> READY                         the ends are in the manifest
    READY -> CREATING                          there is an entry to send
    CREATING -> LISTING                        the new ledger exists; it is not in the list yet, so nothing is sent to it
    LISTING -> OPEN                            it is in the list
    OPEN -> DRAINING                           the ledger is full, or old: what was sent is awaited
    OPEN, DRAINING -> ENDING                   all was stored, or an entry failed: the ledger is closed
    ENDING -> RECOVERING                       closing failed, so a recovery has to find the end
    ENDING -> RECORDING | CREATING             the end is known
    READY, ENDING, RECOVERING -> RELEASING     close() was called, and there is nothing left to send
    RELEASING -> CLOSED
    any but the last three -> DEPOSED          the manifest names another owner, or the log was deleted
    any but the last three -> FAILED           an error that repeating does not help against
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["ENDED", "OWNER_NEXT", "OwnerState"]


class OwnerState(Enum):
    """Where an owner is in its life."""

    NEW = "new"
    CLAIMING = "claiming"
    RECOVERING = "recovering"
    RECORDING = "recording"
    READY = "ready"
    CREATING = "creating"
    LISTING = "listing"
    OPEN = "open"
    DRAINING = "draining"
    ENDING = "ending"
    RELEASING = "releasing"
    CLOSED = "closed"
    DEPOSED = "deposed"
    FAILED = "failed"


ENDED: Final = (OwnerState.CLOSED, OwnerState.DEPOSED, OwnerState.FAILED)
_LOST: Final = (OwnerState.DEPOSED, OwnerState.FAILED)
_S = OwnerState

OWNER_NEXT: Final[dict[OwnerState, tuple[OwnerState, ...]]] = {
    _S.NEW: (_S.CLAIMING, *_LOST),
    _S.CLAIMING: (_S.RECOVERING, _S.READY, *_LOST),
    _S.RECOVERING: (_S.RECORDING, _S.CREATING, _S.RELEASING, *_LOST),
    _S.RECORDING: (_S.READY, *_LOST),
    _S.READY: (_S.CREATING, _S.RELEASING, *_LOST),
    _S.CREATING: (_S.LISTING, *_LOST),
    _S.LISTING: (_S.OPEN, *_LOST),
    _S.OPEN: (_S.DRAINING, _S.ENDING, *_LOST),
    _S.DRAINING: (_S.ENDING, *_LOST),
    _S.ENDING: (_S.RECOVERING, _S.RECORDING, _S.CREATING, _S.RELEASING, *_LOST),
    _S.RELEASING: (_S.CLOSED, *_LOST),
    _S.CLOSED: (),
    _S.DEPOSED: (),
    _S.FAILED: (),
}
