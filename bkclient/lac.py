"""Reading the last add confirmed of an open ledger, without fencing."""

from __future__ import annotations

import asyncio

from bkclient.core import ClientCore
from bkclient.errors import Code, DigestMismatch, error_for
from bkclient.metadata.model import LedgerMetadata
from bkclient.protocol.lac import LacOutcome, LacRead
from bkclient.protocol.quorum import QuorumSizes
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import (
    LAST_ENTRY,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)

__all__ = ["read_last_add_confirmed"]


async def read_last_add_confirmed(core: ClientCore, metadata: LedgerMetadata, codec: EntryCodec) -> int:
    """The greatest LAC that the bookies of the last ensemble know, once they cover it (R-34; over version 2, R-37).

    Raises the error of a bookie when no coverage can be reached.
    """
    read = LacRead(QuorumSizes.of(metadata), metadata.last_fragment.ensemble)
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_reply(bookie_id: str, _request: Request, code: int, response: Response | None) -> None:
        found = -1
        if code == Code.OK:
            try:
                found = _lac_in(response, codec)
            except DigestMismatch:
                code = Code.DIGEST_MATCH  # a bad answer is no answer
        outcome = read.on_reply(bookie_id, code, found)
        if future.done():
            return
        if outcome is LacOutcome.COVERED:
            future.set_result(read.last_add_confirmed)
        elif outcome is LacOutcome.FAILED:
            future.set_exception(
                error_for(
                    read.failure_code, "too few bookies told the last add confirmed", ledger_id=metadata.ledger_id
                )
            )

    request: Request
    if core.config.wire_protocol_version == 2:
        request = ReadRequest(metadata.ledger_id, LAST_ENTRY)
    else:
        request = ReadLacRequest(metadata.ledger_id)
    for bookie_id in read.bookies:
        core.transport.submit(bookie_id, request, on_reply)
    return await future


def _lac_in(response: Response | None, codec: EntryCodec) -> int:
    """The greatest LAC in an answer; an explicit one and the last entry's header may both be there."""
    if isinstance(response, ReadResponse):
        return codec.decode(response.body or b"", None).last_add_confirmed
    assert isinstance(response, ReadLacResponse), "a LAC read is answered by a LAC read response"
    found = -1
    if response.last_entry_body is not None:
        found = codec.decode(response.last_entry_body, None).last_add_confirmed
    if response.lac_body is not None:
        found = max(found, codec.decode_lac(response.lac_body))
    return found
