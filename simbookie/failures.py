"""What a client is answered whose request the bookie could not carry out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    EntryListRequest,
    EntryListResponse,
    ErrorResponse,
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

__all__ = ["failure_of"]

_OF_ENTRY: Final[dict[type, Callable[[Status, int, int], Response]]] = {
    AddRequest: AddResponse,
    ReadRequest: ReadResponse,
    BatchReadRequest: BatchReadResponse,
}
_OF_LEDGER: Final[dict[type, Callable[[Status, int], Response]]] = {
    ReadLacRequest: ReadLacResponse,
    WriteLacRequest: WriteLacResponse,
    ForceLedgerRequest: ForceLedgerResponse,
    EntryListRequest: EntryListResponse,
}


def failure_of(request: Request, status: Status) -> Response:
    """The answer to ``request`` that says ``status``, which is an error, and nothing else."""
    if isinstance(request, AddRequest | ReadRequest | BatchReadRequest):
        return _OF_ENTRY[type(request)](status, request.ledger_id, request.entry_id)
    if isinstance(request, ReadLacRequest | WriteLacRequest | ForceLedgerRequest | EntryListRequest):
        return _OF_LEDGER[type(request)](status, request.ledger_id)
    if isinstance(request, BookieInfoRequest):
        return BookieInfoResponse(status)
    return ErrorResponse(request.operation, status)
