"""What clients and bookies send each other over the simulated network."""

from __future__ import annotations

from dataclasses import dataclass

from bkclient.wire.messages import Request, Response

__all__ = ["RequestMessage", "ResponseMessage"]


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
