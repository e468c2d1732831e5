"""Reading entries from their replicas: which to ask, what to do when an answer is late, what to learn from it.

:class:`EntryReads` reads the entries of one handle. Each is one :class:`~bkclient.protocol.read.EntryRead` and one
future; there is no task, no lock and no timer per entry. What waits for its first answer stands in one queue with one timer at
its head, because all of it becomes late after the same delay; only an entry that was late once has a timer of its own. Entries
that are read many at a time are in :mod:`bkclient._client.reading.runs` and :mod:`bkclient._client.reading.batch_call`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from bkclient._backoff import Backoff
from bkclient._client.connection_wait import ConnectionWait, WaitEnd
from bkclient._client.core import ClientCore
from bkclient._client.defects import defect
from bkclient._client.exchange import answers
from bkclient._client.health import ReadHealth
from bkclient._client.home_loop import running_loop, wrong_loop
from bkclient._client.rate_limit import RateLimit
from bkclient._client.reading.late import LateTimer
from bkclient.entry import Entry
from bkclient.errors import ClientClosed, Code, UnexpectedCondition, error_for
from bkclient.ledger import BookieId, Ensemble, LedgerMetadata
from bkclient.observability.stats import DIGEST_MISMATCHES, READ, READS_REORDERED
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, QuorumSizes
from bkclient.protocol.read import EntryRead, ReadOutcome
from bkclient.protocol.sticky import StickyIndex
from bkclient.transport.reads import reads_over
from bkclient.wire.connection import FoundBody
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import ReadRequest, ReadResponse, Request, Response, Status

__all__ = ["EntryCall", "EntryReads", "LedgerView", "ReadOperation", "Waits"]

#: What a bookie answers that has nothing to do with being slow or away: it does not have the entry as it should.
_FAILED_TO_DELIVER: Final = EXPLICIT_NEGATIVES | {Code.DIGEST_MATCH, Code.READ, Code.DATA_UNKNOWN}
_WAITING: Final = ReadOutcome.WAITING  # members of an enumeration take longer to find


class LedgerView(Protocol):
    """What reads need to know of the ledger, and where they report what they learn of it. Calls must not call back."""

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as known now."""
        ...

    @property
    def last_add_confirmed(self) -> int:
        """How far confirmed reads may go."""
        ...

    @property
    def told_by(self) -> BookieId | None:
        """A bookie that has told ``last_add_confirmed`` by itself, if one is known; none tells that nothing is confirmed."""
        ...

    def on_entries_read(
        self, entries: Sequence[Entry], told: Sequence[int | None] = (), told_by: BookieId | None = None
    ) -> None:
        """Entries were read, with the length in their headers (H-18).

        ``told`` are LACs that bookies told in passing (LAC-3), or ``told_by`` alone.
        """
        ...

    def on_last_add_confirmed(self, last_add_confirmed: int, told_by: BookieId | None = None) -> None:
        """Bookies were asked, or ``told_by`` alone, and know of this LAC."""
        ...


class Waits(Protocol):
    """What waits for its first answer. Compared by identity."""

    def late(self) -> None:
        """The first answer is late."""
        ...


class ReadOperation:
    """What the entries of one read have in common. ``fails_fast``: no request goes to a connection that takes no more (R-6)."""

    __slots__ = ("answering", "answers", "fails_fast", "parallel")

    def __init__(self, *, parallel: bool = False, fails_fast: bool = False) -> None:
        self.parallel = parallel
        self.fails_fast = fails_fast
        #: How many good answers have come, and for each bookie the number of its last one.
        self.answers = 0
        self.answering: dict[BookieId, int] = {}


