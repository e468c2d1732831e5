"""Between a writer's public face and its machine: futures, the window, requests, timers.

:class:`WriterShell` implements the ports of :class:`~bkclient.protocol.append.AppendMachine`, for writers of either kind. An
append makes one request for all its replicas. There is no task and no lock per entry, and no future of asyncio's unless somebody
waits for it; what is optional (a rate limit, statistics, a tracer) is a reference that is None.

Two timers belong to a writer, each set only while there is something to wait for: one looks for entries without an ack quorum
(W-46), the other gives a writer that pauses the chance to replace a bookie that failed after the quorum (H-5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from bkclient._client.core import ClientCore, entry_codec_for, nobody
from bkclient._client.create import CreatedLedger
from bkclient._client.defects import defect, ends_operation
from bkclient._client.home_loop import check_loop, running_loop, wrong_loop
from bkclient._client.window import WriterWindow
from bkclient._client.writing.admission import WriterAdmission
from bkclient._client.writing.counted import CountedAnswers
from bkclient._client.writing.explicit_lac import LacTimer
from bkclient._client.writing.failures import log_failure
from bkclient._client.writing.flushes import Flushes
from bkclient._client.writing.gaps import NO_GAPS, NO_TURNS, Gaps
from bkclient._client.writing.many import AppendsMany
from bkclient._client.writing.observed import WriterStats, trace_append
from bkclient._client.writing.options import options_of
from bkclient._client.writing.outcomes import AppendFuture, AppendOutcomes, unmade
from bkclient._client.writing.ownership import Ownership
from bkclient._client.writing.payloads import FRAME_OVERHEAD_BYTES, Payload, checked, full, too_large
from bkclient._fresh import fresh
from bkclient.errors import BookKeeperError, ClientClosed, LedgerClosed, LedgerTruncated
from bkclient.ledger import BookieId, Ensemble
from bkclient.observability import log
from bkclient.observability import stats as names
from bkclient.placement import LedgerShape
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.append import AppendMachine, WriterState
from bkclient.protocol.update import UpdateHandle
from bkclient.protocol.value import NOTHING, own
from bkclient.transport.adds import adds_over
from bkclient.wire.messages import AddTemplate, WriteFlags

__all__ = ["WriterShell"]

#: Looked at for every append: the members of an enumeration are found the slow way.
_OPEN: Final = WriterState.OPEN

#: How long after a late failure an idle writer acts upon it; the next append does so at once.
_LATE_FAILURE_S: Final = 1.0
#: How often a writer tries again to replace failed bookies that it could not replace.
_DEGRADED_S: Final = 10.0
#: How often to look whether a writer that was dropped still has entries under way.
_DROPPED_S: Final = 1.0
#: How often, in a quorum timeout, pending entries are looked at.
_LOOKS_PER_TIMEOUT: Final = 8


class WriterShell(CountedAnswers, AppendsMany):
    """Everything that writers of normal and of given entry ids have in common, without what applications see."""

    __slots__ = (
        "__weakref__",
        "_close_error",
        "_closing",
        "_forget",
        "_is_closed",
        "_is_let_go",
        "_is_watched",
        "_lac_timer",
        "_stats",
        "_timers",
        "_tracer",
        "admission",
        "codec",
        "core",
        "first_failure",
        "flushes",
        "gaps",
        "ledger_id",
        "max_payload",
        "on_metadata_changed",
        "outcomes",
        "ownership",
        "turns",
        "window",
    )

    def __init__(self, core: ClientCore, created: CreatedLedger, *, deferred_sync: bool, entry_ids_given: bool) -> None:
        limits, metadata = core.config.limits, created.value.metadata
        self.core = core
        self.loop = asyncio.get_running_loop()
        self.ledger_id: Final = metadata.ledger_id
        self.codec = entry_codec_for(metadata)
        self.window = WriterWindow(limits.max_in_flight_entries, limits.max_in_flight_bytes, core.window)
        self.max_payload = limits.max_frame_size_bytes - FRAME_OVERHEAD_BYTES
        options = options_of(core, deferred_sync=deferred_sync, entry_ids_given=entry_ids_given)
        self.machine = AppendMachine(created.value, self, options=options)
        self.ownership: Final = Ownership(core, self, created.connection)
        self._check = self.ownership.check
        self.admission = WriterAdmission(core, self.machine) if WriterAdmission.is_wanted(core) else None
        self._stats = None if core.stats is None else WriterStats(core.stats)
        self._tracer = core.tracer if core.tracer is not None and core.tracer.wants_appends else None
        template = AddTemplate(
            ledger_id=metadata.ledger_id,
            master_key=self.codec.master_key,
            write_flags=int(WriteFlags.DEFERRED_SYNC) if deferred_sync else 0,  # a number, whose bits take less to test
        )
        self._adds = adds_over(self.admission or core.transport, template, self)
        self.outcomes = AppendOutcomes(metadata.ledger_id, self.loop)
        self.flushes: Final = Flushes()
        #: Which ids were handed in, and who waits to append a certain one when its turn has come; only where callers choose ids.
        self.gaps: Final = Gaps() if entry_ids_given else NO_GAPS
        self.turns = {} if entry_ids_given else NO_TURNS
        self.first_failure: BookKeeperError | None = None
        #: Told whenever the metadata may have changed.
        self.on_metadata_changed: Callable[[], None] = nobody
        #: Whether the end is known, and those who wait for that.
        self._is_closed = False
        self._closing: asyncio.Event | None = None
        self._close_error: BookKeeperError | None = None
        #: Whether all is there that an append needs, and every timer runs.
        self._is_watched = False
        #: Those that were set last, by what they are for.
        self._timers: dict[str, asyncio.TimerHandle] = NOTHING
        self._is_let_go = False
        #: Made when there may be something to tell.
        self._lac_timer: LacTimer | None = None
        self._forget = core.at_close(self._on_client_closed)
        self._count_answers()

    # Appending ---------------------------------------------------------------------------------------------------

    def append(self, payload: Payload) -> AppendFuture:
        """Send one entry under the next id; :class:`~bkclient.errors.TooManyRequests` if a window is full."""
        future = self.try_append(payload)
        if future is None:
            raise full(self.window, self.ledger_id)
        return future

    def try_append(self, payload: Payload) -> AppendFuture | None:
        """Send one entry under the next id; None if a window is full."""
        data = payload if type(payload) is bytes else checked(payload, self.ledger_id)
        size = len(data)
        machine = self.machine
        is_writable = machine.state is _OPEN or machine.is_writable
        if size > self.max_payload or self.core.is_closed or not is_writable or running_loop() is not self.loop:
            raise self._refusal(size)
        if self.admission is not None:
            if not self.window.has_room_for(is_above_gap=False):
                return None
            self.admission.admit(machine.last_add_pushed + 1)
        if not self.window.try_take(size):
            return None
        if not self._is_watched:
            self._watch()
        entry_id = machine.adds.last_add_pushed + 1
        try:
            machine.append(data)
        except Exception as error:  # noqa: BLE001 - part of it may have been sent
            self._on_append_defect(error, entry_id, (size,))
        future = unmade(AppendFuture)  # as its constructor, whose call every append would pay
        future._outcomes, future._entry_id, future._future = self.outcomes, entry_id, None  # noqa: SLF001
        if self._tracer is not None:
            trace_append(self._tracer, self.ledger_id, entry_id, future)
        return future

    def append_at(self, entry_id: int, payload: Payload) -> AppendFuture:
        """Send one entry under an id of the caller's choice."""
        data = payload if type(payload) is bytes else checked(payload, self.ledger_id)
        size = len(data)
        machine = self.machine
        if size > self.max_payload or self.core.is_closed or not machine.is_writable or running_loop() is not self.loop:
            raise self._refusal(size)
        machine.check_entry_id(entry_id)  # who will be refused needs neither room nor a permit
        # All that is in flight may be waiting for this one, so no window may hold it back.
        is_next = entry_id == machine.last_add_acknowledged + 1
        is_above_gap = self.gaps.is_above(entry_id)
        if not is_next and not self.window.has_room_for(is_above_gap=is_above_gap):
            raise full(self.window, self.ledger_id)
        if self.admission is not None:
            self.admission.admit(entry_id)
        self.window.take(size)
        try:
            machine.append_at(entry_id, data)
        except BookKeeperError:
            self.window.give_back(size)
            raise
        except Exception as error:  # noqa: BLE001 - part of it may have been sent
            self._on_append_defect(error, entry_id, (size,))
        if machine.is_writable:
            if is_above_gap:
                self.window.enter_gap(size)
            entries, released = self.gaps.add(entry_id, size)
            if entries:
                self.window.leave_gap(entries, released)
            if self.turns and not is_above_gap:
                self._wake_turn(self.gaps.last_without_gap + 1)
        if not self._is_watched:
            self._watch()
        future = AppendFuture(self.outcomes, entry_id)
        if self._tracer is not None:
            trace_append(self._tracer, self.ledger_id, entry_id, future)
        return future

    def _refusal(self, size: int) -> BookKeeperError:
        if running_loop() is not self.loop:
            return wrong_loop()
        return too_large(size, self.max_payload, self.ledger_id) or self.refusal()

    def refusal(self) -> BookKeeperError:
        """Why this writer takes no more: what ended it first."""
        if self.core.is_closed and self.machine.fatal_error is None:
            return ClientClosed(ledger_id=self.ledger_id)
        return fresh(self.machine.refusal(), ledger_id=self.ledger_id)

    async def flush(self, target: int) -> None:
        """Wait until everything up to ``target`` is acknowledged; raises the error of the first entry that failed."""
        check_loop(self.loop)
        failed = self.machine.truncation or self.first_failure
        if failed is not None:
            raise fresh(failed, ledger_id=self.ledger_id)
        if self.machine.last_add_acknowledged >= target:
            return
        await self.flushes.wait(target)

    # The end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Seal the ledger at the LAC and wait until that is stored."""
        check_loop(self.loop)
        if self.core.is_closed and not self._is_closed:
            raise ClientClosed(
                "the client was closed before the writer; the ledger is still open", ledger_id=self.ledger_id
            )
        if not self._is_closed:  # else it is closed, or has to stay open
            self.machine.close()
            self._let_go_if_ended()
        if not self._is_closed:
            self._closing = self._closing or asyncio.Event()
            await self._closing.wait()
        failed = self.machine.truncation or self._close_error
        if failed is not None:
            raise fresh(failed, ledger_id=self.ledger_id)

    def on_defect(self, error: Exception) -> None:
        """A handler raised, so the machine is not to be relied upon: what is in flight fails, the ledger stays open."""
        failure = defect(error, "the writer", ledger_id=self.ledger_id)
        pending = self.machine.stop(failure)
        for entry in pending:
            self.outcomes.fail(entry.entry_id, failure)
        if not self._is_closed:
            self._close_error = failure
            self._set_closed()
        for entry in pending:
            self.fail_add(entry, failure)
        self.flushes.fail(failure)
        self._let_go()

    def _set_closed(self) -> None:
        self._is_closed = True
        if self._closing is not None:
            self._closing.set()

    def _let_go_if_ended(self) -> None:
        if not self._is_let_go and not self.machine.is_writable:
            self._let_go()

    @property
    def is_let_go(self) -> bool:
        """Whether the writer has ended, and nothing holds it any more but the application."""
        return self._is_let_go

    @ends_operation
    def on_dropped(self) -> None:
        """The application has let the writer go without closing it: what is under way ends, and then nothing is left of it.

        The ledger stays open. What is above a gap fails, because the gap cannot be filled any more.
        """
        if self._is_let_go:
            return
        if self.machine.pending_count > len(self.gaps.above):
            self._keep("drop", self.loop.call_later(_DROPPED_S, self.on_dropped))
            return
        failure = LedgerClosed(
            "the writer was dropped without close(), so the gap below this entry cannot be filled",
            ledger_id=self.ledger_id,
        )
        for entry in self.machine.stop(failure):
            self.fail_add(entry, failure)
        self._let_go()

    @ends_operation
    def _on_client_closed(self) -> None:
        self.machine.abandon(ClientClosed(ledger_id=self.ledger_id))
        self._let_go()

    def _let_go(self) -> None:
        """Waiting appends learn that they cannot be done, and timers stop."""
        self._is_let_go = True
        self._forget()
        self._stop_timers()
        self.window.release()
        if self.admission is not None:
            self.admission.release()
        self.ownership.stop()
        for turn in self.turns.values():
            if not turn.done():
                turn.set_result(None)

    # Timers ------------------------------------------------------------------------------------------------------

    def _keep(self, name: str, timer: asyncio.TimerHandle) -> None:
        self._timers = own(self._timers)
        self._timers[name] = timer

    def _stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._lac_timer is not None:
            self._lac_timer.stop()

    def _watch(self) -> None:
        self._is_watched = True
        timeout_s = self.core.config.timeouts.add_quorum_s
        if timeout_s is not None and "look" not in self._timers:
            self._keep("look", self.loop.call_later(timeout_s / _LOOKS_PER_TIMEOUT, self._look))
        self.watch_lac()

    def watch_lac(self) -> None:
        """The LAC may move, so that there may be something to tell."""
        interval_s = self.core.config.writing.explicit_lac_interval_s
        if interval_s > 0 and not self._is_let_go:
            if self._lac_timer is None:
                self._lac_timer = LacTimer(self.core, self.codec, self.machine, interval_s, self._on_lac_told)
            self._lac_timer.start()

    def _on_lac_told(self) -> None:
        self._is_watched = False

    @ends_operation
    def _look(self) -> None:
        del self._timers["look"]
        self._check_quorum_timeout()
        self._let_go_if_ended()
        self._is_watched = False
        if self.machine.pending_count and not self._is_let_go:
            self._watch()

    @ends_operation
    def _on_late_timer(self) -> None:
        del self._timers["late"]
        self.machine.act_on_late_failures()
        if self.machine.is_degraded:  # there was no bookie to replace them yet
            self._keep("late", self.loop.call_later(_DEGRADED_S, self._on_late_timer))

    # Ports of the machine ----------------------------------------------------------------------------------------

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        if self._stats is not None:
            self._stats.on_sent(entry)
        entry_id, payload, lac, length = entry
        header = self.codec.encode_header(entry_id, lac, length, payload)
        self._adds.send(bookies, entry_id, header, payload)

    def on_adds_stored(self, bookie_id: BookieId, entry_ids: Sequence[int]) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`."""
        try:
            check = self._check
            if check.connections[bookie_id] > check.verified:
                for entry_id in entry_ids:
                    check.on_stored(bookie_id, entry_id)
            else:
                self.machine.acknowledged(bookie_id, entry_ids)
        except Exception as error:  # noqa: BLE001 - as in ends_operation(), whose call would cost every answer
            self.on_defect(error)

    @ends_operation
    def on_add_failed(self, bookie_id: BookieId, entry_id: int, code: int) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`."""
        self._count_no_more()
        self.core.watcher.on_request_failed(bookie_id, code)
        if "late" not in self._timers and self.machine.is_writable and not self.core.is_closed:
            self._keep("late", self.loop.call_later(_LATE_FAILURE_S, self._on_late_timer))
        if self._stats is not None and entry_id <= self.machine.last_add_acknowledged:
            self._stats.event(names.ADD_UNDER_REPLICATED)
        self.machine.on_add_reply(bookie_id, entry_id, code)

    def on_ownership_read(self) -> None:
        """The metadata was read, or could not be, and the writer may have ended by it."""
        self._count_answers()  # over more connections, if it was
        self._let_go_if_ended()
        self.on_metadata_changed()

    def confirm_adds(self, entries: list[NewEntry]) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        if self._stats is not None:
            for entry in entries:
                self._stats.on_ended(entry)
        self.outcomes.confirm(entries)
        # Writers of many ledgers hear of one entry at a time, and a call would cost each of them.
        size = len(entries[0].payload) if len(entries) == 1 else self._payload_bytes(entries)
        self.window.give_back(size, len(entries))
        if self.turns:
            for entry in entries:
                self._wake_turn(entry.entry_id + 1)
        if self.flushes.waiters:
            self.flushes.reached(entries[-1].entry_id)

    def _payload_bytes(self, entries: list[NewEntry]) -> int:
        """Of entries that follow each other."""
        if self.gaps is not NO_GAPS:  # what an entry's header counts depends on when it was handed in
            return sum(len(entry.payload) for entry in entries)
        first = entries[0]
        return entries[-1].length - first.length + len(first.payload)

    def _wake_turn(self, entry_id: int) -> None:
        turn = self.turns.get(entry_id)
        if turn is not None and not turn.done():
            turn.set_result(None)

    def fail_add(self, entry: NewEntry, error: BookKeeperError) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        if self._stats is not None:
            self._stats.on_ended(entry, error.code)
        if self.gaps.above:  # this writer has ended, and all that is above its gap fails with it
            self.window.leave_gap(*self.gaps.clear())
        self.window.give_back(len(entry.payload))
        failure = fresh(error, ledger_id=self.ledger_id, entry_id=entry.entry_id)
        if self.first_failure is None:
            self.first_failure = failure
            log_failure(error, self.ledger_id, entry.entry_id)
        self.outcomes.fail(entry.entry_id, error)
        self._let_go_if_ended()
        self.flushes.fail(failure)

    def run_update(self, number: int) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        self.core.run_update(UpdateHandle(self.machine, number), self._on_update_done)

    @ends_operation
    def _on_update_done(self, update: UpdateHandle) -> None:
        has_changed = update.cause == "ensemble" and update.error is None
        if has_changed and self._stats is not None and not self.machine.metadata.is_closed:
            self._stats.event(names.ENSEMBLE_CHANGES)
        if has_changed and log.ENSEMBLE_CHANGED.is_enabled:
            last = self.machine.metadata.last_fragment
            log.ENSEMBLE_CHANGED(
                ledger_id=self.ledger_id, entry_id=last.first_entry_id, ensemble=", ".join(last.ensemble)
            )
        self.machine.on_update_done(update.number)
        self._let_go_if_ended()
        self.on_metadata_changed()

    def replace_bookie(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        return self.core.watcher.replace(LedgerShape.of(self.machine.metadata), ensemble, position, excluded)

    def is_ensemble_change_disabled(self) -> bool:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        return self.core.features(self.core.config.writing.disable_ensemble_change_feature)

    def retry_later(self, delay_s: float) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        self._keep("retry", self.loop.call_later(delay_s, self._on_retry))

    @ends_operation
    def _on_retry(self) -> None:
        self.machine.on_retry()
        self._let_go_if_ended()

    def spans_fault_domains(self, bookies: tuple[BookieId, ...]) -> bool:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        spans = self.core.watcher.covers_fault_domains(LedgerShape.of(self.machine.metadata), bookies)
        if not spans and self._stats is not None:
            self._stats.event(names.FAULT_DOMAINS_MISSED)
        return spans

    def ledger_truncated(self, error: LedgerTruncated) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        log.ACKNOWLEDGED_LOST(
            ledger_id=self.ledger_id, entry_id=error.last_entry_id, confirmed=error.last_add_confirmed, code=error.code
        )

    def close_finished(self, error: BookKeeperError | None) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        self._close_error = error
        self._set_closed()
        if error is None:
            log.LEDGER_CLOSED(ledger_id=self.ledger_id, entry_id=self.machine.last_add_confirmed)
        else:
            log.CLOSE_FAILED(ledger_id=self.ledger_id, code=error.code, reason=error.message)
