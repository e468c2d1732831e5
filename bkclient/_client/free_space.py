"""Asking bookies for their free disk space, for weighted placement (:mod:`bkclient.placement.disk_info`)."""

from __future__ import annotations

from bkclient._client.core import ClientCore
from bkclient._client.exchange import ask
from bkclient.errors import UnexpectedCondition
from bkclient.ledger import BookieId
from bkclient.wire.messages import BookieInfoRequest, BookieInfoResponse, Request, Response

__all__ = ["free_space_of"]

_FREE_SPACE = 2


async def free_space_of(core: ClientCore, bookie_id: BookieId) -> int | None:
    """The free bytes of a bookie, None if it does not tell."""
    try:
        _, free_bytes = await ask(core, bookie_id, BookieInfoRequest(_FREE_SPACE), _free_bytes, "asking for disk space")
    except UnexpectedCondition:
        return None  # the event loop was told
    return free_bytes


def _free_bytes(_request: Request, response: Response | None) -> int:
    assert isinstance(response, BookieInfoResponse), "a question for disk space is answered by numbers"
    return response.free_disk_space or 0
