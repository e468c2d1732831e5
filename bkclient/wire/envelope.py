"""What surrounds a message on the wire: how a client recognises the answer, how a bookie knows what it is answering.

The two protocol versions match answers to requests by different means: version 3 by a transaction id, version 2 by the ids
that the answer repeats. Both reduce to *match bytes*: an answer's match bytes equal those of its request. Taking them
raw from the frame saves decoding the answers that matter most, the acknowledgements of adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bkclient.wire.messages import Operation, Request

__all__ = [
    "HIGH_PRIORITY",
    "EncodedAdd",
    "EncodedAdds",
    "EncodedReads",
    "EncodedRequest",
    "ReceivedRequest",
    "are_laid_out_alike",
]

#: What version 3 carries as priority of a high-priority request; bookies test for "above zero".
HIGH_PRIORITY: Final = 100

_VERSIONLESS: Final = (int(Operation.AUTH), int(Operation.START_TLS))


EncodedAdd = tuple[tuple[bytes, ...], bytes, int]
"""``(buffers, acknowledgement, size)``, as in :class:`EncodedRequest`; a tuple because there is one for every append."""

EncodedAdds = tuple[Sequence[tuple[bytes, ...]], Sequence[bytes], Sequence[int]]
"""The same of several adds: the buffers of all, all acknowledgements, all sizes."""

EncodedReads = tuple[Sequence[bytes], Sequence[bytes], Sequence[bytes]]
"""``(frames, match bytes, starts of good answers' messages)`` of several reads; the starts are empty in version 2."""


def are_laid_out_alike(*columns: Sequence[bytes]) -> bool:
    """Whether what is made of these, one of each column, has one layout: in each of them all have one size."""
    return all(len(set(map(len, column))) == 1 for column in columns)


@dataclass(slots=True, eq=False)
class EncodedRequest:
    """A request ready to be sent, as often as needed.

    ``buffers`` are the frame in pieces, ``size`` its bytes in all. ``match`` are its match bytes, and ``acknowledgement``,
    for adds only, is the whole frame of the answer that the entry was stored.
    """

    txn_id: int
    match: bytes
    buffers: tuple[bytes, ...] = field(repr=False)
    size: int
    acknowledgement: bytes | None = None


@dataclass(slots=True, eq=False)
class ReceivedRequest:
    """A request as a bookie received it, with what its answer has to repeat.

    ``request`` is ``None`` for an operation that has a number and no message; the answer is a refusal. ``packet_version`` is
    what the client claims to speak and has to be checked by the bookie, which answers ``BAD_VERSION`` where
    :attr:`is_version_supported` is false.
    """

    protocol_version: int
    packet_version: int
    operation: int
    txn_id: int
    priority: int
    request: Request | None

    @property
    def is_version_supported(self) -> bool:
        """Whether a bookie may carry the request out.

        Bookies look at the version of a request for a ledger or for bookie information only: AUTH and START_TLS come before
        anything is agreed, and what has no message is refused for that.
        """
        if self.request is None or self.operation in _VERSIONLESS:
            return True
        if self.protocol_version == 3:
            return self.packet_version == 3
        return 0 <= self.packet_version <= 2
