"""The writer of a ledger: appends, failures of bookies, ensemble changes, fatal errors, close.

Its states, and what may follow what, are in :mod:`~bkclient.protocol.writer_state`; every change of state goes through one
function. Every add ends in exactly one confirmation or failure.

The writer needs no lock against other clients. It learns that somebody took over from a fenced bookie, or from metadata
that is no longer OPEN when it wants to change the ensemble; and what it acknowledged is safe either way, because
recovery finds everything that an ack quorum stored.

How far it got is counted in :mod:`~bkclient.protocol.adds`; what becomes of a bookie's failure is told in
:mod:`~bkclient.protocol.ensemble_change`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bkclient.errors import ArgumentError, BookKeeperError, Code, LedgerTruncated, error_for
from bkclient.ledger import BookieId, Ensemble, LedgerMetadata, LedgerState, Versioned
from bkclient.protocol import endings
from bkclient.protocol.adds import Effect, NewEntry, PendingAdd, PendingAdds, Spans
from bkclient.protocol.append_options import MAX_ENTRY_ID, AppendOptions
from bkclient.protocol.append_ports import AppendPorts
from bkclient.protocol.counted import TakesCounted
from bkclient.protocol.deferred_lac import DeferredLac
from bkclient.protocol.ensemble_change import EnsembleChange, Membership, Resends
from bkclient.protocol.intents import SealAsWritten
from bkclient.protocol.many import TakesMany
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.quorum_timeout import QuorumClock
from bkclient.protocol.update import LocalMetadata, MetadataUpdate
from bkclient.protocol.value import moved, own
from bkclient.protocol.writer_state import HAS_ENDED, NEXT, WriterState

__all__ = ["AppendMachine", "AppendPorts", "WriterState"]

_OK: Final = int(Code.OK)
#: Looked at for every append: the members of an enumeration are found the slow way.
_OPEN, _CHANGING, _FAILED, _CLOSING, _CLOSED = WriterState


class AppendMachine(TakesCounted, TakesMany):
    """The append path of one open ledger, for its single writer (section W of the rules)."""

    __slots__ = (
        "_close_update",
        "_deferred",
        "_quorum_timeout",
        "_resends",
        "fatal_error",
        "held_up_by",
        "members",
        "options",
        "state",
        "truncation",
    )

    def __init__(self, metadata: Versioned, ports: AppendPorts, *, options: AppendOptions = AppendOptions()) -> None:  # noqa: B008
        assert metadata.metadata.state is LedgerState.OPEN, "only an open ledger has a writer"
        self.state = WriterState.OPEN
        self.ports = ports
        self.options = options
        self.local = LocalMetadata(metadata)
        self.adds = PendingAdds(
            QuorumSizes.of(metadata.metadata),
            metadata.metadata.last_fragment.ensemble,
            defers_lac=options.deferred_sync,
        )
        #: Why the writer cannot go on: the first fatal error, or that acknowledged entries were lost.
        self.fatal_error: BookKeeperError | None = None
        #: Why answers of bookies cannot be counted at present, if so; see :mod:`~bkclient.protocol.reconnect`.
        self.held_up_by: BookKeeperError | None = None
        #: Set once the ledger is known to end below what this writer had confirmed.
        self.truncation: LedgerTruncated | None = None
        self.members = Membership()
        self._resends = Resends(options)
        self._close_update = 0
        self._quorum_timeout = None if options.quorum_timeout_s is None else QuorumClock(options.quorum_timeout_s)
        self._deferred = DeferredLac()

    def _enter(self, state: WriterState) -> None:
        """Change the state. Nothing else does."""
        self.state = moved(NEXT, self.state, state)
        if state is not _CHANGING:
            self.members.change = None
        assert (self.fatal_error is not None) or state is not _FAILED, "who failed knows why"

    @property
    def is_writable(self) -> bool:
        """Whether an append can be accepted (W-3)."""
        # A change may have read that the ledger is closed, and is about to end.
        state = self.state
        return state is _OPEN or (state is _CHANGING and not self.local.value.metadata.is_closed)

    @property
    def _spans(self) -> Spans | None:
        return self.ports.spans_fault_domains if self.options.enforce_fault_domains else None

    # Appending ---------------------------------------------------------------------------------------------------

    def append(self, payload: bytes) -> NewEntry:
        """Accept one entry under the next id and send it.

        The caller checks :attr:`is_writable` first; see :meth:`refusal`. Raises :class:`~bkclient.errors.IllegalOperation` where
        callers choose ids (API-14).
        """
        assert self.state is _OPEN or self.is_writable, "the shell refuses appends to a closed handle"
        if self.options.entry_ids_given:
            raise self._illegal("the writer of this ledger takes entries with ids only")
        adds = self.adds
        entry_id = adds.last_add_pushed + 1
        if self.members.late and not self._change_late():
            return self._refuse(entry_id, payload)
        entry = adds.push(payload, adds.last_add_confirmed)
        self.ports.send_add(entry, adds.write_sets[entry_id % adds.sizes.ensemble_size])
        return entry

    def append_at(self, entry_id: int, payload: bytes) -> NewEntry:
        """Accept one entry under the caller's id and send it (W-5); the check and the insertion are one step (H-2).

        Raises, with nothing changed, :class:`~bkclient.errors.DuplicateEntryId` for an id that is acknowledged or pending
        already, forced or not (H-3), or negative; :class:`~bkclient.errors.ArgumentError` for one that does not fit 63 bits;
        :class:`~bkclient.errors.IllegalOperation` where ids are not the caller's choice (API-14).
        """
        assert self.is_writable, "the shell refuses appends to a closed handle"
        if not self.options.entry_ids_given:
            raise self._illegal("the writer of this ledger chooses the ids of entries itself")
        self.check_entry_id(entry_id)
        if self.members.late and not self._change_late():
            return self._refuse(entry_id, payload)
        entry = self.adds.push_at(entry_id, payload, self.adds.last_add_confirmed)
        self.ports.send_add(entry, self.adds.write_set(entry_id))
        return entry

    def _illegal(self, why: str) -> BookKeeperError:
        return error_for(Code.ILLEGAL_OPERATION, why, ledger_id=self.metadata.ledger_id)

    def check_entry_id(self, entry_id: int) -> None:
        """Raise as :meth:`append_at` does for ids that cannot be given to an entry, whatever else is the matter."""
        if self.is_taken(entry_id):
            raise error_for(Code.DUPLICATE_ENTRY_ID, ledger_id=self.metadata.ledger_id, entry_id=entry_id)
        if entry_id > MAX_ENTRY_ID:
            raise ArgumentError("entry_id must be < 2**63", ledger_id=self.metadata.ledger_id, entry_id=entry_id)

    def _change_late(self) -> bool:
        """Act on failures that came after the ack quorum (W-33); tells whether the writer goes on."""
        if self.state is not _CHANGING and not self.ports.is_ensemble_change_disabled():
            self._request_change({})
        return self.state not in HAS_ENDED

    def _refuse(self, entry_id: int, payload: bytes) -> NewEntry:
        assert self.fatal_error is not None, "entries are refused for a reason"
        entry = NewEntry(entry_id, payload, self.adds.last_add_confirmed, self.adds.length)
        self.ports.fail_add(entry, self.fatal_error)
        return entry

    def refusal(self) -> BookKeeperError:
        """Why an append is refused when the writer is not writable: the error that ended it, whatever came after that.

        That error itself, which is shared: raise a copy of it.
        """
        if self.fatal_error is not None:
            return self.fatal_error
        if self.state in HAS_ENDED:
            return endings.closed(self, "the writer was closed")
        # An ensemble change has read that, and its end is about to be told.
        if self.metadata.last_entry_id < self.adds.last_add_confirmed:
            return endings.truncated(self, None)
        return endings.closed(self, "another client closed the ledger")

    # Answers of bookies ------------------------------------------------------------------------------------------

    def on_add_reply(self, bookie_id: BookieId, entry_id: int, code: int) -> None:
        """A bookie answered an add, or it is known that it will not (``code`` says why)."""
        if code != _OK:
            self._on_failure(bookie_id, entry_id, code)
            return
        if unproven := self.members.memory.unproven:
            unproven.pop(bookie_id, None)
        add = self.adds.acknowledge(bookie_id, entry_id)
        if add is None:
            return
        if self.options.enforce_fault_domains and not self.adds.spans(add, self.ports.spans_fault_domains):
            if self.adds.is_stuck(add):
                self._on_stuck(add)
            return
        add.has_quorum = True
        self._complete()

    def acknowledged(self, bookie_id: BookieId, entry_ids: Sequence[int]) -> None:
        """The bookie stored these entries.

        Does what :meth:`on_add_reply` does for each of them with OK, in order, and confirms what that completes in one go.
        """
        if self.options.enforce_fault_domains:
            for entry_id in entry_ids:
                self.on_add_reply(bookie_id, entry_id, _OK)
            return
        if (unproven := self.members.memory.unproven) and entry_ids:
            unproven.pop(bookie_id, None)
        if self.adds.acknowledge_all(bookie_id, entry_ids):
            self._complete()

    def _complete(self) -> None:
        if self.state is not _CHANGING and (done := self.adds.complete()):
            self.ports.confirm_adds(done)

    # Failures of bookies -----------------------------------------------------------------------------------------

    def _on_failure(self, bookie_id: BookieId, entry_id: int, code: int) -> None:
        effect, position, add = self.adds.fail(bookie_id, entry_id, code)
        if effect is Effect.LATE:
            self._on_late_failure(position, bookie_id)
        elif effect is Effect.REFUSED:
            self._fail(endings.refused(self, entry_id, bookie_id, code))
        elif effect is Effect.NEEDED:
            assert add is not None, "somebody needs it"
            self._on_add_failed(add, position, bookie_id, code)

    def _on_late_failure(self, position: int, bookie_id: BookieId) -> None:
        if self.state in HAS_ENDED or self.options.delay_ensemble_change:
            return
        if not self.members.is_unreplaced(position, bookie_id) and not self.ports.is_ensemble_change_disabled():
            self.members.late = own(self.members.late)
            self.members.late[position] = bookie_id

    def _on_add_failed(self, add: PendingAdd, position: int, bookie_id: BookieId, code: int) -> None:
        failures = {position: bookie_id}
        is_known = self.members.is_unreplaced(position, bookie_id)
        if self.options.delay_ensemble_change or is_known:
            forces_change = code == Code.WRITE_ON_READ_ONLY_BOOKIE and not is_known
            if not forces_change and not self.adds.is_stuck(add):
                return  # W-25
            failures = self.adds.failures_of(add)
        self._on_bookies_failed(failures)

    def _on_stuck(self, add: PendingAdd) -> None:
        """The last answer that could have made ``add`` durable has come, and its bookies share too few fault domains."""
        failures = self.adds.failures_of(add)
        if failures:
            self._on_bookies_failed(failures)
            return
        self._fail(endings.too_few_domains(self, add, self.options))

    def _on_bookies_failed(self, failures: Mapping[int, BookieId]) -> None:
        if self.state is not _CHANGING and self.ports.is_ensemble_change_disabled():
            self._schedule_resend()
        else:
            self._request_change(failures)

    @property
    def is_degraded(self) -> bool:
        """Whether bookies that failed are members still, so that :meth:`act_on_late_failures` may have something to do."""
        if self.options.deferred_sync or not self.is_writable:
            return False
        return bool(self.members.all_failures())

    def act_on_late_failures(self) -> None:
        """Replace bookies that failed after the ack quorum, or could not be replaced, without waiting for an append (H-5).

        For a timer, or a writer with nothing to do. It changes the ensemble only where that is possible: a lack of
        bookies does not end the writer here.
        """
        if self.state is not _OPEN or self.options.deferred_sync:
            return
        failures = self.members.all_failures()
        if not failures or self.members.passes >= self.options.max_ensemble_changes:
            return
        if self.ports.is_ensemble_change_disabled():
            return
        try:
            self.choose_ensemble(self.metadata, failures)
        except BookKeeperError as error:
            if error.code is Code.NOT_ENOUGH_BOOKIES:
                return  # the change itself reports any other
        self._request_change({}, is_voluntary=True)

    # Sending again while changes are disabled --------------------------------------------------------------------

    def _schedule_resend(self) -> None:
        if not self._resends.is_scheduled:
            self.ports.retry_later(self._resends.schedule(self.adds.last_add_acknowledged))

    def on_retry(self) -> None:
        """The time that :meth:`AppendPorts.retry_later` was given is over."""
        may_resend = self._resends.begin_round()
        if self.state in HAS_ENDED:
            return
        adds = self.adds
        failed = [(add, failures) for add in adds.in_id_order() if (failures := adds.failures_of(add))]
        if not self.ports.is_ensemble_change_disabled():
            needed: dict[int, BookieId] = {}
            for add, failures in failed:
                if adds.is_stuck(add) or not (add.has_quorum or self.options.delay_ensemble_change):
                    needed.update(failures)
            if needed:
                self._request_change(needed)
        elif not failed:
            return
        elif self.state is _CHANGING:
            self._schedule_resend()  # the change was under way when it was disabled
        elif may_resend:
            self._resend(failed)
        else:
            bookies = [bookie_id for _, failures in failed for bookie_id in failures.values()]
            self._fail(endings.resent_in_vain(self, bookies, self.options))

    def _resend(self, failed: list[tuple[PendingAdd, dict[int, BookieId]]]) -> None:
        for add, failures in failed:
            add.failed = 0
            self.ports.send_add(add.entry, tuple(failures.values()))

    # Ensemble change ---------------------------------------------------------------------------------------------

    def _request_change(self, failures: Mapping[int, BookieId], *, is_voluntary: bool = False) -> None:
        members = self.members
        if self.state is _CHANGING:
            members.late = {**members.late, **failures}  # W-28: merged when the running pass ends
            return
        merged = {**members.all_failures(), **failures}
        members.late = {}
        if self.options.deferred_sync:
            self._fail(endings.ensemble_must_stay(self, merged.values()))
            return
        self._enter(_CHANGING)
        members.change = EnsembleChange(is_voluntary=is_voluntary)
        self._next_pass(members.change, merged)

    def _next_pass(self, change: EnsembleChange, failures: Mapping[int, BookieId]) -> None:
        members, adds = self.members, self.adds
        members.passes += 1
        limit = self.options.max_ensemble_changes
        if members.passes > limit:
            self._fail(endings.changes_used_up(self, failures.values(), limit))
            return
        # W-34: whatever is not acknowledged belongs to the new fragment. A ledger that changes has LAC = sequence head.
        intent = members.begin_pass(adds.last_add_confirmed + 1, failures, adds.last_add_acknowledged + 1)
        change.update = self.local.begin(intent, self.choose_ensemble)
        self.ports.run_update(change.update)

    def choose_ensemble(self, metadata: LedgerMetadata, failures: Mapping[int, BookieId]) -> Ensemble:
        """Raises as :func:`~bkclient.protocol.ensemble.replace_failed` does."""
        policy = self.options.placement_policy
        return self.members.choose(metadata, failures, self.ports.replace_bookie, self.adds, policy)

    def on_update_done(self, number: int) -> None:
        """A metadata update that :meth:`AppendPorts.run_update` was given has ended."""
        update, change = self.local.end(number), self.members.change
        if number == self._close_update:
            self._finish_close(update)
        elif change is not None and number == change.update:
            self._on_change_done(change, update.error)
        elif self.metadata.is_closed:
            # The handle closed meanwhile; whatever the change did has no effect here (W-56). But it may have read the end.
            self._adopt_closed()

    def _on_change_done(self, change: EnsembleChange, error: BookKeeperError | None) -> None:
        state = self.metadata.state
        if error is not None and (error.code is not Code.NOT_ENOUGH_BOOKIES or not self._may_do_without(change)):
            self._fail(error)
        elif state is LedgerState.CLOSED:
            self._adopt_closed()
            self._fail(endings.closed(self, "another client recovered and closed the ledger"))
        elif state is LedgerState.IN_RECOVERY:
            self._fail(endings.taken_over(self))
        else:
            self._end_pass(change, error)

    def _may_do_without(self, change: EnsembleChange) -> bool:
        is_partial = self.metadata.last_fragment.ensemble != self.adds.ensemble
        return self.options.delay_ensemble_change or change.is_voluntary or is_partial

    def _end_pass(self, change: EnsembleChange, shortage: BookKeeperError | None) -> None:
        adds, members, ensemble = self.adds, self.members, self.metadata.last_fragment.ensemble
        given_up = change.failures if shortage is not None else {}
        failures = members.take_left_over(ensemble, given_up)
        is_disabled = bool(failures) and self.ports.is_ensemble_change_disabled()
        if failures and not is_disabled:
            self._next_pass(change, failures)
            return
        again = members.end_change(adds.ensemble, ensemble, given_up)
        self._enter(_OPEN)
        for entry, bookies in adds.switch(ensemble, again, self._spans):
            self.ports.send_add(entry, bookies)
        self._complete()
        if is_disabled:
            self._schedule_resend()
        if shortage is not None and any(adds.is_stuck(add) for add in adds.pending.values()):
            self._fail(shortage)

    # The end -----------------------------------------------------------------------------------------------------

    def abandon(self, error: BookKeeperError) -> None:
        """The driver of the machine can do nothing more for it: what is pending fails with ``error``.

        For the end of the client (API-17, API-19), whose ``error`` has the code CLIENT_CLOSED and leaves the ledger open; after
        any other error the ledger is closed (W-42). Entries may be pending without any request under way, above a gap or
        between two attempts to send them; nothing else would end them. Does nothing after the writer ended.
        """
        if self.state not in HAS_ENDED:
            self._fail(error)

    def stop(self, error: BookKeeperError) -> list[NewEntry]:
        """Do nothing any more because of ``error``, not even close the ledger; returns what was pending, for the caller to fail.

        For a defect of the driver, or of the machine: a recovery is a better judge of where the ledger ends.
        """
        if self.fatal_error is None:
            self.fatal_error = error
        if self.state not in HAS_ENDED:
            self._enter(_FAILED)
        return self.adds.drain()

    def _fail(self, error: BookKeeperError) -> None:
        """Going on is impossible: every pending add fails with ``error`` (W-41, W-42)."""
        error = self.truncation or error
        self.fatal_error = error
        if self.metadata.state is LedgerState.IN_RECOVERY or error.code is Code.CLIENT_CLOSED:
            # The recovering client decides where the ledger ends (W-44); after the client closed, that is open (API-19).
            self._end(_FAILED, error)
        else:
            self.close(error)

    def _end(self, state: WriterState, reason: BookKeeperError) -> None:
        self._enter(state)
        for entry in self.adds.drain():
            self.ports.fail_add(entry, reason)
        assert self.adds.length >= 0, "what was taken back had been counted"

    def on_taken_over(self, stored: Versioned) -> None:
        """The metadata was read, and another client has marked or closed the ledger (W-60).

        Does nothing after the writer ended.
        """
        if self.state in HAS_ENDED:
            return
        if stored.version > self.local.value.version:
            self.local.value = stored
        if self.metadata.is_closed:
            self._adopt_closed()
        self._fail(endings.taken_over(self))

    def check_quorum_timeout(self, now: float) -> None:
        """End the writer if an entry has waited for its ack quorum for too long at ``now``, a monotonic clock in seconds (W-46).

        An entry that has its quorum and waits for others is not timed out. Does nothing without a timeout in the options.
        """
        if self._quorum_timeout is None or not self.adds.pending:
            return
        expired = self._quorum_timeout.find_expired(now, self.adds.pending)
        if expired is not None:
            self._fail(endings.without_quorum(self, expired, self.options, self.held_up_by))

    def close(self, error: BookKeeperError | None = None) -> None:
        """Seal the ledger at the last add confirmed; pending adds fail with ``error`` (W-51). Idempotent.

        With deferred sync that is the last entry forced, and the length is that up to it (W-57, H-11).
        The outcome goes to :meth:`AppendPorts.close_finished`, once, however often close is called (W-55).
        """
        if self.state in (_CLOSING, _CLOSED):
            return
        self._end(_CLOSING, error or endings.closed(self, "the ledger was closed with the entry in flight"))
        adds = self.adds
        adds.cut_off(self._deferred.length)
        self._close_update = self.local.begin(SealAsWritten(adds.last_add_confirmed, adds.length))
        self.ports.run_update(self._close_update)

    def _finish_close(self, update: MetadataUpdate) -> None:
        self._enter(_CLOSED)
        if self.metadata.is_closed:
            self._adopt_closed()
        self.ports.close_finished(self.truncation or update.error)

    def _adopt_closed(self) -> None:
        """The stored end is the end, even if this writer saw another one (W-50); but what it confirmed is not taken back."""
        metadata = self.metadata
        if metadata.last_entry_id >= self.adds.last_add_confirmed:
            self.adds.end_at(metadata.last_entry_id, metadata.length)
            self._deferred.length = metadata.length
        elif self.truncation is None:
            self.fatal_error = self.truncation = endings.truncated(self, self.fatal_error)
            self.ports.ledger_truncated(self.truncation)

    # Durability --------------------------------------------------------------------------------------------------

    @property
    def told_lac(self) -> int:
        """The LAC that readers can know from entries (LAC-5)."""
        return self._deferred.told(self.adds)

    def on_forced(self, entry_id: int, length: int) -> bool:
        """All bookies made everything up to ``entry_id`` durable, with ``length`` payload bytes (LAC-12).

        Tells whether the ledger includes it; it does not if it was closed meanwhile.
        """
        is_open = self.state not in (_CLOSING, _CLOSED) and not self.metadata.is_closed
        if is_open and entry_id > self.adds.last_add_confirmed:
            self._deferred.move(self.adds, entry_id, length)
        return entry_id <= self.known_end
