"""The writer of a ledger: appends, ensemble changes, fatal errors, close.

States: *open*, *changing* (a bookie failed and new metadata is being stored; adds go on but none completes), *closed*. A
writer leaves *open* for good by closing or by a fatal error, and every add ends in exactly one confirmation or failure.

The writer needs no lock against other clients. It learns that somebody took over from a fenced bookie, or from metadata
that is no longer OPEN when it wants to change the ensemble; and what it acknowledged is safe either way, because
recovery finds everything that an ack quorum stored.

Three numbers say how far it got. LAP is the highest id handed in. The sequence head is the highest id reported to the
application with everything before it. The LAC follows the sequence head, or with deferred sync the last force: what lies
between LAC and sequence head is acknowledged and not yet durable, and a close cuts it off (W-57).

Where callers choose ids (W-5), any id above the sequence head that is not pending is legal. How far ahead it is does not
matter: what is pending is bounded by whoever drives the machine, by entries and bytes, and a gap costs nothing. Entries
are reported in id order, so those above a gap wait until it is filled, and fail when the ledger is closed before. The length in
an entry's header is that of all entries handed in so far up to it; so it is exact if no smaller id is handed in
later, and the length of the closed ledger always is (H-4).

What becomes of a bookie's failure, in this order:

* the entry has its ack quorum: the failure is remembered for the next append or call of
  :meth:`AppendMachine.act_on_late_failures`, unless changes are delayed or disabled (W-16, W-33, H-5);
* changes are delayed, or nobody could replace this bookie before: nothing, while the entry can do without it (W-25, H-7);
* changes are disabled: what failed is sent again later (W-26);
* the ledger has deferred sync: the writer ends (W-27);
* otherwise the bookie is replaced, together with all that failed (W-24, W-28). If nobody can replace any of them, the
  writer ends with NotEnoughBookies; except that a change which replaced some, a delayed and a voluntary one leave the
  others in place as long as no entry needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from bkclient.errors import ArgumentError, BookKeeperError, Code, error_for
from bkclient.metadata.model import BookieId, Ensemble, LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.append_options import MAX_ENTRY_ID, AppendOptions
from bkclient.protocol.append_ports import AppendPorts
from bkclient.protocol.ensemble import BookieMemory, replace_failed
from bkclient.protocol.ensemble_change import EnsembleChange, Resends
from bkclient.protocol.pipeline import AddPipeline, PendingAdd
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.quorum_timeout import QuorumTimeout
from bkclient.protocol.update import LocalMetadata, MetadataUpdate

__all__ = ["AppendMachine", "AppendPorts", "WriterState"]


class WriterState(Enum):
    """Where a writer is in its life."""

    OPEN = "open"
    CHANGING = "changing"
    CLOSED = "closed"


class AppendMachine(AddPipeline):
    """The append path of one open ledger, for its single writer (section W of the rules)."""

    def __init__(self, metadata: Versioned, ports: AppendPorts, *, options: AppendOptions = AppendOptions()) -> None:  # noqa: B008
        sizes = QuorumSizes.of(metadata.metadata)
        assert metadata.metadata.state is LedgerState.OPEN, "only an open ledger has a writer"
        super().__init__(sizes, metadata.metadata.last_fragment.ensemble, last_add_confirmed=-1, length=0)
        self.state = WriterState.OPEN
        self.options: Final = options
        self.local: Final = LocalMetadata(metadata)
        #: Why the writer cannot go on; set by the first fatal error.
        self.fatal_error: BookKeeperError | None = None
        self._ports = ports
        self._ensemble_changes = 0
        self._late_failures: dict[int, BookieId] = {}
        #: Bookies that failed and stayed, because nobody could replace them.
        self._unreplaced: dict[int, BookieId] = {}
        self._bookies = BookieMemory()
        self._unproven = self._bookies.unproven
        self._resends = Resends(options)
        self._change: EnsembleChange | None = None
        self._close_update: MetadataUpdate | None = None
        self._quorum_timeout = None if options.quorum_timeout_s is None else QuorumTimeout(options.quorum_timeout_s)
        self._defers_lac = options.deferred_sync
        self._spans_fault_domains = ports.spans_fault_domains if options.enforce_fault_domains else None
        #: With deferred sync: the ledger's length at the LAC, and what entries told of the LAC before its last move.
        self._forced_length = 0
        self._told_before_force = -1
        self._head_at_force = -1

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this writer knows it."""
        return self.local.value.metadata

    @property
    def is_writable(self) -> bool:
        """Whether an append can be accepted (W-3)."""
        return self.state is not WriterState.CLOSED and self.fatal_error is None and not self.metadata.is_closed

    # Appending ---------------------------------------------------------------------------------------------------

    def append(self, payload: bytes, token: Any = None) -> PendingAdd:
        """Accept one entry under the next id and send it.

        The caller checks :attr:`is_writable` first; see :meth:`refusal`. Raises :class:`~bkclient.errors.IllegalOperation` where
        callers choose ids (API-14).
        """
        assert self.is_writable, "the shell refuses appends to a closed handle"
        if self.options.entry_ids_given:
            raise self._error(Code.ILLEGAL_OPERATION, "the writer of this ledger takes entries with ids only")
        if self._late_failures:
            entry_id = self.last_add_pushed + 1
            if not self._change_late():
                return self._refuse(entry_id, payload, token)
        return self._push(payload, self.last_add_confirmed, token)

    def append_at(self, entry_id: int, payload: bytes, token: Any = None) -> PendingAdd:
        """Accept one entry under the caller's id and send it (W-5); the check and the insertion are one step (H-2).

        Raises, with nothing changed, :class:`~bkclient.errors.DuplicateEntryId` for an id that is acknowledged or pending
        already, forced or not (H-3), or negative; :class:`~bkclient.errors.ArgumentError` for one that does not fit 63 bits;
        :class:`~bkclient.errors.IllegalOperation` where ids are not the caller's choice (API-14).
        """
        assert self.is_writable, "the shell refuses appends to a closed handle"
        if not self.options.entry_ids_given:
            raise self._error(Code.ILLEGAL_OPERATION, "the writer of this ledger chooses the ids of entries itself")
        if entry_id <= self.last_add_acknowledged or entry_id in self._pending:
            raise error_for(Code.DUPLICATE_ENTRY_ID, ledger_id=self.metadata.ledger_id, entry_id=entry_id)
        if entry_id > MAX_ENTRY_ID:
            raise ArgumentError("an entry id is less than 2**63", ledger_id=self.metadata.ledger_id, entry_id=entry_id)
        if self._late_failures and not self._change_late():
            return self._refuse(entry_id, payload, token)
        self.length += len(payload)
        length = self.length
        if entry_id < self.last_add_pushed:
            length -= sum(len(add.payload) for add in self._pending.values() if add.entry_id > entry_id)
        else:
            self.last_add_pushed = entry_id
        return self._launch(PendingAdd(entry_id, payload, self.last_add_confirmed, length, self.ensemble, token))

    def _change_late(self) -> bool:
        """Act on failures that came after the ack quorum (W-33); tells whether the writer goes on."""
        if self._change is None and not self._ports.is_ensemble_change_disabled():
            self._request_change({})
        return self.fatal_error is None

    def _refuse(self, entry_id: int, payload: bytes, token: Any) -> PendingAdd:
        assert self.fatal_error is not None, "entries are refused for a reason"
        add = PendingAdd(entry_id, payload, self.last_add_confirmed, self.length, self.ensemble, token)
        self._ports.fail_add(add, self.fatal_error)
        return add

    def refusal(self) -> BookKeeperError:
        """Why an append is refused when the writer is not writable."""
        failed = self.fatal_error
        code, why = Code.LEDGER_CLOSED, ""
        if failed is not None and self.state is not WriterState.CLOSED:
            code, why = failed.code, "an earlier append failed"
        error = error_for(code, why, ledger_id=self.metadata.ledger_id)
        error.__cause__ = failed
        return error

    def _send(self, add: PendingAdd, bookie_id: BookieId) -> None:
        self._ports.send_add(add, bookie_id)

    def _confirm(self, add: PendingAdd) -> None:
        self._ports.confirm_add(add)

    # Failures of bookies -----------------------------------------------------------------------------------------

    def _on_add_failed(self, add: PendingAdd, position: int, bookie_id: BookieId, code: int) -> None:
        failures = {position: bookie_id}
        is_known = self._unreplaced.get(position) == bookie_id and bookie_id in self._unproven
        if self.options.delay_ensemble_change or is_known:
            forces_change = code == Code.WRITE_ON_READ_ONLY_BOOKIE and not is_known
            if not forces_change and not self._is_stuck(add):
                return  # W-25
            failures = self._failures_of(add)
        self._on_bookies_failed(failures)

    def _on_add_stuck(self, add: PendingAdd) -> None:
        failures = self._failures_of(add)
        if failures:
            self._on_bookies_failed(failures)
            return
        self._fail(
            self._error(
                Code.NOT_ENOUGH_BOOKIES,
                f"entry {add.entry_id} is stored by all its bookies, {', '.join(add.ensemble)}, "
                f"and they span too few fault domains for {self.options.placement_policy}",
            )
        )

    def _on_bookies_failed(self, failures: Mapping[int, BookieId]) -> None:
        if self._change is None and self._ports.is_ensemble_change_disabled():
            self._schedule_resend()
        else:
            self._request_change(failures)

    def _on_late_failure(self, position: int, bookie_id: BookieId) -> None:
        if self.state is WriterState.CLOSED or self.fatal_error is not None or self.options.delay_ensemble_change:
            return
        is_known = self._unreplaced.get(position) == bookie_id and bookie_id in self._unproven
        if not is_known and not self._ports.is_ensemble_change_disabled():
            self._late_failures[position] = bookie_id

    def act_on_late_failures(self) -> None:
        """Replace bookies that failed after the ack quorum, or could not be replaced, without waiting for an append (H-5).

        For a timer, or a writer with nothing to do. It changes the ensemble only where that is possible: a lack of
        bookies does not end the writer here.
        """
        if self.state is not WriterState.OPEN or not self.is_writable or self.options.deferred_sync:
            return
        failures = {**self._still_unreplaced(), **self._late_failures}
        if not failures or self._ensemble_changes >= self.options.max_ensemble_changes:
            return
        if self._ports.is_ensemble_change_disabled() or not self._is_replaceable(failures):
            return
        self._request_change({}, is_voluntary=True)

    def _is_replaceable(self, failures: Mapping[int, BookieId]) -> bool:
        try:
            self.choose_ensemble(self.metadata, failures)
        except BookKeeperError as error:
            return error.code is not Code.NOT_ENOUGH_BOOKIES  # the change itself reports any other
        return True

    def _still_unreplaced(self) -> dict[int, BookieId]:
        """Without those that have acknowledged something since: they are back."""
        self._unreplaced = {p: bookie_id for p, bookie_id in self._unreplaced.items() if bookie_id in self._unproven}
        return self._unreplaced

    # Sending again while changes are disabled --------------------------------------------------------------------

    def _schedule_resend(self) -> None:
        if not self._resends.is_scheduled:
            self._ports.retry_later(self._resends.schedule(self.last_add_acknowledged))

    def on_retry(self) -> None:
        """The time that :meth:`AppendPorts.retry_later` was given is over."""
        may_resend = self._resends.begin_round()
        if self.state is WriterState.CLOSED or self.fatal_error is not None:
            return
        failed = [(add, self._failures_of(add)) for add in self._in_id_order()]
        if not self._ports.is_ensemble_change_disabled():
            needed: dict[int, BookieId] = {}
            for add, failures in failed:
                if self._is_stuck(add) or not (add.has_quorum or self.options.delay_ensemble_change):
                    needed.update(failures)
            if needed:
                self._request_change(needed)
        elif not any(failures for _, failures in failed):
            return
        elif self._change is not None:
            self._schedule_resend()  # the change was under way when it was disabled
        elif may_resend:
            self._resend(failed)
        else:
            bookies = ", ".join(sorted({bookie_id for _, failures in failed for bookie_id in failures.values()}))
            self._fail(
                self._error(
                    Code.WRITE,
                    f"ensemble changes are disabled, and entries were sent to {bookies} {self.options.max_resends} times "
                    f"again in vain; enable changes or restart the bookies",
                )
            )

    def _resend(self, failed: list[tuple[PendingAdd, dict[int, BookieId]]]) -> None:
        for add, failures in failed:
            add.failed = 0
            for bookie_id in failures.values():
                self._send(add, bookie_id)

    # Ensemble change ---------------------------------------------------------------------------------------------

    def _request_change(self, failures: Mapping[int, BookieId], *, is_voluntary: bool = False) -> None:
        if self._change is not None:
            self._late_failures.update(failures)  # W-28: merged when the running pass ends
            return
        merged = {**self._still_unreplaced(), **self._late_failures, **failures}
        self._late_failures = {}
        if self.options.deferred_sync:
            self._fail(
                self._error(
                    Code.WRITE,
                    f"the ensemble of a ledger with deferred sync must not change, and {', '.join(merged.values())} "
                    f"failed; go on in a new ledger",
                )
            )
            return
        self.state = WriterState.CHANGING
        self._is_suspended = True
        self._change = EnsembleChange(is_voluntary=is_voluntary)
        self._next_pass(merged)

    def _next_pass(self, failures: Mapping[int, BookieId]) -> None:
        assert self._change is not None, "a pass belongs to a change"
        self._ensemble_changes += 1
        limit = self.options.max_ensemble_changes
        if self._ensemble_changes > limit:
            self._fail(self._error(Code.WRITE, f"gave up after {limit} ensemble changes"))
            return
        self._bookies.note_failed(failures.values(), self.last_add_acknowledged + 1)
        # W-34: whatever is not acknowledged belongs to the new fragment. A ledger that changes has LAC = sequence head.
        first_entry_id = self.last_add_confirmed + 1
        self._ports.run_update(
            self._change.begin_pass(self.local, first_entry_id, dict(failures), self.choose_ensemble)
        )

    def choose_ensemble(self, metadata: LedgerMetadata, failures: Mapping[int, BookieId]) -> Ensemble:
        """The last ensemble of ``metadata`` without ``failures``; raises as :func:`replace_failed` does."""
        entries = self.last_add_acknowledged + 1
        failed_before = self._bookies.useless(entries)
        if self._change is not None:
            failed_before += self._change.failed
        return replace_failed(
            metadata.ledger_id,
            metadata.last_fragment.ensemble,
            failures,
            self._ports.replace_bookie,
            failed_before=failed_before,
            last_resort=self._bookies.last_resort(entries),
            policy=self.options.placement_policy,
        )

    def on_update_done(self, update: MetadataUpdate) -> None:
        """A metadata update that :meth:`AppendPorts.run_update` was given has ended."""
        if update is self._close_update:
            self._finish_close(update)
            return
        change = self._change
        if change is None or update is not change.update:
            return  # The handle closed meanwhile; whatever the change did has no effect here (W-56).
        metadata = self.metadata
        if update.error is not None and (
            update.error.code is not Code.NOT_ENOUGH_BOOKIES or not self._may_do_without(change)
        ):
            self._fail(update.error)
        elif metadata.state is LedgerState.CLOSED:
            self._adopt_closed()
            self._fail(self._error(Code.LEDGER_CLOSED, "another client recovered and closed the ledger"))
        elif metadata.state is LedgerState.IN_RECOVERY:
            self._fail(self._error(Code.LEDGER_FENCED, "another client is recovering the ledger"))
        else:
            self._end_pass(change, update.error)

    def _may_do_without(self, change: EnsembleChange) -> bool:
        is_partial = self.metadata.last_fragment.ensemble != self.ensemble
        return self.options.delay_ensemble_change or change.is_voluntary or is_partial

    def _end_pass(self, change: EnsembleChange, shortage: BookKeeperError | None) -> None:
        # When a bookie dies, everything outstanding on it fails; only those that are still members need another pass,
        # and not those that this pass could not replace.
        ensemble = self.metadata.last_fragment.ensemble
        given_up = change.failures if shortage is not None else {}
        failures = {
            p: bookie_id
            for p, bookie_id in self._late_failures.items()
            if ensemble[p] == bookie_id and given_up.get(p) != bookie_id
        }
        self._late_failures = {}
        is_disabled = bool(failures) and self._ports.is_ensemble_change_disabled()
        if failures and not is_disabled:
            self._next_pass(failures)
            return
        self._change = None
        self.state = WriterState.OPEN
        # Compared with what adds were sent to, not with what was planned: whoever replaced a bookie, its answers are void.
        replaced = {p for p, bookie_id in enumerate(self.ensemble) if ensemble[p] != bookie_id}
        self._unreplaced = {p: ensemble[p] for p in sorted(change.positions) if ensemble[p] in change.failed}
        self._bookies.note_change(self.ensemble, ensemble, self._unreplaced.values())
        again = change.positions.difference(given_up) | replaced
        self._switch_ensemble(ensemble, again)
        if is_disabled:
            self._schedule_resend()
        if shortage is not None and any(self._is_stuck(add) for add in self._pending.values()):
            self._fail(shortage)

    # The end -----------------------------------------------------------------------------------------------------

    def _on_fatal(self, code: int) -> None:
        self._fail(self._error(code, "a bookie refused the entry"))

    def _error(self, code: int, why: str) -> BookKeeperError:
        return error_for(code, why, ledger_id=self.metadata.ledger_id)

    def _fail(self, error: BookKeeperError) -> None:
        """Going on is impossible: every pending add fails with ``error`` (W-41, W-42)."""
        self.fatal_error = error
        leave_open = self.metadata.state is LedgerState.IN_RECOVERY or error.code is Code.CLIENT_CLOSED
        if leave_open:
            # The recovering client decides where the ledger ends (W-44); after the client closed, nobody does yet (API-19).
            self._change = None
            self.state = WriterState.OPEN
            for add in self._drain():
                self._ports.fail_add(add, error)
        else:
            self.close(error)

    def check_quorum_timeout(self, now: float) -> None:
        """End the writer if an entry has waited for its ack quorum for too long at ``now``, a monotonic clock in seconds (W-46).

        An entry that has its quorum and waits for others is not timed out. Does nothing without a timeout in the options.
        """
        if self._quorum_timeout is None or not self._pending:
            return
        expired = self._quorum_timeout.find_expired(now, self._pending)
        if expired is not None:
            acknowledged = [b for p, b in enumerate(expired.ensemble) if expired.acknowledged >> p & 1]
            self._fail(
                self._error(
                    Code.QUORUM_TIMEOUT,
                    f"entry {expired.entry_id} has no ack quorum after {self.options.quorum_timeout_s} seconds, "
                    f"only {', '.join(acknowledged) or 'nobody'} stored it",
                )
            )

    def close(self, error: BookKeeperError | None = None) -> None:
        """Seal the ledger at the last add confirmed; pending adds fail with ``error`` (W-51). Idempotent.

        With deferred sync that is the last entry forced, and the length is that up to it (W-57, H-11).
        The outcome goes to :meth:`AppendPorts.close_finished`, once, however often close is called (W-55).
        """
        if self.state is WriterState.CLOSED:
            return
        self.state = WriterState.CLOSED
        self._change = None
        drained = self._drain()
        reason = error or error_for(
            Code.LEDGER_CLOSED, "the ledger was closed with the entry in flight", ledger_id=self.metadata.ledger_id
        )
        for add in drained:
            self._ports.fail_add(add, reason)
        last_entry_id = self.last_add_pushed = self.last_add_confirmed
        if self.options.deferred_sync:
            self.length = self._forced_length
        length = self.length

        def needs_update(metadata: LedgerMetadata) -> bool:
            if not metadata.is_closed:
                return True  # IN_RECOVERY too: this client knows exactly what it acknowledged (W-43, W-54)
            if (metadata.last_entry_id, metadata.length) == (last_entry_id, length):
                return False
            raise error_for(
                Code.METADATA_VERSION,
                f"another client closed the ledger at entry {metadata.last_entry_id} with {metadata.length} bytes, "
                f"this writer ends at entry {last_entry_id} with {length} bytes",
                ledger_id=metadata.ledger_id,
            )

        self._close_update = MetadataUpdate(
            self.local,
            "close",
            needs_update=needs_update,
            transform=lambda metadata: metadata.closed(last_entry_id, length),
        )
        self._ports.run_update(self._close_update)

    def _finish_close(self, update: MetadataUpdate) -> None:
        if self.metadata.is_closed:
            self._adopt_closed()
        self._ports.close_finished(update.error)

    def _adopt_closed(self) -> None:
        """The stored end is the end, even if this writer saw another one (W-50)."""
        metadata = self.metadata
        self.last_add_acknowledged = self.last_add_confirmed = self.last_add_pushed = metadata.last_entry_id
        self._forced_length = metadata.length
        self.length = metadata.length + sum(len(add.payload) for add in self._pending.values())

    # Durability --------------------------------------------------------------------------------------------------

    @property
    def acknowledged_length(self) -> int:
        """Payload bytes up to the sequence head."""
        return self.length - sum(len(add.payload) for add in self._pending.values())

    @property
    def told_lac(self) -> int:
        """The LAC that readers can know from entries: that before the last acknowledged entry (LAC-5)."""
        if not self.options.deferred_sync:
            return max(-1, self.last_add_acknowledged - 1)
        return self._told_before_force if self.last_add_acknowledged == self._head_at_force else self.last_add_confirmed

    def on_forced(self, entry_id: int, length: int) -> bool:
        """All bookies made everything up to ``entry_id`` durable, with ``length`` payload bytes (LAC-12).

        Tells whether the ledger includes it; it does not if it was closed meanwhile.
        """
        if entry_id > self.last_add_confirmed and not (self.state is WriterState.CLOSED or self.metadata.is_closed):
            self._told_before_force = self.told_lac
            self._head_at_force = self.last_add_acknowledged
            self.last_add_confirmed = entry_id
            self._forced_length = length
        return entry_id <= self.last_add_confirmed