class EntryReads:
    """Reads entries of one ledger. ``throttle`` limits the requests of the handle, its adds included (R-2)."""

    def __init__(self, core: ClientCore, view: LedgerView, codec: EntryCodec, throttle: RateLimit | None) -> None:
        settings, backpressure_s = core.config.reading, core.config.timeouts.backpressure_s
        self.core = core
        self.view = view
        self.codec = codec
        self.throttle = throttle
        self.submit = core.transport.submit
        self.sender = reads_over(core.transport, codec.ledger_id)
        self.loop = asyncio.get_running_loop()
        self.health = ReadHealth(core.memory, core.transport, settings, self.loop.time)
        self.stats = core.stats
        self.protocol_version = core.config.connections.protocol_version
        self.read_ahead_entries = settings.read_ahead_entries
        self.max_frame_size_bytes = core.config.limits.max_frame_size_bytes
        #: Single reads tell which bookies live without knowing batches; only protocol version 2 has batches.
        self.batches = core.memory.batches if self.protocol_version == 2 else None
        self.speculation = Backoff(
            settings.speculative_first_s, settings.speculative_max_s, settings.speculative_backoff
        )
        metadata = view.metadata
        self._sizes = sizes = QuorumSizes.of(metadata)
        self.is_striped = sizes.is_striped
        #: Whether a bookie may be asked for several entries with one request (R-25).
        self.may_batch = self.batches is not None and settings.batch and not self.is_striped
        #: Whether ranges may be read in batches: not if each entry has to be a request that the rate counts.
        self.has_batches = self.may_batch and throttle is None
        self._sticky: StickyIndex | None = None
        if settings.sticky and not self.is_striped:
            self._sticky = StickyIndex(sizes.ensemble_size, core.rng.randrange(sizes.ensemble_size))
        self._reorders = settings.reorder
        #: None if reads and appends do not wait for connections.
        self._connections: ConnectionWait[int] | None = None
        if backpressure_s is not None:
            self._connections = ConnectionWait(
                self._is_free,
                lambda: core.is_closed,
                wait_s=backpressure_s,
                ledger_id=metadata.ledger_id,
            )
        #: Whether an operation may have to wait before it begins.
        self.may_wait = throttle is not None or backpressure_s is not None
        self._ensemble: Ensemble = ()
        self._write_sets: dict[int, tuple[BookieId, ...]] = {}
        self._watcher = core.watcher
        self._remembers_order = settings.reorder and core.watcher.has_steady_read_order
        #: By first position, up to how many changes of registry and health a write set was found to need no other order.
        self._as_striped: dict[int, int] = {}
        #: Calls without an answer and when they are late, in this order; who needs not be told any more leaves.
        self.waiting: dict[Waits, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    # Before reading ----------------------------------------------------------------------------------------------

    async def begin(self, entry_id: int, *, parallel: bool = False) -> ReadOperation:
        """Begin an operation with ``entry_id``, once its bookies take requests (R-6) and the rate allows one (R-2)."""
        self.check_open()
        operation = ReadOperation(parallel=parallel)
        if self._connections is not None:
            operation.fails_fast = await self._connections.wait(entry_id) is WaitEnd.TIMED_OUT
            self.check_open()
        if self.throttle is not None:
            await self.throttle.acquire()
        return operation

    def take_permits(self, requests: int) -> None:
        """Count so many more requests against the rate, at once: the next operation waits for them too (R-2)."""
        if self.throttle is not None:
            self.throttle.take(requests)

    def _is_free(self, entry_id: int) -> bool:
        """Whether one bookie of the entry takes requests, which is all a read needs."""
        ensemble, is_writable = self.view.metadata.ensemble_at(entry_id), self.core.transport.is_writable
        return any(is_writable(ensemble[position]) for position in self._sizes.write_set(entry_id))

    def check_open(self) -> None:
        """Raise :class:`~bkclient.errors.ClientClosed` if the client is closed (R-5), and where the call comes from elsewhere."""
        if running_loop() is not self.loop:
            raise wrong_loop()
        if self.core.is_closed:
            raise ClientClosed(ledger_id=self.codec.ledger_id)

    # Which to ask -------------------------------------------------------------------------------------------------

    def replicas(self, entry_id: int) -> tuple[BookieId, ...]:
        """Those who store the entry, in the order in which to ask them (R-7, RO-1)."""
        metadata = self.view.metadata
        fragments = metadata.fragments
        ensemble = fragments[0].ensemble if len(fragments) == 1 else metadata.ensemble_at(entry_id)
        if self._sticky is not None:
            return self.reordered(self._sticky.rotate(ensemble), entry_id)
        if ensemble is not self._ensemble:
            self._ensemble = ensemble
            self._write_sets = {}
            self._as_striped = {}
        first = entry_id % len(ensemble)
        write_set = self._write_sets.get(first)
        if write_set is None:
            write_set = tuple(ensemble[position] for position in self._sizes.write_set(entry_id))
            self._write_sets[first] = write_set
        if not self._remembers_order:
            return self.reordered(write_set, entry_id)
        # The policy is asked again only if its answer may be another one. None of these numbers shrinks.
        changes = self.health.changes + self._watcher.changes
        if self._as_striped.get(first) == changes:
            return write_set
        order = self.reordered(write_set, entry_id)
        if order == write_set and self.health.is_clean:
            self._as_striped[first] = changes
        return order

    def replicas_from(self, first_entry_id: int, count: int) -> list[tuple[BookieId, ...]]:
        """:meth:`replicas` of ``count`` entries; it is asked for each only if it may not repeat itself."""
        size = self.view.metadata.ensemble_size
        orders = [self.replicas(first_entry_id + place) for place in range(min(count, size))]
        changes = self.health.changes + self._watcher.changes
        steady = [first for first, known in self._as_striped.items() if known == changes]
        if len(steady) == size and self.run_length(first_entry_id, count) == count:
            return (orders * (count // size + 1))[:count]
        return orders + [self.replicas(first_entry_id + place) for place in range(size, count)]

    def batch_replicas(self, entry_id: int) -> tuple[BookieId, ...]:
        """Those of :meth:`replicas` that may be asked for a batch."""
        assert self.batches is not None, "there are batches in this version"
        return self.batches.usable(self.replicas(entry_id), self.loop.time())

    def run_length(self, first_entry_id: int, count: int) -> int:
        """How many of ``count`` entries are stored by the bookies of the first one."""
        for fragment in self.view.metadata.fragments[1:]:
            if fragment.first_entry_id > first_entry_id:
                return min(count, fragment.first_entry_id - first_entry_id)
        return count

    def reordered(self, bookies: tuple[BookieId, ...], entry_id: int) -> tuple[BookieId, ...]:
        """``bookies`` as the placement policy would ask them, if that is wanted; it neither adds nor leaves out any.

        Raises :class:`~bkclient.errors.UnexpectedCondition` for a policy that does, or fails.
        """
        if not self._reorders:
            return bookies
        try:
            order = self.core.watcher.read_order(bookies, self.health)
        except UnexpectedCondition as error:
            raise UnexpectedCondition(error.message, ledger_id=self.codec.ledger_id, entry_id=entry_id) from error
        if order != bookies and self.stats is not None:
            self.stats.event(READS_REORDERED)
        return order

    # Reading -----------------------------------------------------------------------------------------------------

    def start(self, entry_id: int, operation: ReadOperation) -> asyncio.Future[Entry]:
        """Read one entry; no task is made. The future fails with the most telling error of the replicas (R-13).

        Cancelling it asks no further replica.
        """
        self.check_open()
        read = EntryRead(entry_id, self.replicas(entry_id), parallel=operation.parallel)
        call = EntryCall(self, read, operation)
        call.ask()
        return call.future

    def await_answer(self, call: Waits) -> None:
        """Have ``call`` told when its first answer is late."""
        delay_s = self.speculation.first_s
        if delay_s > 0:
            self.waiting[call] = self.loop.time() + delay_s
            if self._timer is None:
                self._timer = self.loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        now = self.loop.time()
        self._timer = None
        for call, due in list(self.waiting.items()):
            if due > now:
                self._timer = self.loop.call_at(due, self._on_timer)
                return
            del self.waiting[call]
            call.late()

    def stop(self) -> None:
        """Stop the timer of late answers; reads under way end with what their replicas say."""
        self.waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What is learned ---------------------------------------------------------------------------------------------

    def on_request_failed(self, bookie_id: BookieId, entry_id: int, code: int) -> None:
        """A bookie did not deliver an entry."""
        if code == Code.CLIENT_CLOSED:
            return
        self.core.watcher.on_request_failed(bookie_id, code)
        if self._sticky is not None:
            self._sticky.on_failed(self.view.metadata.ensemble_at(entry_id), bookie_id)
        if code in _FAILED_TO_DELIVER:
            self.health.on_failed(bookie_id, entry_id)
            if code == Code.DIGEST_MATCH and self.stats is not None:
                self.stats.event(DIGEST_MISMATCHES)

    def on_found(self, read: EntryRead) -> None:
        """An entry was found after more than one replica was asked (RO-6)."""
        for bookie_id in read.overtaken:
            self.health.on_overtaken(bookie_id)
            if self._sticky is not None:
                self._sticky.on_failed(self.view.metadata.ensemble_at(read.entry_id), bookie_id)


class EntryCall:
    """One entry on its way, by the read ``machine``. Compared by identity."""

    __slots__ = ("_began", "_late", "_machine", "_operation", "_reads", "_request", "_seen", "future")

    def __init__(self, reads: EntryReads, machine: EntryRead, operation: ReadOperation) -> None:
        self._reads = reads
        self._operation = operation
        self._machine = machine
        self._request = ReadRequest(reads.codec.ledger_id, machine.entry_id)
        self._seen = operation.answers
        #: Only once the first answer was late.
        self._late: LateTimer | None = None
        self._began = 0.0 if reads.stats is None else reads.stats.now()
        self.future: asyncio.Future[Entry] = reads.loop.create_future()

    def began(self, when: float, seen: int) -> EntryCall:
        """It began before this object: at that time, when so many answers of the operation had come."""
        self._began, self._seen = when, seen
        return self

    def ask(self) -> None:
        """Send the first request, or all of them; who begins has the permit for one."""
        self._send(prepaid=1)
        if not self._operation.parallel:
            self._reads.await_answer(self)

    def _send(self, prepaid: int = 0) -> None:
        reads = self._reads
        bookies = self._machine.to_ask()
        if len(bookies) > prepaid:
            reads.take_permits(len(bookies) - prepaid)
        for bookie_id in bookies:
            if self._operation.fails_fast and not reads.core.transport.is_writable(bookie_id):
                reads.loop.call_soon(self.on_reply, bookie_id, self._request, Code.TOO_MANY_REQUESTS, None)
            else:
                reads.sender.send(bookie_id, (self._request.entry_id,), self)

    def late(self) -> None:
        """The first answer is late."""
        reads = self._reads
        self._late = LateTimer(self, reads.speculation, reads.loop, reads.stats)
        self._late.on_late(reads.speculation.first_s)

    def ask_another(self) -> bool:
        """Ask another replica unless one of those asked answers others (R-11)."""
        answering = [b for b, number in self._operation.answering.items() if number > self._seen]
        if self.future.done() or not self._machine.on_late(answering):
            return False
        self._send()
        return True

    def on_found(self, bookie_id: BookieId, found: Sequence[FoundBody]) -> None:
        """See :class:`~bkclient.transport.reads.ReadReplies`."""
        for entry_id, body, max_lac in found:
            response = ReadResponse(Status.OK, self._request.ledger_id, entry_id, body, max_lac)
            self.on_reply(bookie_id, self._request, Code.OK, response)

    def __call__(self, bookie_id: BookieId, request: Request, code: int, response: Response | None) -> None:
        """Any other answer, as a :class:`~bkclient.transport.base.ReplyHandler` hears of it."""
        self.on_reply(bookie_id, request, code, response)

    def _decode(self, _request: Request, response: Response | None) -> tuple[Entry, int | None]:
        assert isinstance(response, ReadResponse), "a read is answered by a read response"
        entry = self._reads.codec.decode(response.body or b"", self._machine.entry_id)
        return entry, response.max_lac

    def note_failure(self, bookie_id: BookieId, code: int) -> None:
        """See :class:`~bkclient._client.exchange.Requester`."""
        self._reads.on_request_failed(bookie_id, self._machine.entry_id, code)

    @answers(_decode)
    def on_reply(
        self, bookie_id: BookieId, _request: Request, code: int, found: tuple[Entry, int | None] | None
    ) -> None:
        reads, machine, operation = self._reads, self._machine, self._operation
        if found is not None:
            reads.view.on_entries_read(found[:1], found[1:], bookie_id)
            operation.answers += 1
            operation.answering[bookie_id] = operation.answers
            if reads.batches is not None and reads.batches.has_suspects:
                reads.batches.on_single_read(bookie_id, reads.loop.time())
        outcome = machine.on_reply(bookie_id, code)
        is_over = self.future.done()
        if outcome is _WAITING and not is_over:
            self._send()
            return
        self._stop_waiting()
        if is_over:
            return
        if found is not None:
            if machine.tried > 1 and not operation.parallel:
                reads.on_found(machine)
            self.future.set_result(found[0])
        else:
            self.future.set_exception(
                error_for(
                    machine.code,
                    ledger_id=self._request.ledger_id,
                    entry_id=machine.entry_id,
                    bookie_id=machine.code_from,
                )
            )
        if reads.stats is not None:
            reads.stats.operation(READ, reads.stats.now() - self._began, machine.code)

    def _stop_waiting(self) -> None:
        self._reads.waiting.pop(self, None)
        if self._late is not None:
            self._late.stop()

    def on_defect(self, error: Exception) -> None:
        """A handler raised; see :func:`~bkclient._client.defects.ends_operation`."""
        request = self._request
        failure = defect(error, "a read", ledger_id=request.ledger_id, entry_id=request.entry_id)
        self._stop_waiting()
        if not self.future.done():
            self.future.set_exception(failure)
