"""The writer of a ledger: appends, ensemble changes, fatal errors, close.

States: *open*, *changing* (a bookie failed and new metadata is being stored; adds go on but none completes), *closed*. A
writer leaves *open* for good by closing or by a fatal error, and every add ends in exactly one confirmation or failure.

The writer needs no lock against other clients. It learns that somebody took over from a fenced bookie, or from metadata
that is no longer OPEN when it wants to change the ensemble; and what it acknowledged is safe either way, because
recovery finds everything that an ack quorum stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Protocol

from bkclient.errors import BookKeeperError, Code, error_for
from bkclient.metadata.model import BookieId, Ensemble, LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.ensemble import replace_failed
from bkclient.protocol.pipeline import AddPipeline, PendingAdd
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.update import LocalMetadata, MetadataUpdate

__all__ = ["AppendMachine", "AppendPorts", "WriterState"]


class WriterState(Enum):
    """Where a writer is in its life."""

    OPEN = "open"
    CHANGING = "changing"
    CLOSED = "closed"


class AppendPorts(Protocol):
    """What the machine asks of its shell. None of these may call back into the machine."""

    def send_add(self, add: PendingAdd, bookie_id: BookieId) -> None:
        """Send the entry; report the answer through :meth:`AppendMachine.on_add_reply`."""
        ...

    def confirm_add(self, add: PendingAdd) -> None:
        """The entry is durable; tell the application. Called in entry id order."""
        ...

    def fail_add(self, add: PendingAdd, error: BookKeeperError) -> None:
        """The entry was not acknowledged; whether it is part of the ledger is decided by whoever closes it."""
        ...

    def run_update(self, update: MetadataUpdate) -> None:
        """Drive ``update`` in the background, then call :meth:`AppendMachine.on_update_done`."""
        ...

    def replace_bookie(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        """A writable bookie for ``position``, or None."""
        ...

    def close_finished(self, error: BookKeeperError | None) -> None:
        """The ledger is closed in the metadata store, or could not be closed. Called once."""
        ...


class AppendMachine(AddPipeline):
    """The append path of one open ledger, for its single writer (section W of the rules).

    ``max_ensemble_changes`` bounds how many changes, counted per pass, the writer makes in its life (W-29).
    """

    def __init__(self, metadata: Versioned, ports: AppendPorts, *, max_ensemble_changes: int) -> None:
        sizes = QuorumSizes.of(metadata.metadata)
        assert metadata.metadata.state is LedgerState.OPEN, "only an open ledger has a writer"
        super().__init__(sizes, metadata.metadata.last_fragment.ensemble, last_add_confirmed=-1, length=0)
        self.state = WriterState.OPEN
        self.local: Final = LocalMetadata(metadata)
        #: Why the writer cannot go on; set by the first fatal error.
        self.fatal_error: BookKeeperError | None = None
        self._ports = ports
        self._max_ensemble_changes = max_ensemble_changes
        self._ensemble_changes = 0
        self._late_failures: dict[int, BookieId] = {}
        self._change: _EnsembleChange | None = None
        self._close_update: MetadataUpdate | None = None

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
        """Accept one entry and send it. The caller checks :attr:`is_writable` first; see :meth:`refusal`."""
        assert self.is_writable, "the shell refuses appends to a closed handle"
        if self._late_failures and self.state is WriterState.OPEN:
            failures, self._late_failures = self._late_failures, {}
            self._start_change(failures)  # W-33
            if self.fatal_error is not None:  # the change was refused at once
                add = PendingAdd(
                    self.last_add_pushed + 1, payload, self.last_add_confirmed, self.length, self.ensemble, token
                )
                self._ports.fail_add(add, self.fatal_error)
                return add
        return self._push(payload, self.last_add_confirmed, token)

    def refusal(self) -> BookKeeperError:
        """Why an append is refused when the writer is not writable."""
        if self.fatal_error is not None and self.state is not WriterState.CLOSED:
            return error_for(self.fatal_error.code, "an earlier append failed", ledger_id=self.metadata.ledger_id)
        return error_for(Code.LEDGER_CLOSED, ledger_id=self.metadata.ledger_id)

    def _send(self, add: PendingAdd, bookie_id: BookieId) -> None:
        self._ports.send_add(add, bookie_id)

    def _confirm(self, add: PendingAdd) -> None:
        self._ports.confirm_add(add)

    # Ensemble change ---------------------------------------------------------------------------------------------

    def _on_bookies_failed(self, failures: Mapping[int, BookieId]) -> None:
        if self._change is not None:
            self._late_failures.update(failures)  # W-28: merged when the running pass ends
        else:
            merged, self._late_failures = {**self._late_failures, **failures}, {}
            self._start_change(merged)

    def _on_late_failure(self, position: int, bookie_id: BookieId) -> None:
        if self.state is not WriterState.CLOSED and self.fatal_error is None:
            self._late_failures[position] = bookie_id

    def _start_change(self, failures: Mapping[int, BookieId]) -> None:
        assert self._change is None, "one change at a time"
        self.state = WriterState.CHANGING
        self._is_suspended = True
        self._change = _EnsembleChange()
        self._next_pass(failures)

    def _next_pass(self, failures: Mapping[int, BookieId]) -> None:
        assert self._change is not None, "a pass belongs to a change"
        self._ensemble_changes += 1
        if self._ensemble_changes > self._max_ensemble_changes:
            self._fail(
                error_for(
                    Code.WRITE,
                    f"gave up after {self._max_ensemble_changes} ensemble changes",
                    ledger_id=self.metadata.ledger_id,
                )
            )
            return
        self._ports.run_update(self._change.begin_pass(self, dict(failures)))

    def choose_ensemble(self, metadata: LedgerMetadata, failures: Mapping[int, BookieId]) -> Ensemble:
        """The last ensemble of ``metadata`` without ``failures``."""
        return replace_failed(metadata.ledger_id, metadata.last_fragment.ensemble, failures, self._ports.replace_bookie)

    def on_update_done(self, update: MetadataUpdate) -> None:
        """A metadata update that :meth:`AppendPorts.run_update` was given has ended."""
        if update is self._close_update:
            self._finish_close(update)
            return
        change = self._change
        if change is None or update is not change.update:
            return  # The handle closed meanwhile; whatever the change did has no effect here (W-56).
        if update.error is not None:
            self._fail(update.error)
            return
        metadata = self.metadata
        if metadata.state is LedgerState.CLOSED:
            self._adopt_closed()
            self._fail(
                error_for(
                    Code.LEDGER_CLOSED, "another client recovered and closed the ledger", ledger_id=metadata.ledger_id
                )
            )
        elif metadata.state is LedgerState.IN_RECOVERY:
            self._fail(
                error_for(Code.LEDGER_FENCED, "another client is recovering the ledger", ledger_id=metadata.ledger_id)
            )
        else:
            self._end_pass(change)

    def _end_pass(self, change: _EnsembleChange) -> None:
        # When a bookie dies, everything outstanding on it fails; only those that are still members need another pass.
        ensemble = self.metadata.last_fragment.ensemble
        failures = {p: bookie_id for p, bookie_id in self._late_failures.items() if ensemble[p] == bookie_id}
        self._late_failures = {}
        if failures:
            self._next_pass(failures)
            return
        self._change = None
        self.state = WriterState.OPEN
        # Compared with what adds were sent to, not with what was planned: whoever replaced a bookie, its answers are void.
        replaced = {p for p, bookie_id in enumerate(self.ensemble) if ensemble[p] != bookie_id}
        self._switch_ensemble(ensemble, change.positions | replaced)

    # The end -----------------------------------------------------------------------------------------------------

    def _on_fatal(self, code: int) -> None:
        self._fail(error_for(code, "a bookie refused the entry", ledger_id=self.metadata.ledger_id))

    def _fail(self, error: BookKeeperError) -> None:
        """Going on is impossible: every pending add fails with ``error`` (W-41, W-42)."""
        self.fatal_error = error
        leave_open = self.metadata.state is LedgerState.IN_RECOVERY or error.code is Code.CLIENT_CLOSED
        if leave_open:
            # The recovering client decides where the ledger ends (W-44); after the client closed, nobody does yet (API-19).
            self._change = None
            self.state = WriterState.OPEN
            self._fail_pending(error)
        else:
            self.close(error)

    def _fail_pending(self, error: BookKeeperError) -> None:
        for add in self._drain():
            self._ports.fail_add(add, error)

    def close(self, error: BookKeeperError | None = None) -> None:
        """Seal the ledger at the last add confirmed; pending adds fail with ``error`` (W-51). Idempotent.

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
        last_entry_id, length = self.last_add_confirmed, self.length

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
        self.last_add_confirmed = self.last_add_pushed = metadata.last_entry_id
        self.length = metadata.length + sum(len(add.payload) for add in self._pending.values())


