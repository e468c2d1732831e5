"""The states of a writer, and what may follow what.

::

    OPEN <-> CHANGING                      a bookie failed, and new metadata is being stored
    OPEN, CHANGING -> FAILED               a fatal error, after which others decide where the ledger ends (W-44)
    OPEN, CHANGING, FAILED -> CLOSING      close() was called, or a fatal error after which this writer seals the ledger
    CLOSING -> CLOSED

While the writer is OPEN or CHANGING it takes entries. While it is CHANGING none completes, which is what makes an ensemble
change safe; see :mod:`~bkclient.protocol.adds`. In all other states nothing is pending.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["HAS_ENDED", "NEXT", "WriterState"]


class WriterState(Enum):
    """Where a writer is in its life."""

    #: It takes entries, and they complete.
    OPEN = "open"
    #: It takes entries, and none completes before new metadata is stored.
    CHANGING = "changing"
    #: It ended by :attr:`~bkclient.protocol.append.AppendMachine.fatal_error`, and left the ledger open.
    FAILED = "failed"
    #: It takes no more; the metadata is being closed.
    CLOSING = "closing"
    #: The metadata is closed, or could not be.
    CLOSED = "closed"


NEXT: Final = {
    WriterState.OPEN: (WriterState.CHANGING, WriterState.FAILED, WriterState.CLOSING),
    WriterState.CHANGING: (WriterState.OPEN, WriterState.FAILED, WriterState.CLOSING),
    WriterState.FAILED: (WriterState.CLOSING,),
    WriterState.CLOSING: (WriterState.CLOSED,),
    WriterState.CLOSED: (),
}
HAS_ENDED: Final = (WriterState.FAILED, WriterState.CLOSING, WriterState.CLOSED)
