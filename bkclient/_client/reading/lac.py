"""Reading the last add confirmed of an open ledger, without fencing: surely, or quickly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from bkclient._client.core import ClientCore
from bkclient._client.defects import defect
from bkclient._client.exchange import answers
from bkclient.errors import Code, error_for
from bkclient.ledger import BookieId, LedgerMetadata
from bkclient.observability.stats import READ_LAC, TRY_READ_LAC
from bkclient.protocol.lac import LacOutcome, LacProgress, LacRead
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

__all__ = ["ToldLac", "least_lac", "read_last_add_confirmed", "start_lac_read", "try_read_last_add_confirmed"]


class ToldLac(NamedTuple):
    """A LAC, and a bookie that told it; None if the metadata did, or if there are no entries."""

    last_add_confirmed: int
    told_by: BookieId | None


def least_lac(metadata: LedgerMetadata) -> int:
    """What must be confirmed because the metadata says so.

    That is the end of a closed ledger, else all before the last fragment: its writer had it confirmed (W-34, T-72).
    """
    return metadata.last_entry_id if metadata.is_closed else metadata.last_fragment.first_entry_id - 1


async def read_last_add_confirmed(core: ClientCore, metadata: LedgerMetadata, codec: EntryCodec) -> ToldLac:
    """The greatest LAC that the bookies of the last ensemble know, once they cover it (R-34; over version 2, R-37).

    Raises the error of a bookie when no coverage can be reached.
    """
    return await start_lac_read(core, metadata, codec)


def start_lac_read(core: ClientCore, metadata: LedgerMetadata, codec: EntryCodec) -> asyncio.Future[ToldLac]:
    """As :func:`read_last_add_confirmed`, for callers that may come and go while the answer is on its way."""
    request: Request
    if core.config.connections.protocol_version == 2:
        request = ReadRequest(metadata.ledger_id, LAST_ENTRY)
    else:
        request = ReadLacRequest(metadata.ledger_id)
    machine = LacRead(QuorumSizes.of(metadata), metadata.last_fragment.ensemble)
    call = _LacCall(core, codec, machine, READ_LAC, least_lac(metadata), None)
    call.ask(request)
    return call.future


async def try_read_last_add_confirmed(
    core: ClientCore, metadata: LedgerMetadata, codec: EntryCodec, known: int, on_lac: Callable[[int, BookieId], None]
) -> ToldLac:
    """A LAC above ``known`` as soon as any bookie tells one, else ``known`` (R-38).

    ``on_lac`` is told what each bookie says, after that too. Raises the most telling error of the bookies if all fail.
    """
    least = max(known, least_lac(metadata))
    machine = LacProgress(metadata.last_fragment.ensemble, least)
    call = _LacCall(core, codec, machine, TRY_READ_LAC, least, on_lac)
    call.ask(ReadRequest(metadata.ledger_id, LAST_ENTRY))
    return await call.future


class _LacCall:
    """One LAC on its way from the bookies of an ensemble."""

    def __init__(
        self,
        core: ClientCore,
        codec: EntryCodec,
        machine: LacRead | LacProgress,
        operation: str,
        least: int,
        on_lac: Callable[[int, BookieId], None] | None,
    ) -> None:
        self._core = core
        self._codec = codec
        self._machine = machine
        self._operation = operation
        self._least = least
        self._on_lac = on_lac
        self._told = ToldLac(-1, None)
        self._began = 0.0 if core.stats is None else core.stats.now()
        self.future: asyncio.Future[ToldLac] = asyncio.get_running_loop().create_future()

    def ask(self, request: Request) -> None:
        for bookie_id in self._machine.bookies:
            self._core.transport.submit(bookie_id, request, self._on_reply)

    def _decode(self, _request: Request, response: Response | None) -> int:
        return _lac_in(response, self._codec)

    def note_failure(self, bookie_id: BookieId, code: int) -> None:
        """See :class:`~bkclient._client.exchange.Requester`."""
        if code != Code.CLIENT_CLOSED:
            self._core.watcher.on_request_failed(bookie_id, code)

    @answers(_decode)
    def _on_reply(self, bookie_id: BookieId, _request: Request, code: int, lac: int | None) -> None:
        found = -1 if lac is None else lac
        if self._on_lac is not None:
            self._on_lac(found, bookie_id)
        if found > self._told.last_add_confirmed:
            self._told = ToldLac(found, bookie_id)
        outcome = self._machine.on_reply(bookie_id, code, found)
        if not self.future.done() and outcome is not LacOutcome.WAITING:
            self._finish(outcome)

    def _finish(self, outcome: LacOutcome) -> None:
        machine, stats = self._machine, self._core.stats
        code = int(Code.OK)
        if outcome is LacOutcome.COVERED:
            lac = max(self._least, machine.last_add_confirmed)
            self.future.set_result(self._told if self._told.last_add_confirmed == lac else ToldLac(lac, None))
        else:
            code = machine.failure_code
            why = "too few bookies told the last add confirmed"
            self.future.set_exception(
                error_for(code, why, ledger_id=self._codec.ledger_id, bookie_id=machine.failed_by)
            )
        if stats is not None:
            stats.operation(self._operation, stats.now() - self._began, code)

    def on_defect(self, error: Exception) -> None:
        """The handler of an answer raised; see :func:`~bkclient._client.defects.ends_operation`."""
        failure = defect(error, "a read of the last add confirmed", ledger_id=self._codec.ledger_id)
        if not self.future.done():
            self.future.set_exception(failure)


def _lac_in(response: Response | None, codec: EntryCodec) -> int:
    """The greatest LAC in an answer; an explicit one, the last entry's header, and what a bookie knows may all be there."""
    if isinstance(response, ReadResponse):
        found = codec.decode(response.body or b"", None).last_add_confirmed
        return found if response.max_lac is None else max(found, response.max_lac)
    assert isinstance(response, ReadLacResponse), "a LAC read is answered by a LAC read response"
    found = -1
    if response.last_entry_body is not None:
        found = codec.decode(response.last_entry_body, None).last_add_confirmed
    if response.lac_body is not None:
        found = max(found, codec.decode_lac(response.lac_body))
    return found