class _EnsembleChange:
    """One ensemble change, of one pass or, if more bookies fail meanwhile, of several.

    Remembers every position that failed in any pass. Pending adds are sent there again when the change ends: to the new
    bookie; and to a failed bookie that could not be replaced, because an add that waits for it must either get there
    now or fail again.
    """

    __slots__ = ("positions", "update")

    def __init__(self) -> None:
        self.positions: set[int] = set()
        self.update: MetadataUpdate | None = None

    def begin_pass(self, machine: AppendMachine, failures: Mapping[int, BookieId]) -> MetadataUpdate:
        """The update that replaces ``failures`` from LAC + 1 on (W-30)."""
        first_entry_id = machine.last_add_confirmed + 1

        def needs_update(metadata: LedgerMetadata) -> bool:
            ensemble = metadata.last_fragment.ensemble
            return metadata.state is LedgerState.OPEN and any(
                ensemble[position] == bookie_id for position, bookie_id in failures.items()
            )

        def transform(metadata: LedgerMetadata) -> LedgerMetadata:
            return metadata.with_ensemble(first_entry_id, machine.choose_ensemble(metadata, failures))

        self.positions.update(failures)
        self.update = MetadataUpdate(machine.local, "ensemble", needs_update=needs_update, transform=transform)
        return self.update
