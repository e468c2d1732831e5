"""Consecutive entries that are read with one call: asked for together, and handed over as they come.

A run has no object for an entry whose first replica delivers it (:mod:`bkclient.protocol.read_run`). Whatever else happens to one
makes it an :class:`~bkclient._client.reading.entry_reads.EntryCall` and is told to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from bkclient._client.defects import defect
from bkclient._client.reading.entry_reads import EntryCall, EntryReads, ReadOperation
from bkclient._fresh import fresh
from bkclient.entry import Entry
from bkclient.errors import Code
from bkclient.ledger import BookieId
from bkclient.observability.stats import READ
from bkclient.protocol.read_run import ReadRun
from bkclient.wire.connection import FoundBody
from bkclient.wire.messages import ReadRequest, ReadResponse, Request, Response, Status

__all__ = ["Outcomes", "RunCall"]


class Outcomes(Protocol):
    """Where entries go that were read."""

    @property
    def is_cleared(self) -> bool:
        """Whether nobody wants them any more."""
        ...

    def put(self, entry_id: int, outcome: asyncio.Future[Entry]) -> None:
        """An entry has a read of its own; at most once of each, and never if it was found."""
        ...

    def put_entries(self, entries: Sequence[Entry]) -> None:
        """Entries were found, at least one; once of each."""
        ...


class RunCall:
    """A run on its way, in the handler of all its answers. Compared by identity."""

    __slots__ = ("_began", "_calls", "_machine", "_operation", "_outcomes", "_reads", "_seen")

    def __init__(
        self, reads: EntryReads, operation: ReadOperation, outcomes: Outcomes, first_entry_id: int, count: int
    ) -> None:
        self._reads = reads
        self._operation = operation
        self._outcomes = outcomes
        self._machine = ReadRun(first_entry_id, reads.replicas_from(first_entry_id, count))
        self._calls: dict[int, EntryCall] = {}
        self._seen = operation.answers
        self._began = 0.0 if reads.stats is None else reads.stats.now()

    def ask(self) -> None:
        """Send the requests; the permits for them were taken before."""
        for bookie_id, entry_ids in self._machine.to_ask().items():
            self._reads.sender.send(bookie_id, entry_ids, self)
        self._reads.await_answer(self)

    def late(self) -> None:
        """The first answers are late: of those that have not come, each goes on by itself."""
        for entry_id in list(self._machine.waiting):
            self._single(entry_id).late()

    def on_found(self, bookie_id: BookieId, found: Sequence[FoundBody]) -> None:
        """See :class:`~bkclient.transport.reads.ReadReplies`."""
        try:
            self._on_found(bookie_id, found)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the entries
            self.on_defect(error)

    def __call__(self, bookie_id: BookieId, request: Request, code: int, response: Response | None) -> None:
        """Any answer, as a :class:`~bkclient.transport.base.ReplyHandler` hears of it."""
        try:
            assert isinstance(request, ReadRequest), "nothing else was sent"
            if not code and isinstance(response, ReadResponse):
                self._on_found(bookie_id, ((request.entry_id, response.body or b"", response.max_lac),))
            else:
                self._single(request.entry_id).on_reply(bookie_id, request, code, response)
        except Exception as error:  # noqa: BLE001 - as above
            self.on_defect(error)

    def _on_found(self, bookie_id: BookieId, found: Sequence[FoundBody]) -> None:
        while found:
            good = self._take(bookie_id, found)
            if good < len(found):
                # of its own is what was late, and now what does not verify: it finds that out again, and asks the next replica
                entry_id, body, max_lac = found[good]
                request = ReadRequest(self._reads.codec.ledger_id, entry_id)
                response = ReadResponse(Status.OK, request.ledger_id, entry_id, body, max_lac)
                self._single(entry_id).on_reply(bookie_id, request, Code.OK, response)
            found = found[good + 1 :]

    def _take(self, bookie_id: BookieId, found: Sequence[FoundBody]) -> int:
        """Hand over what was found, up to the first that does not verify or was late; returns how many that are."""
        reads, operation, waiting = self._reads, self._operation, self._machine.waiting
        entry_ids, bodies, told = zip(*found, strict=True)
        if not waiting.keys() >= set(entry_ids):
            on_time = next(place for place, entry_id in enumerate(entry_ids) if entry_id not in waiting)
            entry_ids, bodies = entry_ids[:on_time], bodies[:on_time]
        entries = reads.codec.decode_several(entry_ids, bodies)
        good = len(entries)
        if not good:
            return 0
        reads.view.on_entries_read(entries, told[:good], bookie_id)
        self._machine.found(entry_ids[:good])
        self._outcomes.put_entries(entries)
        operation.answers += good
        operation.answering[bookie_id] = operation.answers
        if not waiting:
            reads.waiting.pop(self, None)
        if reads.batches is not None and reads.batches.has_suspects:
            reads.batches.on_single_read(bookie_id, reads.loop.time())
        if reads.stats is not None:
            seconds = reads.stats.now() - self._began
            for _ in range(good):
                reads.stats.operation(READ, seconds, Code.OK)
        return good

    def _single(self, entry_id: int) -> EntryCall:
        """The entry's own call, from now on if it had none; cancelled if nobody wants the entry."""
        call = self._calls.get(entry_id)
        if call is None:
            machine = self._machine.single(entry_id)
            call = self._calls[entry_id] = EntryCall(self._reads, machine, self._operation)
            call.began(self._began, self._seen)
            if not self._machine.waiting:
                self._reads.waiting.pop(self, None)
            if self._outcomes.is_cleared:
                call.future.cancel()
            else:
                self._outcomes.put(entry_id, call.future)
        return call

    def on_defect(self, error: Exception) -> None:
        """A handler raised; see :func:`~bkclient._client.defects.ends_operation`."""
        waiting, ledger_id = self._machine.waiting, self._reads.codec.ledger_id
        failure = defect(error, "a read", ledger_id=ledger_id, entry_id=next(iter(waiting), None))
        self._reads.waiting.pop(self, None)
        for entry_id in list(waiting):
            call = self._single(entry_id)
            if not call.future.done():
                call.future.set_exception(fresh(failure, entry_id=entry_id))
