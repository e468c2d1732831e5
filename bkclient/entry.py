"""Entries as a reader gets them, and the reading of one from its replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bkclient.errors import Code, DigestMismatch, error_for
from bkclient.metadata.model import LedgerMetadata
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.read import EntryRead, ReadOutcome
from bkclient.transport.base import BookieTransport
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import ReadRequest, ReadResponse, Request, Response

__all__ = ["Entry", "start_entry_read"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as read. ``length`` is the ledger's payload bytes up to and including this entry (API-13).

    ``last_add_confirmed`` is what the writer knew to be confirmed when it sent the entry (LAC-1).
    """

    ledger_id: int
    entry_id: int
    payload: bytes
    length: int
    last_add_confirmed: int


def start_entry_read(
    transport: BookieTransport,
    codec: EntryCodec,
    metadata: LedgerMetadata,
    entry_id: int,
    on_max_lac: Callable[[int], None],
) -> asyncio.Future[Entry]:
    """Read one entry from the ensemble that ``metadata`` says stores it; returns a future, no task is made.

    ``on_max_lac`` is told the LAC that a bookie knows, where its answer carries one (LAC-3). The future fails with the most
    telling error of the replicas (R-13). Cancelling it asks no further replica.
    """
    return _EntryCall(transport, codec, metadata, entry_id, on_max_lac).future


class _EntryCall:
    __slots__ = ("_codec", "_machine", "_on_max_lac", "_request", "_transport", "future")

    def __init__(
        self,
        transport: BookieTransport,
        codec: EntryCodec,
        metadata: LedgerMetadata,
        entry_id: int,
        on_max_lac: Callable[[int], None],
    ) -> None:
        ensemble = metadata.ensemble_at(entry_id)
        write_set = QuorumSizes.of(metadata).write_set(entry_id)
        self._transport = transport
        self._codec = codec
        self._machine = EntryRead(entry_id, (ensemble[position] for position in write_set))
        self._on_max_lac = on_max_lac
        self._request = ReadRequest(metadata.ledger_id, entry_id)
        self.future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._ask()

    def _ask(self) -> None:
        for bookie_id in self._machine.to_ask():
            self._transport.submit(bookie_id, self._request, self._on_reply)

    def _on_reply(self, bookie_id: str, _request: Request, code: int, response: Response | None) -> None:
        entry: Entry | None = None
        if code == Code.OK:
            assert isinstance(response, ReadResponse), "a read is answered by a read response"
            try:
                entry = self._decode(response)
            except DigestMismatch:
                code = Code.DIGEST_MATCH
        outcome = self._machine.on_reply(bookie_id, code)
        if self.future.done():
            return
        if outcome is ReadOutcome.WAITING:
            self._ask()
        elif entry is not None:
            self.future.set_result(entry)
        else:
            machine = self._machine
            self.future.set_exception(
                error_for(
                    machine.code,
                    ledger_id=self._request.ledger_id,
                    entry_id=machine.entry_id,
                    bookie_id=machine.code_from,
                )
            )

    def _decode(self, response: ReadResponse) -> Entry:
        decoded = self._codec.decode(response.body or b"", self._machine.entry_id)
        if response.max_lac is not None:
            self._on_max_lac(response.max_lac)
        return Entry(decoded.ledger_id, decoded.entry_id, decoded.payload, decoded.length, decoded.last_add_confirmed)
