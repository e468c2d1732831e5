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

What becomes of a bookie's failure, and how the ensemble changes, is the part of the writer in
:mod:`~bkclient.protocol.changing`.
"""

from __future__ import annotations

from typing import Any

from bkclient.errors import ArgumentError, BookKeeperError, Code, LedgerTruncated, error_for
from bkclient.ledger import BookieId, LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.append_options import MAX_ENTRY_ID, AppendOptions
from bkclient.protocol.append_ports import AppendPorts
from bkclient.protocol.changing import ChangingPipeline, WriterState
from bkclient.protocol.pipeline import PendingAdd
from bkclient.protocol.quorum_timeout import QuorumTimeout
from bkclient.protocol.update import MetadataUpdate

__all__ = ["AppendMachine", "AppendPorts", "WriterState"]


class AppendMachine(ChangingPipeline):
    """The append path of one open ledger, for its single writer (section W of the rules)."""

    def __init__(self, metadata: Versioned, ports: AppendPorts, *, options: AppendOptions = AppendOptions()) -> None:  # noqa: B008
        super().__init__(metadata, ports, options)
        self._close_update: MetadataUpdate | None = None
        self._quorum_timeout = None if options.quorum_timeout_s is None else QuorumTimeout(options.quorum_timeout_s)
        #: With deferred sync: the ledger's length at the LAC, and what entries told of the LAC before its last move.
        self._forced_length = 0
        self._told_before_force = -1
        self._head_at_force = -1

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
        self.check_entry_id(entry_id)
        if self._late_failures and not self._change_late():
            return self._refuse(entry_id, payload, token)
        self.length += len(payload)
        length = self.length
        if entry_id < self.last_add_pushed:
            length -= sum(len(add.payload) for add in self._pending.values() if add.entry_id > entry_id)
        else:
            self.last_add_pushed = entry_id
        return self._launch(PendingAdd(entry_id, payload, self.last_add_confirmed, length, self.ensemble, token))

    def is_taken(self, entry_id: int) -> bool:
        """Whether no entry can be appended under ``entry_id``: one was, or it is negative."""
        return entry_id <= self.last_add_acknowledged or entry_id in self._pending

    def check_entry_id(self, entry_id: int) -> None:
        """Raise as :meth:`append_at` does for ids that cannot be given to an entry, whatever else is the matter."""
        if self.is_taken(entry_id):
            raise error_for(Code.DUPLICATE_ENTRY_ID, ledger_id=self.metadata.ledger_id, entry_id=entry_id)
        if entry_id > MAX_ENTRY_ID:
            raise ArgumentError("an entry id is less than 2**63", ledger_id=self.metadata.ledger_id, entry_id=entry_id)

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
        """Why an append is refused when the writer is not writable: the error that ended it, whatever came after that.

        That error itself, which belongs to nobody: who raises it makes a copy.
        """
        if self.fatal_error is not None:
            return self.fatal_error
        if self.state is WriterState.CLOSED:
            return self._error(Code.LEDGER_CLOSED, "the writer was closed")
        # An ensemble change has read that, and its end is about to be told.
        if self.metadata.last_entry_id < self.last_add_confirmed:
            return self._truncated()
        return self._error(Code.LEDGER_CLOSED, "another client closed the ledger")

    def on_update_done(self, update: MetadataUpdate) -> None:
        """A metadata update that :meth:`AppendPorts.run_update` was given has ended."""
        if update is self._close_update:
            self._finish_close(update)
        else:
            self._on_change_done(update)

    # The end -----------------------------------------------------------------------------------------------------

    def _on_refused(self, add: PendingAdd, bookie_id: BookieId, code: int) -> None:
        why = f"the bookie refused entry {add.entry_id}"
        if code == Code.LEDGER_FENCED:
            why = f"another client has taken over the ledger; {why}"
        self._fail(error_for(code, why, ledger_id=self.metadata.ledger_id, bookie_id=bookie_id))

    def abandon(self, error: BookKeeperError) -> None:
        """Whoever drives the machine can do nothing more for it: what is pending fails with ``error``.

        For the end of the client (API-17, API-19), whose ``error`` has the code CLIENT_CLOSED and leaves the ledger open; after
        any other error the ledger is closed (W-42). Entries may be pending without any request under way, above a gap or
        between two attempts to send them; nothing else would end them. Does nothing after the writer ended.
        """
        if self.state is not WriterState.CLOSED and self.fatal_error is None:
            self._fail(error)

    def stop(self, error: BookKeeperError) -> list[PendingAdd]:
        """Do nothing any more because of ``error``, not even close the ledger; returns what was pending, for the caller to fail.

        For a defect of whoever drives the machine, or of the machine: a recovery is a better judge of where the ledger ends.
        """
        self._change = None
        if self.fatal_error is None:
            self.fatal_error = error
        return self._drain()

    def _fail(self, error: BookKeeperError) -> None:
        """Going on is impossible: every pending add fails with ``error`` (W-41, W-42)."""
        error = self.truncation or error
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

    def on_taken_over(self, stored: Versioned) -> None:
        """The metadata was read, and another client has marked or closed the ledger (W-60).

        Does nothing after the writer ended.
        """
        if self.state is WriterState.CLOSED or self.fatal_error is not None:
            return
        if stored.version > self.local.value.version:
            self.local.value = stored
        metadata = self.metadata
        if metadata.is_closed:
            self._adopt_closed()
            how = f"closed it at entry {metadata.last_entry_id}"
        else:
            how = "is recovering it"
        self._fail(self._error(Code.LEDGER_FENCED, f"another client has taken over the ledger and {how}"))

    def check_quorum_timeout(self, now: float) -> None:
        """End the writer if an entry has waited for its ack quorum for too long at ``now``, a monotonic clock in seconds (W-46).

        An entry that has its quorum and waits for others is not timed out. Does nothing without a timeout in the options.
        """
        if self._quorum_timeout is None or not self._pending:
            return
        expired = self._quorum_timeout.find_expired(now, self._pending)
        if expired is not None:
            acknowledged = [b for p, b in enumerate(expired.ensemble) if expired.acknowledged >> p & 1]
            why = (
                f"entry {expired.entry_id} has no ack quorum after {self.options.quorum_timeout_s} seconds, "
                f"only {', '.join(acknowledged) or 'nobody'} stored it"
            )
            if self.held_up_by is not None:
                why += "; answers over new connections do not count while the ledger's metadata cannot be read"
            error = self._error(Code.QUORUM_TIMEOUT, why)
            error.__cause__ = self.held_up_by
            self._fail(error)

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
        self._ports.close_finished(self.truncation or update.error)

    def _adopt_closed(self) -> None:
        """The stored end is the end, even if this writer saw another one (W-50); but what it confirmed is not taken back."""
        metadata = self.metadata
        if metadata.last_entry_id < self.last_add_confirmed:
            if self.truncation is None:
                self.truncation = self._truncated()
                self.fatal_error = self.truncation
                self._ports.ledger_truncated(self.truncation)
            return
        self.last_add_acknowledged = self.last_add_confirmed = self.last_add_pushed = metadata.last_entry_id
        self._forced_length = metadata.length
        self.length = metadata.length + sum(len(add.payload) for add in self._pending.values())

    def _truncated(self) -> LedgerTruncated:
        """The loss of entries that this writer had confirmed, with both ends."""
        metadata, confirmed = self.metadata, self.last_add_confirmed
        error = LedgerTruncated(
            f"another client closed the ledger at entry {metadata.last_entry_id}, although this writer had acknowledged "
            f"entries up to {confirmed}: entries were lost",
            ledger_id=metadata.ledger_id,
        )
        error.last_add_confirmed, error.last_entry_id = confirmed, metadata.last_entry_id
        error.__cause__ = self.fatal_error
        return error

    # Durability --------------------------------------------------------------------------------------------------

    @property
    def known_end(self) -> int:
        """The last entry that the ledger is known to include: as stored if it is closed, else the LAC."""
        return self.metadata.last_entry_id if self.metadata.is_closed else self.last_add_confirmed

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
        return entry_id <= self.known_end
