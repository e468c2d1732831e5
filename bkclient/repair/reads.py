"""Reading single copies of entries, a bounded number at a time.

Repairs ask one particular bookie, where a reader asks whichever replica is best. A copy counts as read only if its digest
fits: bytes that do not are no copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from bkclient._client.core import ClientCore
from bkclient._client.defects import defect
from bkclient._client.exchange import ask, no_value
from bkclient.entry import Entry
from bkclient.errors import BookKeeperError, Code, ReplicationFailed, code_of, error_for
from bkclient.ledger import BookieId
from bkclient.protocol.read import EntryRead, ReadOutcome
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest, ReadRequest, ReadResponse, Request, Response

__all__ = ["Copy", "CopyReads", "ReadBatch", "read_any_copy", "write_copies"]

Copy = tuple[Entry, bytes]
"""An entry, and the body that it was decoded from."""

_READING: Final = "a read of a copy"

OnRead = Callable[[int, Entry | None], None]
"""``(code, entry)``: the entry is there exactly if the code is OK. Must not raise."""


class CopyReads:
    """Bounds the reads of everybody who shares it to ``limit`` at a time."""

    def __init__(self, core: ClientCore, limit: int) -> None:
        self.core = core
        self._room = asyncio.Semaphore(limit)

    async def start(self, codec: EntryCodec, entry_id: int, bookie_id: BookieId, on_read: OnRead) -> None:
        """Wait for room, then ask; ``on_read`` is called once, later. A caller who was cancelled is still called."""
        await self._room.acquire()
        answer = ask(self.core, bookie_id, ReadRequest(codec.ledger_id, entry_id), partial(_copy_in, codec), _READING)
        answer.add_done_callback(partial(self._on_answer, on_read))

    def _on_answer(self, on_read: OnRead, answer: asyncio.Future[tuple[int, Copy | None]]) -> None:
        self._room.release()
        error = answer.exception()
        if error is not None:
            on_read(code_of(error), None)
        else:
            code, copy = answer.result()
            on_read(code, None if copy is None else copy[0])


class ReadBatch:
    """Reads that belong together: started one by one, waited for at the end."""

    def __init__(self, reads: CopyReads, codec: EntryCodec) -> None:
        self._reads = reads
        self._codec = codec
        self._outstanding = 0
        self._drained = asyncio.Event()
        self._failure: BookKeeperError | None = None

    async def read(self, entry_id: int, bookie_id: BookieId, on_read: OnRead) -> None:
        """Start one read, as soon as there is room."""
        self._outstanding += 1
        self._drained.clear()

        def done(code: int, entry: Entry | None) -> None:
            self._outstanding -= 1
            if self._outstanding == 0:
                self._drained.set()
            try:
                on_read(code, entry)
            except Exception as error:  # noqa: BLE001 - what was to be noted is not, and the batch is worth nothing
                self._failure = defect(error, "a read of copies", ledger_id=self._codec.ledger_id, entry_id=entry_id)

        await self._reads.start(self._codec, entry_id, bookie_id, done)

    async def drained(self) -> None:
        """Wait until every read has its answer; :class:`~bkclient.errors.UnexpectedCondition` if a handler raised."""
        while self._outstanding:
            await self._drained.wait()
        if self._failure is not None:
            raise self._failure


async def read_any_copy(core: ClientCore, codec: EntryCodec, entry_id: int, replicas: Iterable[BookieId]) -> Copy:
    """The entry from the first of ``replicas`` that gives it, asked in this order, with the body as it is stored.

    Fails with the most telling error of all.
    """
    machine = EntryRead(entry_id, replicas)
    request = ReadRequest(codec.ledger_id, entry_id)
    copy: Copy | None = None
    while machine.outcome is ReadOutcome.WAITING:
        for bookie_id in machine.to_ask():
            code, copy = await ask(core, bookie_id, request, partial(_copy_in, codec), _READING)
            machine.on_reply(bookie_id, code)
    if copy is None:
        raise error_for(
            machine.code,
            "no replica gave the entry",
            ledger_id=codec.ledger_id,
            entry_id=entry_id,
            bookie_id=machine.code_from,
        )
    return copy


async def write_copies(
    core: ClientCore, codec: EntryCodec, entry_id: int, body: bytes, bookies: Sequence[BookieId]
) -> None:
    """Store ``body`` at all of ``bookies``, past fences; :class:`~bkclient.errors.ReplicationFailed` unless all take it.

    The body is stored as it was read: the writer's own digest protects the copy too, and all copies are the same bytes.
    """
    request = AddRequest(
        codec.ledger_id, entry_id, codec.master_key, body[: codec.overhead], body[codec.overhead :], recovery=True
    )
    answers = await asyncio.gather(
        *[ask(core, bookie_id, request, no_value, "a write of a copy") for bookie_id in bookies]
    )
    for bookie_id, (code, _) in zip(bookies, answers, strict=True):
        if code != Code.OK:
            cause = error_for(code, ledger_id=codec.ledger_id, entry_id=entry_id, bookie_id=bookie_id)
            raise ReplicationFailed(
                "a new bookie did not take its copy", ledger_id=codec.ledger_id, entry_id=entry_id, bookie_id=bookie_id
            ) from cause


def _copy_in(codec: EntryCodec, request: Request, response: Response | None) -> Copy:
    assert isinstance(request, ReadRequest), "copies are read"
    assert isinstance(response, ReadResponse), "a read is answered by a read response"
    body = response.body or b""
    return codec.decode(body, request.entry_id), body
