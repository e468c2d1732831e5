"""One bookie: who may do what, in which order, and when the answer goes out.

A :class:`Bookie` takes typed requests from a TCP server or the simulated network and answers each through the
callback that came with it. It executes a request when it gets it; what may take time (a journal sync, a long poll) is waited
for on the running loop's clock, so the bookie runs the same in real and in virtual time. Answers may come in any order, and
may come before :meth:`Bookie.submit` returns.

Life: NEW, ``start``, RUNNING, ``shutdown``, STOPPING, STOPPED; ``crash`` leads from anywhere but NEW to STOPPED. A stopped bookie
can be started again, over the same storage object, which has kept what survived. A request that arrives while the bookie is not
running is dropped like a packet to a dead process; one that waits when it crashes is never answered; an orderly shutdown
answers everything first.

Where this differs from BookKeeper's own bookie, on purpose: a key mismatch is always unauthorized (there, after a restart, an
I/O error); negative entry ids are refused (there they collide with journal records).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from bkclient.wire.answers import failed_answer
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    AuthMessage,
    BatchReadRequest,
    BookieInfoRequest,
    BookieInfoResponse,
    EntryListRequest,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ReadLacRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    Status,
    WriteFlags,
    WriteLacRequest,
    WriteLacResponse,
)
from simbookie.add_refusals import add_refusal, status_of_short_add, takes_high_priority
from simbookie.add_room import AddRoom
from simbookie.availability import EntryListDesk
from simbookie.config import BookieConfig
from simbookie.ledgers import LedgerHandle, LedgerTable, LimboTold, status_of
from simbookie.long_poll import LongPollDesk
from simbookie.observer import BookieObserver, tell_of_crash
from simbookie.reads import ReadDesk, Respond
from simbookie.storage.base import CrashMode, LedgerStorage, StorageError, WriteCacheFull
from simbookie.waiting_adds import WaitingAdds

__all__ = ["Bookie", "BookieState", "Respond"]

_ENTRY_IDS: Final = Struct(">qqq")
_LAC_IDS: Final = Struct(">qq")

#: The plugin name BookKeeper answers with where authentication is disabled, whatever the client asked for.
_AUTH_DISABLED: Final = "AuthDisabledPlugin"

_DEFERRED_SYNC: Final = int(WriteFlags.DEFERRED_SYNC)
_OK: Final = Status.OK  # members of an enumeration take longer to find
_INFO_TOTAL: Final = 1
_INFO_FREE: Final = 2

ReadOnlyListener = Callable[[bool], None]
Handler = Callable[[Any, Respond, str], None]
_OrdinaryToken = tuple[Callable[[Any, StorageError | None], None], Any, int, int]


class BookieState(Enum):
    """Where a bookie is in its life."""

    NEW = auto()
    STARTING = auto()
    RUNNING = auto()
    STOPPING = auto()
    STOPPED = auto()


class Bookie:
    """Request semantics of one bookie over ``storage``.

    ``wall_clock`` gives seconds since the epoch, for the one timestamp that answers carry; without it the loop's clock is used.
    """

    def __init__(
        self,
        bookie_id: str,
        storage: LedgerStorage,
        config: BookieConfig | None = None,
        observer: BookieObserver | None = None,
        *,
        wall_clock: Callable[[], float] | None = None,
    ) -> None:
        self.bookie_id = bookie_id
        self.storage = storage
        self.config = config if config is not None else BookieConfig()
        self.state = BookieState.NEW
        #: Counts the starts of this object.
        self.incarnation = 0
        self._observer = observer
        self._wall_clock = wall_clock
        self._accepts = False
        self._is_full = False
        self._is_read_only_by_hand = False
        self._read_only = False
        self._read_only_listeners: dict[ReadOnlyListener, None] = {}
        self._limbo_told = LimboTold(observer)
        #: How many adds, explicit LACs and forces may wait, and who waits for that to become less.
        self.add_room = AddRoom(self.config.pending_adds_max)
        self.waiting_adds = WaitingAdds(self.add_room, self.config.add_wait_max_s, self._try_add)
        self._table: LedgerTable | None = None
        self._reads: ReadDesk | None = None
        self._polls: LongPollDesk | None = None
        self._lists: EntryListDesk | None = None
        self._handlers: dict[type, Handler] = {
            AddRequest: self._add,
            ReadRequest: self._read,
            BatchReadRequest: self._batch_read,
            WriteLacRequest: self._write_lac,
            ReadLacRequest: self._read_lac,
            ForceLedgerRequest: self._force,
            BookieInfoRequest: self._info,
            EntryListRequest: self._entry_list,
            AuthMessage: self._auth,
            StartTlsRequest: self._bad_request,
        }

    def __repr__(self) -> str:
        return f"<Bookie {self.bookie_id} {self.state.name} incarnation {self.incarnation}>"

    # ---------------------------------------------------------------------------------------------------------- life

    def start(self, on_started: Callable[[], None] | None = None) -> None:
        """Open the storage and serve, then call ``on_started``, perhaps at once. If the storage raises the bookie is stopped."""
        assert self.state in (BookieState.NEW, BookieState.STOPPED), f"{self} cannot be started"
        self.state = BookieState.STARTING
        self._is_full = False
        wall_clock = self._wall_clock if self._wall_clock is not None else asyncio.get_running_loop().time
        table = LedgerTable(self.storage, self.config, self._observer)
        reads = ReadDesk(table, self.storage, self.config)
        polls = LongPollDesk(table, self.storage, self.config, lambda: int(wall_clock() * 1000))
        lists = EntryListDesk(table, self.storage, self.config)
        table.on_wake(polls.wake)

        def serve() -> None:
            self._table, self._reads, self._polls, self._lists = table, reads, polls, lists
            self.add_room.restart(self.config.pending_adds_max)
            self._update_read_only()
            self.state = BookieState.RUNNING
            self._accepts = True
            self.incarnation += 1
            if self._observer is not None and self.incarnation > 1:
                self._observer.restarted(self.incarnation, f"{len(self.storage.ledger_ids())} ledgers restored")
            self._limbo_told.correct(self.storage)
            if on_started is not None:
                on_started()

        try:
            self.storage.open(serve, self._space_changed)
        except StorageError:
            self.state = BookieState.STOPPED
            raise

    def shutdown(self, on_stopped: Callable[[], None] | None = None) -> None:
        """Stop accepting requests, answer those that wait, save everything, then call ``on_stopped``."""
        assert self.state is BookieState.RUNNING, f"{self} is not running"
        assert self._polls is not None and self._lists is not None  # noqa: PT018 - one fact: it runs
        self.state = BookieState.STOPPING
        self._accepts = False
        for answer_all in (self.waiting_adds.refuse_all, self._polls.finish_all, self._lists.finish_all):
            answer_all()
            if self.state is not BookieState.STOPPING:
                return  # answering crashed the bookie

        def stopped() -> None:
            self._forget()
            if self._observer is not None:
                self._observer.crashed(True, "orderly shutdown")  # noqa: FBT003
            if on_stopped is not None:
                on_stopped()

        self.storage.shutdown(stopped)

    def crash(self, mode: CrashMode = CrashMode.PROCESS) -> None:
        """Die at once: nothing that waits is answered, and the storage keeps what survives this kind of crash."""
        assert self.state not in (BookieState.NEW, BookieState.STOPPED), f"{self} is not alive"
        self._forget()
        report = self.storage.crash(mode)
        if self._observer is not None:
            tell_of_crash(self._observer, mode, report)

    def _forget(self) -> None:
        self._accepts = False
        self.state = BookieState.STOPPED
        self.waiting_adds.forget()
        if self._polls is not None:
            self._polls.crash()
        if self._table is not None:
            self._table.is_alive = False
        self._table = self._reads = self._polls = self._lists = None
        self.add_room.restart(self.config.pending_adds_max)

    # ----------------------------------------------------------------------------------------------------- operators

    @property
    def read_only(self) -> bool:
        """Whether ordinary writes are refused at present."""
        return self._read_only

    @property
    def is_read_only_by_hand(self) -> bool:
        """Whether it was switched so, whatever space there is."""
        return self._is_read_only_by_hand

    def set_read_only(self, read_only: bool) -> None:  # noqa: FBT001  the value is the meaning
        """Switch read-only mode by hand; it stays until switched back, even where there is space."""
        has_changed = read_only != self._is_read_only_by_hand
        self._is_read_only_by_hand = read_only
        self._update_read_only(tells=has_changed)

    def watch_read_only(self, listener: ReadOnlyListener) -> Callable[[], None]:
        """Call ``listener`` after every change of :attr:`read_only`, or of its being by hand; returns what ends that."""
        self._read_only_listeners[listener] = None
        return lambda: self._read_only_listeners.pop(listener, None)

    def _space_changed(self, is_full: bool) -> None:  # noqa: FBT001  a callback
        self._is_full = is_full
        self._update_read_only()

    def _update_read_only(self, *, tells: bool = False) -> None:
        read_only = self._is_full or self._is_read_only_by_hand or self.config.read_only_forced
        if read_only != self._read_only or tells:
            self._read_only = read_only
            for listener in list(self._read_only_listeners):
                listener(read_only)

    def delete_ledger(self, ledger_id: int) -> bool:
        """Remove a ledger, as garbage collection does once its metadata is gone; false if there is nothing to remove.

        A fenced ledger is remembered: late adds to it are still refused as fenced.
        """
        return self._running().delete(ledger_id)

    def ledger_ids(self) -> list[int]:
        """The ledgers this bookie stores something of, ascending."""
        self._running()
        return self.storage.ledger_ids()

    def set_limbo(self, ledger_id: int, *, in_limbo: bool, fence: bool = True) -> None:
        """Say whether this bookie may have lost entries of the ledger, as after an unclean start without a journal.

        In limbo the bookie never denies an entry: what it does not have, it knows nothing about. ``fence`` fences the ledger as
        well when it enters limbo, without which an acknowledged add could follow a denial (M45, M46).
        """
        handle = self._running().set_limbo(ledger_id, in_limbo=in_limbo)
        self._limbo_told.last[ledger_id] = in_limbo
        if in_limbo and fence:
            self._running().fence(handle, "")

    @property
    def pending_adds(self) -> int:
        """Adds, explicit LACs and forces not answered yet."""
        return self.add_room.pending

    @property
    def pending_reads(self) -> int:
        """Reads not answered yet, those counted against the limit."""
        return self._reads.pending_reads if self._reads is not None else 0

    @property
    def waiting_polls(self) -> int:
        """Long polls not answered yet."""
        return self._polls.waiting if self._polls is not None else 0

    def _running(self) -> LedgerTable:
        assert self._table is not None, f"{self} is not running"
        return self._table

    # ------------------------------------------------------------------------------------------------------ requests

    def submit(self, request: Request, respond: Respond, *, source: str = "") -> None:
        """Execute ``request``; ``respond`` gets its answer exactly once, unless the bookie stops in between.

        ``source`` names the client: for the observer, and to share what is scarce among clients.
        """
        if not self._accepts:
            return
        try:
            self._handlers.get(type(request), self._bad_request)(request, respond, source)
        except StorageError as error:  # what had to be read, or let go, to look the ledger up
            status = status_of(error)
            respond(failed_answer(request, status) or ErrorResponse(request.operation, status))

    def add(
        self, request: AddRequest, added: Callable[[Any, StorageError | None], None], token: Any, source: str
    ) -> bool:
        """Store an ordinary entry (of no recovery, without priority and flags) if nothing speaks against it.

        As :meth:`submit` does, without what only other requests need: ``added(token, error)`` is called once the entry is safe
        or could not be stored, unless the bookie stops in between. After false nothing has happened; submit the request.
        """
        table, room, body = self._table, self.add_room, request.header
        if table is None or not self._accepts or self._read_only or room.pending >= room.pending_max:
            return False
        if len(body) < _ENTRY_IDS.size or self.waiting_adds.line:
            return False
        ledger_id, entry_id, lac = _ENTRY_IDS.unpack_from(body)
        handle = table.handles.get(ledger_id)
        if handle is None or handle.master_key != request.master_key:
            return False
        if handle.fenced or handle.in_limbo or entry_id < 0:
            return False
        observer, stored = self._observer, self._ordinary_stored
        if observer is not None and self.storage.acks_are_durable:
            stored = self._ordinary_stored_and_synced
        try:
            self.storage.add_entry(ledger_id, entry_id, body, stored, (added, token, ledger_id, entry_id))
        except StorageError as error:
            if isinstance(error, WriteCacheFull) and self.waiting_adds.wait_max_s:
                return False  # it will wait
            added(token, error)
            return True
        room.pending += 1
        if observer is not None:
            observer.entry_stored(ledger_id, entry_id, body, False, source)  # noqa: FBT003
        if lac > handle.lac:
            table.advance_lac(handle, lac)
        return True

    def _ordinary_stored(self, token: _OrdinaryToken, error: StorageError | None) -> None:
        self.add_room.answered()
        token[0](token[1], error)

    def _ordinary_stored_and_synced(self, token: _OrdinaryToken, error: StorageError | None) -> None:
        if error is None and self._observer is not None:
            self._observer.entry_synced(token[2], token[3])
        self._ordinary_stored(token, error)

    def forget(self, source: str) -> None:
        """The client named ``source`` has gone: what waits for it need wait no longer. Adds are carried out nevertheless."""
        if self._polls is not None:
            self._polls.forget(source)

    def _add(self, request: AddRequest, respond: Respond, source: str) -> None:
        if self.add_room.left <= 0 and not request.high_priority:
            respond(AddResponse(Status.TOO_MANY_REQUESTS, request.ledger_id, request.entry_id))
        elif (self.waiting_adds.line and not request.high_priority) or self._try_add(request, respond, source) is None:
            self.waiting_adds.wait(request, respond, source)

    def _try_add(self, request: AddRequest, respond: Respond, source: str) -> Status | None:
        """Carry out an add: OK if it is stored, the status that it was answered with, none if it has to wait for room."""
        status: Status | None
        try:
            status = self._check_and_store(request, respond, source)
        except StorageError as error:
            waits = isinstance(error, WriteCacheFull) and self.waiting_adds.wait_max_s > 0
            status = None if waits else status_of(error)
        if status is not None and status is not _OK:
            respond(AddResponse(status, request.ledger_id, request.entry_id))
        return status

    def _check_and_store(self, request: AddRequest, respond: Respond, source: str) -> Status:
        table = self._table
        assert table is not None
        if self._read_only and not (request.high_priority and takes_high_priority(self.config, self.storage)):
            return Status.READ_ONLY
        # the ids in the body decide, those of the request are only echoed
        body = request.header + request.payload
        try:
            ledger_id, entry_id, lac = _ENTRY_IDS.unpack_from(body)
        except struct_error:
            return status_of_short_add(table, request, body)
        handle = table.open(ledger_id, request.master_key)
        if not isinstance(handle, LedgerHandle):
            return Status.FENCED if handle is Status.NO_LEDGER else handle
        refusal = add_refusal(request, handle, entry_id)
        if refusal is not _OK:
            return refusal
        self._store(request, respond, ledger_id, entry_id, body)
        if self._observer is not None:
            self._observer.entry_stored(ledger_id, entry_id, body, request.recovery, source)
        if lac > handle.lac:
            table.advance_lac(handle, lac)
        return _OK

    def _store(self, request: AddRequest, respond: Respond, ledger_id: int, entry_id: int, body: bytes) -> None:
        """Hand the entry to the storage; the answer follows when it is safe."""
        token = (respond, request, ledger_id, entry_id)
        is_observed = self._observer is not None and self.storage.acks_are_durable
        if request.write_flags & _DEFERRED_SYNC:
            on_durable = self._deferred_entry_synced if is_observed else None
            self.storage.add_entry(ledger_id, entry_id, body, on_durable, token, self._added)
        else:
            on_durable = self._added_and_synced if is_observed else self._added
            self.storage.add_entry(ledger_id, entry_id, body, on_durable, token)
        if not request.high_priority:
            self.add_room.pending += 1

    def _added(self, token: tuple[Respond, AddRequest, int, int], error: StorageError | None) -> None:
        respond, request, _, _ = token
        if not request.high_priority:
            self.add_room.answered()
        status = _OK if error is None else status_of(error)
        respond(AddResponse(status, request.ledger_id, request.entry_id))

    def _added_and_synced(self, token: tuple[Respond, AddRequest, int, int], error: StorageError | None) -> None:
        self._deferred_entry_synced(token, error)
        self._added(token, error)

    def _deferred_entry_synced(self, token: tuple[Respond, AddRequest, int, int], error: StorageError | None) -> None:
        if error is None and self._observer is not None:
            self._observer.entry_synced(token[2], token[3])

    def _read(self, request: ReadRequest, respond: Respond, source: str) -> None:
        assert self._reads is not None
        assert self._polls is not None
        if request.long_poll is not None and request.fence_key is None:
            self._polls.read(request, request.long_poll, respond, source)
        else:
            self._reads.read(request, respond, source)

    def _batch_read(self, request: BatchReadRequest, respond: Respond, source: str) -> None:
        assert self._reads is not None
        self._reads.batch_read(request, respond, source)

    def _write_lac(self, request: WriteLacRequest, respond: Respond, _source: str) -> None:
        table = self._running()
        status = self._refuse_write_lac(request)
        if status is Status.OK:
            ledger_id, lac = _LAC_IDS.unpack_from(request.body)
            handle = table.open(ledger_id, request.master_key)
            if isinstance(handle, LedgerHandle):
                try:
                    self.storage.set_explicit_lac(ledger_id, lac, request.body, self._lac_written, (respond, request))
                except StorageError as error:
                    status = status_of(error)
                else:
                    self.add_room.pending += 1
                    table.advance_lac(handle, lac)
                    return
            else:
                status = handle
        respond(WriteLacResponse(status, request.ledger_id))

    def _refuse_write_lac(self, request: WriteLacRequest) -> Status:
        if self.add_room.left <= 0:
            return Status.TOO_MANY_REQUESTS
        if self._read_only:
            return Status.READ_ONLY
        is_sized = _LAC_IDS.size <= len(request.body) <= self.config.explicit_lac_bytes_max
        return Status.OK if is_sized else Status.BAD_REQUEST

    def _lac_written(self, token: tuple[Respond, WriteLacRequest], error: StorageError | None) -> None:
        self.add_room.answered()
        respond, request = token
        respond(WriteLacResponse(Status.OK if error is None else status_of(error), request.ledger_id))

    def _read_lac(self, request: ReadLacRequest, respond: Respond, _source: str) -> None:
        assert self._reads is not None
        self._reads.read_lac(request, respond)

    def _force(self, request: ForceLedgerRequest, respond: Respond, _source: str) -> None:
        if self.add_room.left <= 0:
            respond(ForceLedgerResponse(Status.TOO_MANY_REQUESTS, request.ledger_id))
            return
        self.add_room.pending += 1
        self.storage.force(request.ledger_id, self._forced, (respond, request))

    def _forced(self, token: tuple[Respond, ForceLedgerRequest], error: StorageError | None) -> None:
        self.add_room.answered()
        respond, request = token
        respond(ForceLedgerResponse(Status.OK if error is None else status_of(error), request.ledger_id))

    def _info(self, request: BookieInfoRequest, respond: Respond, _source: str) -> None:
        capacity = self.storage.capacity()
        respond(
            BookieInfoResponse(
                Status.OK,
                capacity.total if request.requested & _INFO_TOTAL else None,
                capacity.free if request.requested & _INFO_FREE else None,
            )
        )

    def _entry_list(self, request: EntryListRequest, respond: Respond, _source: str) -> None:
        assert self._lists is not None
        self._lists.answer(request, respond)

    def _auth(self, _request: AuthMessage, respond: Respond, _source: str) -> None:
        respond(AuthMessage(_AUTH_DISABLED))

    def _bad_request(self, request: Request, respond: Respond, _source: str) -> None:
        respond(ErrorResponse(request.operation, Status.BAD_REQUEST))
