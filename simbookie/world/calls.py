"""What clients and bookies send each other over the simulated network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bkclient.wire.messages import AddRequest, ReadResponse, Request, Response

__all__ = ["RequestMessage", "ResponseMessage", "size_of"]

_HEAD_BYTES: Final = 100
"""What a message counts as beside its entry."""


@dataclass(slots=True, eq=False)
class RequestMessage:
    """A request on its way to a bookie. ``call_id`` tells the requests of one client apart."""

    call_id: int
    request: Request


@dataclass(slots=True, eq=False)
class ResponseMessage:
    """The response on its way back, with the request it answers, so that targeted faults can tell which it is."""

    call_id: int
    request: Request
    response: Response


def size_of(message: object) -> int:
    """What a message counts as where faults count bytes: its entry, and 100 bytes for all else."""
    if isinstance(message, RequestMessage) and isinstance(message.request, AddRequest):
        return _HEAD_BYTES + len(message.request.header) + len(message.request.payload)
    if isinstance(message, ResponseMessage) and isinstance(message.response, ReadResponse):
        return _HEAD_BYTES + len(message.response.body or b"")
    return _HEAD_BYTES
