"""A writer's pipeline whose ensemble changes: what becomes of a bookie's failure.

In this order:

* the entry has its ack quorum: the failure is remembered for the next append or call of
  :meth:`ChangingPipeline.act_on_late_failures`, unless changes are delayed or disabled (W-16, W-33, H-5);
* changes are delayed, or nobody could replace this bookie before: nothing, while the entry can do without it (W-25, H-7);
* changes are disabled: what failed is sent again later (W-26);
* the ledger has deferred sync: the writer ends (W-27);
* otherwise the bookie is replaced, together with all that failed (W-24, W-28). If nobody can replace any of them, the
  writer ends with NotEnoughBookies; except that a change which replaced some, a delayed and a voluntary one leave the
  others in place as long as no entry needs them.

How a writer takes entries and how it ends is the business of its subclass, :class:`~bkclient.protocol.append.AppendMachine`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from bkclient.errors import BookKeeperError, Code, LedgerTruncated, error_for
from bkclient.ledger import BookieId, Ensemble, LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.append_ports import AppendPorts
from bkclient.protocol.ensemble import BookieMemory, error_because_of, replace_failed
from bkclient.protocol.ensemble_change import EnsembleChange, Resends
from bkclient.protocol.pipeline import AddPipeline, PendingAdd
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.update import LocalMetadata, MetadataUpdate

__all__ = ["ChangingPipeline", "WriterState"]


class WriterState(Enum):
    """Where a writer is in its life."""

    OPEN = "open"
    CHANGING = "changing"
    CLOSED = "closed"


_CLOSED: Final = WriterState.CLOSED


class ChangingPipeline(AddPipeline):
    """The adds of an open ledger, and its ensemble, which changes through the metadata store."""

    def __init__(self, metadata: Versioned, ports: AppendPorts, options: AppendOptions) -> None:
        sizes = QuorumSizes.of(metadata.metadata)
        assert metadata.metadata.state is LedgerState.OPEN, "only an open ledger has a writer"
        super().__init__(sizes, metadata.metadata.last_fragment.ensemble, last_add_confirmed=-1, length=0)
        self.state = WriterState.OPEN
        self.options: Final = options
        self.local: Final = LocalMetadata(metadata)
        #: Why the writer cannot go on: the first fatal error, or that acknowledged entries were lost.
        self.fatal_error: BookKeeperError | None = None
        #: Why answers of bookies cannot be counted at present, if so; see :mod:`~bkclient.protocol.reconnect`.
        self.held_up_by: BookKeeperError | None = None
        #: Set once the ledger is known to end below what this writer had confirmed.
        self.truncation: LedgerTruncated | None = None
        self._ports = ports
        self._ensemble_changes = 0
        self._late_failures: dict[int, BookieId] = {}
        #: Bookies that failed and stayed, because nobody could replace them.
        self._unreplaced: dict[int, BookieId] = {}
        self._bookies = BookieMemory()
        self._unproven = self._bookies.unproven
        self._resends = Resends(options)
        self._change: EnsembleChange | None = None
        self._defers_lac = options.deferred_sync
        self._spans_fault_domains = ports.spans_fault_domains if options.enforce_fault_domains else None

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this writer knows it."""
        return self.local.value.metadata

    @property
    def is_writable(self) -> bool:
        """Whether an append can be accepted (W-3)."""
        # Asked for every append, so without further properties.
        return (
            self.state is not _CLOSED
            and self.fatal_error is None
            and self.local.value.metadata.state is not LedgerState.CLOSED
        )

    @abstractmethod
    def _fail(self, error: BookKeeperError) -> None:
        """Going on is impossible."""

    @abstractmethod
    def _adopt_closed(self) -> None:
        """The ledger is closed, and the local metadata says where."""

    def _error(self, code: int, why: str) -> BookKeeperError:
        return error_for(code, why, ledger_id=self.metadata.ledger_id)

    def _error_because_of(self, bookies: Iterable[BookieId], code: Code, why: str) -> BookKeeperError:
        return error_because_of(self._failure_codes, bookies, code, why, ledger_id=self.metadata.ledger_id)

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

    @property
    def is_degraded(self) -> bool:
        """Whether bookies that failed are members still, so that :meth:`act_on_late_failures` may have something to do."""
        if self.options.deferred_sync or not self.is_writable:
            return False
        return bool(self._late_failures or self._still_unreplaced())

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
            bookies = sorted({bookie_id for _, failures in failed for bookie_id in failures.values()})
            self._fail(
                self._error_because_of(
                    bookies,
                    Code.WRITE,
                    f"ensemble changes are disabled, and entries were sent to {', '.join(bookies)} "
                    f"{self.options.max_resends} times again in vain; enable changes or restart the bookies",
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
                self._error_because_of(
                    merged.values(),
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
            self._fail(self._error_because_of(failures.values(), Code.WRITE, f"gave up after {limit} ensemble changes"))
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
            codes=self._failure_codes,
        )

    def _on_change_done(self, update: MetadataUpdate) -> None:
        """The update of a change has ended."""
        change = self._change
        if change is None or update is not change.update:
            # The handle closed meanwhile; whatever the change did has no effect here (W-56). But it may have read the end.
            if self.metadata.is_closed:
                self._adopt_closed()
            return
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
