"""The states of a connection that carries requests, and what may follow what.

::

    NEW -> ESTABLISHED                       the socket is connected, and secured if that is asked for
    ESTABLISHED -> WORKING                   the first answer has come
    ESTABLISHED, WORKING -> DETACHED         it broke, or was given up: what was outstanding has ended
    DETACHED -> ENDED                        its socket is closed

Requests are taken, and answers handed out, while it is ESTABLISHED or WORKING. In all other states nothing is outstanding.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["NEXT", "StreamState"]


class StreamState(Enum):
    """Where a connection is in its life."""

    #: Its socket is not connected yet.
    NEW = "new"
    #: It takes requests; the bookie has answered none.
    ESTABLISHED = "established"
    #: It takes requests, and the bookie answers.
    WORKING = "working"
    #: It takes no more, and nothing is outstanding; the socket is being closed.
    DETACHED = "detached"
    #: The socket is closed.
    ENDED = "ended"


NEXT: Final = {
    StreamState.NEW: (StreamState.ESTABLISHED,),
    StreamState.ESTABLISHED: (StreamState.WORKING, StreamState.DETACHED),
    StreamState.WORKING: (StreamState.DETACHED,),
    StreamState.DETACHED: (StreamState.ENDED,),
    StreamState.ENDED: (),
}
