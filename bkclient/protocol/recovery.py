"""Recovery: find where a ledger whose writer may be gone ends, make that end durable, and close it there.

Four phases (REC-2):

1. *Marking*: compare-and-set the state to IN_RECOVERY. From now on the writer cannot change the ensemble, so the last
   fragment is final and can be fenced (REC-5).
2. *Fencing*: fence the last ensemble and learn its LAC, until no unfenced ack quorum is left (REC-6..REC-9).
3. *Reading and writing back*: read the entries above the LAC, several ahead but judged in order, every read fencing the
   bookie it asks (REC-16, REC-17); an entry found anywhere is written back to an ack quorum (REC-19, REC-23); an entry that
   provably never had an ack quorum ends the ledger (REC-18). What can be neither found nor denied fails the recovery: it
   never guesses (REC-20).
4. *Closing*: compare-and-set to CLOSED, together with the bookies replaced on the way. Until then replacements stay in
   memory, so that a recovery that fails leaves the stored ensembles as they were and can be repeated (REC-27, REC-39).

Two recoveries at once do the same work; the first to close decides and the second adopts its result (REC-37, REC-41).

Where this differs from the Java client, and why it may:

* Recovery reads ask the whole write set at once instead of one replica after the other, so one hung bookie costs nothing.
* The Java client reads batch by batch and looks at errors of entries beyond the end; here the window slides, grows with
  what is found, and nothing beyond the end matters (see :mod:`~bkclient.protocol.read_ahead`).
* The LAC that written-back entries carry is frozen at the value recovery started from. An advancing one could let a
  reader see, on the word of this recovery, an entry that a concurrent recovery closes the ledger without.
* A bookie that fails a write-back and has no replacement is done without as long as an ack quorum remains; and it is
  not offered another place in the same recovery, so there are at most as many replacements as bookies.
* When nothing was recovered, the final length is read from the entry at the LAC. If no bookie has it to give, it is the length
  before the entry that told the LAC, which is that at the LAC if this is the next entry. Java takes the length with that entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, Protocol

from bkclient.errors import BookKeeperError, Code, NotEnoughBookies, error_for
from bkclient.ledger import BookieId, Ensemble, Versioned
from bkclient.protocol.adds import Effect, NewEntry, PendingAdds
from bkclient.protocol.ensemble import replace_failed
from bkclient.protocol.intents import Intent, MarkInRecovery, SealAsRecovered
from bkclient.protocol.lac import LacOutcome, LacRead
from bkclient.protocol.machine import LedgerMachine
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.read import EntryRead, ReadOutcome
from bkclient.protocol.read_ahead import FoundEntry, ReadAhead
from bkclient.protocol.update import LocalMetadata
from bkclient.protocol.value import moved

__all__ = ["EntryVerdict", "RecoveryMachine", "RecoveryPhase", "RecoveryPorts", "starting_lac"]


class RecoveryPhase(Enum):
    """Where a recovery is."""

    MARKING = "marking"
    FENCING = "fencing"
    READING = "reading"
    MEASURING = "measuring"
    CLOSING = "closing"
    DONE = "done"
    FAILED = "failed"


_Phase = RecoveryPhase
#: What may follow what.
_NEXT: Final = {
    _Phase.MARKING: (_Phase.FENCING, _Phase.DONE, _Phase.FAILED),
    _Phase.FENCING: (_Phase.READING, _Phase.FAILED),
    _Phase.READING: (_Phase.MEASURING, _Phase.CLOSING, _Phase.FAILED),
    _Phase.MEASURING: (_Phase.CLOSING,),
    _Phase.CLOSING: (_Phase.DONE, _Phase.FAILED),
    _Phase.DONE: (),
    _Phase.FAILED: (),
}


class EntryVerdict(Enum):
    """What the answers of its replicas prove about an entry."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    UNKNOWN = "unknown"


