"""Answers and the requests that they answer: what leaves and what comes back name the same entry.

Match bytes find the request that an answer belongs to. In version 3, and for batch reads in version 2, they hold a number of the
request. The ids of ledger and entry are in the answer besides; bookies repeat those of the request. An acknowledgement or a
denial of another entry must not count for the one that was asked about.
"""

from __future__ import annotations

from bkclient.wire.errors import MalformedMessage
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    EntryListRequest,
    EntryListResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    WriteLacRequest,
    WriteLacResponse,
)

__all__ = ["check_answer", "failed_answer"]


def check_answer(request: Request, response: Response) -> None:
    """Raise :class:`~bkclient.wire.errors.MalformedMessage` if ``response`` names another ledger or entry than ``request``.

    The answer to a long poll may be any entry. An answer that is a status alone names nothing.
    """
    assert response.operation is request.operation, "the operation is part of what is matched"
    ledger_id: int | None = getattr(response, "ledger_id", None)
    if ledger_id is None:
        return
    asked: int | None = getattr(request, "ledger_id", None)
    if ledger_id != asked:
        raise MalformedMessage(f"an answer about ledger {ledger_id} to a request about ledger {asked}")
    if isinstance(request, ReadRequest) and request.long_poll is not None:
        return
    entry_id, asked = getattr(response, "entry_id", None), getattr(request, "entry_id", None)
    if entry_id != asked:
        raise MalformedMessage(
            f"an answer about entry {entry_id} of ledger {ledger_id} to a request about entry {asked}"
        )


def failed_answer(request: Request, status: Status) -> Response | None:  # noqa: PLR0911  one for each kind
    """The answer that repeats the ids of ``request`` with ``status``; None where that takes no message."""
    match request:
        case AddRequest():
            return AddResponse(status, request.ledger_id, request.entry_id)
        case ReadRequest():
            return ReadResponse(status, request.ledger_id, request.entry_id)
        case BatchReadRequest():
            return BatchReadResponse(status, request.ledger_id, request.entry_id)
        case WriteLacRequest():
            return WriteLacResponse(status, request.ledger_id)
        case ReadLacRequest():
            return ReadLacResponse(status, request.ledger_id)
        case ForceLedgerRequest():
            return ForceLedgerResponse(status, request.ledger_id)
        case BookieInfoRequest():
            return BookieInfoResponse(status)
        case EntryListRequest():
            return EntryListResponse(status, request.ledger_id)
        case _:
            return None