class RecoveryPorts(Protocol):
    """What the machine asks of its shell. None of these may call back into the machine."""

    def run_update(self, number: int) -> None:
        """Drive a metadata update in the background, then call :meth:`RecoveryMachine.on_update_done`.

        :class:`~bkclient.protocol.update.UpdateHandle` says how.
        """
        ...

    def send_fence(self, bookie_id: BookieId) -> None:
        """Fencing read of the bookie's last entry; answer to :meth:`RecoveryMachine.on_fence_reply`."""
        ...

    def send_read(self, entry_id: int, bookie_id: BookieId, *, fence: bool) -> None:
        """Read one entry, with high priority; answer to :meth:`RecoveryMachine.on_read_reply`."""
        ...

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        """Recovery add, with high priority, to each of ``bookies``; answers to :meth:`RecoveryMachine.on_add_reply`."""
        ...

    def replace_bookie(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        """A writable bookie for ``position``, or None."""
        ...

    def entry_decided(self, entry_id: int, verdict: EntryVerdict, bookies: tuple[BookieId, ...]) -> None:
        """The fate of ``entry_id`` is settled by the answers of ``bookies``."""
        ...

    def recovery_finished(self, error: BookKeeperError | None) -> None:
        """The ledger is closed, by this recovery or by another client; or recovery failed and closed nothing."""
        ...


def starting_lac(found_lac: int, first_entry_id: int) -> int:
    """The entry id recovery may take for granted (REC-13).

    Everything below the last fragment was acknowledged before that fragment was made, whatever LAC its bookies report.
    """
    return max(found_lac, first_entry_id - 1)


class RecoveryMachine(LedgerMachine):
    """One recovery of one ledger. Call :meth:`start`, feed it answers; it calls ``recovery_finished`` once.

    At most ``read_ahead`` entries are being read at a time, and at most ``max_write_backs`` read or written back. No read
    begins while the payload at hand, counting every read under way as the largest entry found so far, has
    ``max_write_back_bytes`` or more. One entry is always allowed.
    """

    __slots__ = (
        "_end_found",
        "_failed_bookies",
        "_frozen_lac",
        "_has_recovered",
        "_lac_read",
        "_late_failures",
        "_max_write_back_bytes",
        "_max_write_backs",
        "_measuring",
        "_new_ensembles",
        "_read_ahead",
        "_reads",
        "_snapshot",
        "_update",
        "_write_back_bytes",
        "phase",
    )

    def __init__(
        self,
        metadata: Versioned,
        ports: RecoveryPorts,
        *,
        read_ahead: int = 1,
        max_write_backs: int = 256,
        max_write_back_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        self.phase = RecoveryPhase.MARKING
        self.adds = PendingAdds(QuorumSizes.of(metadata.metadata), metadata.metadata.last_fragment.ensemble)
        self.local = LocalMetadata(metadata)
        self.ports = ports
        self._read_ahead = read_ahead
        self._max_write_backs = max_write_backs
        self._max_write_back_bytes = max_write_back_bytes
        self._snapshot = metadata.metadata
        #: Number of the update under way.
        self._update = 0
        self._lac_read: LacRead | None = None
        self._reads: ReadAhead | None = None
        self._measuring: EntryRead | None = None
        self._frozen_lac = -1
        self._has_recovered = False
        self._write_back_bytes = 0
        self._end_found = False
        self._new_ensembles: dict[int, Ensemble] = {}
        self._late_failures: dict[int, BookieId] = {}
        self._failed_bookies: dict[BookieId, None] = {}

    # Marking -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin. A ledger that is closed already is left alone (REC-2)."""
        self._run_update(MarkInRecovery())

    def _enter(self, phase: RecoveryPhase) -> None:
        """Change the phase. Nothing else does."""
        self.phase = moved(_NEXT, self.phase, phase)

    def _run_update(self, intent: Intent) -> None:
        self._update = self.local.begin(intent)
        self.ports.run_update(self._update)

    def on_update_done(self, number: int) -> None:
        """A metadata update that :meth:`RecoveryPorts.run_update` was given has ended."""
        if number != self._update:
            return
        self._update = 0
        error = self.local.end(number).error
        if error is not None:
            self._fail(error.code, str(error), cause=error)
        elif self.metadata.is_closed:
            self._finish()
        else:
            self._begin_fencing()

    # Fencing -----------------------------------------------------------------------------------------------------

    def _begin_fencing(self) -> None:
        self._enter(RecoveryPhase.FENCING)
        self._snapshot = self.metadata  # REC-15
        self._lac_read = LacRead(self.sizes, self._snapshot.last_fragment.ensemble)
        for bookie_id in self._lac_read.bookies:
            self.ports.send_fence(bookie_id)

    def on_fence_reply(self, bookie_id: BookieId, code: int, last_add_confirmed: int = -1, length: int = 0) -> None:
        """A bookie answered the fencing read; OK comes with the LAC in its last entry, and the ledger's length before it."""
        if self.phase is not RecoveryPhase.FENCING:
            return  # REC-8: it has fenced its bookie nevertheless
        assert self._lac_read is not None, "fencing reads the LAC"
        outcome = self._lac_read.on_reply(bookie_id, code, last_add_confirmed, length)
        if outcome is LacOutcome.COVERED:
            self._begin_reading(self._lac_read)
        elif outcome is LacOutcome.FAILED:
            self._fail(
                self._lac_read.failure_code,
                "too few bookies of the last ensemble could be fenced",
                bookie_id=self._lac_read.failed_by,
            )

    # Reading -----------------------------------------------------------------------------------------------------

    def _begin_reading(self, found: LacRead) -> None:
        self._enter(RecoveryPhase.READING)
        fragment = self._snapshot.last_fragment
        start = self._frozen_lac = starting_lac(found.last_add_confirmed, fragment.first_entry_id)
        self.adds.go_on_with(fragment.ensemble)
        self.adds.end_at(start, found.length)
        # Always the last fragment as it was when recovery started: entries of earlier fragments are settled, and a
        # bookie that replaced another one for the write-back never had the entry.
        self._reads = ReadAhead(self.sizes, fragment.ensemble, start + 1, limit=self._read_ahead)
        self._read_on(self._reads)

    def _read_on(self, reads: ReadAhead) -> None:
        while (
            reads.has_room
            and len(self.adds.pending) + len(reads) < self._max_write_backs
            and self._write_back_bytes + reads.expected_bytes < self._max_write_back_bytes
        ):
            read = reads.begin()
            for bookie_id in read.to_ask():
                self.ports.send_read(read.entry_id, bookie_id, fence=True)

    def on_read_reply(
        self, bookie_id: BookieId, entry_id: int, code: int, payload: bytes = b"", length: int = 0
    ) -> None:
        """A bookie answered a read; OK (digest verified) comes with the payload and the length in the header."""
        reads = self._reads
        if reads is not None:
            reads.on_reply(bookie_id, entry_id, code, payload, length)
            while self._reads is reads and (entry := reads.take()) is not None:
                self._on_read(entry)
            if self._reads is reads:
                self._read_on(reads)
        elif self._measuring is not None and self._measuring.entry_id == entry_id:
            self._on_measured(self._measuring, bookie_id, code, length)

    def _on_read(self, entry: FoundEntry) -> None:
        read = entry.read
        if read.outcome is ReadOutcome.FOUND:
            assert read.code_from is not None, "somebody found it"
            self.ports.entry_decided(read.entry_id, EntryVerdict.POSITIVE, (read.code_from,))
            self._write_back(entry.payload, entry.length)
        elif read.outcome is ReadOutcome.ABSENT:
            self.ports.entry_decided(read.entry_id, EntryVerdict.NEGATIVE, read.deniers)
            self._end_found = True
            self._reads = None
            self._close_if_written_back()
        else:
            self.ports.entry_decided(read.entry_id, EntryVerdict.UNKNOWN, ())
            self._fail(
                read.code,
                f"entry {read.entry_id} can be neither read nor ruled out",
                entry_id=read.entry_id,
                bookie_id=read.code_from,
            )

    # Writing back ------------------------------------------------------------------------------------------------

    def _write_back(self, payload: bytes, length: int) -> None:
        adds = self.adds
        adds.length = length - len(payload)  # REC-24: the add restores exactly the original header length
        self._has_recovered = True
        self._write_back_bytes += len(payload)
        entry = adds.push(payload, self._frozen_lac)
        self.ports.send_add(entry, adds.write_set(entry.entry_id))

    def on_add_reply(self, bookie_id: BookieId, entry_id: int, code: int) -> None:
        """A bookie answered an add, or it is known that it will not (``code`` says why)."""
        if code == Code.OK:
            self.acknowledged(bookie_id, (entry_id,))
            return
        effect, position, _ = self.adds.fail(bookie_id, entry_id, code)
        if effect is Effect.LATE:
            # The entry has its ack quorum; but another replacement may take that away before it is done.
            self._late_failures[position] = bookie_id
        elif effect is Effect.REFUSED:
            self._fail(code, "a bookie refused a recovery add")
        elif effect is Effect.NEEDED:
            self._on_bookies_failed({position: bookie_id})

    def acknowledged(self, bookie_id: BookieId, entry_ids: Sequence[int]) -> None:
        """The bookie stored these entries."""
        if self.adds.acknowledge_all(bookie_id, entry_ids):
            self._complete()

    def _complete(self) -> None:
        done = self.adds.complete()
        if not done:
            return
        self._write_back_bytes -= sum(len(entry.payload) for entry in done)
        assert self._write_back_bytes >= 0, "what is done had been counted"
        if self._reads is not None:
            self._read_on(self._reads)
        self._close_if_written_back()

    def _on_bookies_failed(self, failures: Mapping[int, BookieId]) -> None:
        """Replace the failed bookies in memory, from LAC + 1 on (REC-27)."""
        failures, self._late_failures = {**self._late_failures, **failures}, {}
        self._failed_bookies.update(dict.fromkeys(failures.values()))
        adds = self.adds
        try:
            ensemble = replace_failed(
                self.metadata.ledger_id,
                adds.ensemble,
                failures,
                self.ports.replace_bookie,
                failed_before=self._failed_bookies,
                codes=adds.failure_codes,
            )
        except NotEnoughBookies as error:
            self._do_without(error)
            return
        except BookKeeperError as error:  # a placement that offers what it must not
            self._fail(error.code, str(error), cause=error)
            return
        self._new_ensembles[adds.last_add_confirmed + 1] = ensemble
        self._switch_ensemble(ensemble, failures)

    def _switch_ensemble(self, ensemble: Ensemble, positions: Iterable[int]) -> None:
        for entry, bookies in self.adds.switch(ensemble, positions):
            self.ports.send_add(entry, bookies)
        self._complete()

    def _do_without(self, error: NotEnoughBookies) -> None:
        """Go on with the bookies there are, unless an entry has too few left, counting every answer that is still to come."""
        for add in self.adds.pending.values():
            if self.adds.is_stuck(add):
                why = f"entry {add.entry.entry_id} cannot be written back to an ack quorum: {error}"
                self._fail(error.code, why, cause=error)
                return

    # Closing -----------------------------------------------------------------------------------------------------

    def _close_if_written_back(self) -> None:
        if not self._end_found or self.adds.pending:
            return
        if not self._has_recovered and self.adds.last_add_confirmed >= 0:
            self._begin_measuring()
        else:
            self._close()

    def _begin_measuring(self) -> None:
        self._enter(RecoveryPhase.MEASURING)
        entry_id = self.adds.last_add_confirmed
        ensemble = self._snapshot.ensemble_at(entry_id)
        self._measuring = EntryRead(
            entry_id, (ensemble[position] for position in self.sizes.write_set(entry_id)), parallel=True
        )
        for bookie_id in self._measuring.to_ask():
            self.ports.send_read(entry_id, bookie_id, fence=False)

    def _on_measured(self, read: EntryRead, bookie_id: BookieId, code: int, length: int) -> None:
        outcome = read.on_reply(bookie_id, code)
        if outcome is ReadOutcome.WAITING:
            return
        if outcome is ReadOutcome.FOUND:
            self.adds.length = length
        # Otherwise the length that came with the LAC has to do. It may be too great, or 0 if the last fragment is empty. The
        # ledger is closed nevertheless: its entries are safe, and applications wait for its end.
        self._close()

    def _close(self) -> None:
        self._enter(RecoveryPhase.CLOSING)
        assert not self.adds.pending, "all that was found is written back"
        self._reads = self._measuring = None
        ensembles = tuple(sorted(self._new_ensembles.items()))
        self._run_update(SealAsRecovered(self.adds.last_add_confirmed, self.adds.length, ensembles))

    def _finish(self) -> None:
        self._enter(RecoveryPhase.DONE)
        assert self.metadata.is_closed, "a recovery ends with a closed ledger, or fails"
        self.adds.end_at(self.metadata.last_entry_id, self.metadata.length)
        self.ports.recovery_finished(None)

    def _fail(
        self,
        code: int,
        why: str,
        *,
        entry_id: int | None = None,
        bookie_id: BookieId | None = None,
        cause: BookKeeperError | None = None,
    ) -> None:
        """Give up without a trace in the metadata but IN_RECOVERY (REC-39).

        The error is reported as REC-40 says, with the original one, whose code says what really happened, as its cause (H-33).
        """
        self._enter(RecoveryPhase.FAILED)
        self._reads = self._measuring = None
        self.adds.drain()
        ledger_id = self.metadata.ledger_id
        if code not in (Code.TIMEOUT, Code.UNAUTHORIZED, Code.CLIENT_CLOSED):
            if cause is None:
                cause = error_for(code, why, ledger_id=ledger_id, entry_id=entry_id, bookie_id=bookie_id)
            try:
                why = f"{why} ({Code(code).name})"
            except ValueError:
                why = f"{why} (code {code})"
            code = Code.LEDGER_RECOVERY
        error = error_for(code, why, ledger_id=ledger_id, entry_id=entry_id, bookie_id=bookie_id)
        error.__cause__ = cause
        self.ports.recovery_finished(error)
