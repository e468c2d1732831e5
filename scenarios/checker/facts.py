"""The state of one ledger that several invariant families share.

All of it follows from the events alone. Where a violation depends on it, it is conservative: an entry that a bookie ever lost
counts as lost there for good, an answer counts for its bookie even after an ensemble change, and a recovery that cannot be
distinguished from another one of the same client is not checked.
"""

from __future__ import annotations

from typing import Final

from scenarios.checker import codes
from scenarios.checker.metadata import Metadata, MetadataTimeline
from scenarios.history.schema import Event

__all__ = ["LOST", "STORED", "SYNCED", "Ack", "AddStream", "LedgerFacts", "RecoveryRun"]

#: The state of the copy of one entry on one bookie: stored now; durable at some time; lost at some time.
STORED: Final = 1
SYNCED: Final = 2
LOST: Final = 4


class Ack:
    """An acknowledgement to an application."""

    __slots__ = ("actor", "content", "is_durable", "seq")

    def __init__(self, seq: int, actor: str, content: int | None, *, is_durable: bool) -> None:
        self.seq = seq
        self.actor = actor
        self.content = content
        self.is_durable = is_durable


class AddStream:
    """The good answers to the adds of one writer incarnation, or of one recovery.

    ``confirmed`` is the highest entry such that it and all entries between ``base`` and it have Qa answers from distinct
    bookies: no client may use a higher LAC.
    """

    __slots__ = ("answers", "base", "confirmed")

    def __init__(self, base: int = -1) -> None:
        self.answers: dict[int, dict[str, int]] = {}
        self.base = base
        self.confirmed = base

    def on_answer(self, entry: int, bookie: str, seq: int, ack_quorum_size: int) -> None:
        """``bookie`` stored ``entry``."""
        answers = self.answers.get(entry)
        if answers is None:
            answers = self.answers[entry] = {}
        answers.setdefault(bookie, seq)
        if entry == self.confirmed + 1 and len(answers) >= ack_quorum_size:
            following: dict[str, int] | None = answers
            while following is not None and len(following) >= ack_quorum_size:
                self.confirmed += 1
                following = self.answers.get(self.confirmed + 1)

    def rebase(self, base: int) -> None:
        """Let the stream start after ``base``."""
        self.base = self.confirmed = base


class RecoveryRun:
    """One recovery by one client, from REC_START on.

    It is over when its client has closed the ledger, or has read that another one did: what that sends from then on are copies
    for a repair.
    """

    __slots__ = (
        "adds",
        "ensemble",
        "fence_lac",
        "fenced",
        "first_entry",
        "first_read",
        "first_read_seq",
        "frozen_lac",
        "is_over",
        "negative",
        "negative_seq",
        "seq",
        "unknown_seq",
        "version",
    )

    def __init__(self, event: Event) -> None:
        fields = event.fields
        self.seq = event.seq
        self.version: int = fields["version"]
        self.first_entry: int = fields["first_entry"]
        #: The ensemble of the last fragment: the bookies to fence and to read from.
        self.ensemble = tuple(fields["bookies"].split(","))
        #: Bookies that are fenced according to their answer to a fencing read, with the event.
        self.fenced: dict[str, int] = {}
        self.fence_lac = -1
        self.first_read: int | None = None
        self.first_read_seq = -1
        self.negative: int | None = None
        self.negative_seq = -1
        self.unknown_seq = -1
        self.frozen_lac: int | None = None
        self.is_over = False
        self.adds = AddStream()


class LedgerFacts:
    """The shared state of one ledger.

    ``metadata`` is the stored metadata. ``copies[entry][bookie]`` combines :data:`STORED`, :data:`SYNCED` and :data:`LOST`.
    ``confirmed`` is the highest confirmed entry: no LAC may be above it. ``recording`` has the bookies that told of
    anything that happens inside them, in any ledger: where none does, nothing is known of copies and fences. ``collected`` has
    the bookies that dropped this ledger as garbage, whatever came after. ``syncing`` has
    those with a BK_SYNC of any ledger, ``restarts`` the last restart of each bookie: the event, and the cookie that it found.
    """

    def __init__(
        self,
        ledger: int,
        syncing: set[str],
        recording: set[str],
        restarts: dict[str, tuple[int, str | None]] | None = None,
    ) -> None:
        self.ledger = ledger
        self.restarts = {} if restarts is None else restarts
        self.metadata = MetadataTimeline()
        #: The stored metadata; None if it is unknown or not well formed.
        self.stored: Metadata | None = None
        self.acked: dict[int, Ack] = {}
        self.max_acked = -1
        self.confirmed = -1
        self.copies: dict[int, dict[str, int]] = {}
        self.collected: set[str] = set()
        self.writers: dict[tuple[str, int], AddStream] = {}
        self.syncing = syncing
        self.recording = recording
        self._runs: dict[str, RecoveryRun] = {}
        self._open_recoveries: dict[str, int] = {}
        self._ambiguous: set[str] = set()

    def run_of(self, actor: str) -> RecoveryRun | None:
        """The current recovery of ``actor``; None if there is none, or if several cannot be distinguished."""
        return None if actor in self._ambiguous else self._runs.get(actor)

    def copies_in(self, entry: int, write_set: tuple[str, ...]) -> int:
        """How many bookies of ``write_set`` hold ``entry`` now."""
        copies = self.copies.get(entry)
        return sum(copies.get(bookie, 0) & STORED for bookie in write_set) if copies else 0

    def losses_of(self, entry: int) -> int:
        """How many bookies ever lost ``entry``, wherever they are in the metadata now."""
        return sum(1 for state in self.copies.get(entry, {}).values() if state & LOST)

    def is_conclusive_denial(self, entry: int, version: int) -> bool:
        """Whether a denial of ``entry`` by its whole write set, under metadata ``version``, proves that the entry is lost.

        It does if the ensemble is the same in the stored metadata, and fewer than Qa bookies ever lost the entry.
        """
        stored, used = self.stored, self.metadata.versions.get(version)
        return (
            stored is not None
            and used is not None
            and used.ensemble_at(entry) == stored.ensemble_at(entry)
            and self.losses_of(entry) < stored.ack_quorum_size
        )

    # Events ------------------------------------------------------------------------------------------------------

    def on_cas(self, event: Event) -> None:
        """META_CAS: the store may hold something new."""
        self.metadata.on_cas(event)
        self._note_stored()
        run, fields = self._runs.get(event.actor), event.fields
        if run is not None and fields["outcome"] == "ok" and (fields["cause"], fields["state"]) == ("close", "CLOSED"):
            run.is_over = True

    def on_read(self, event: Event) -> None:
        """META_READ: the store may turn out to hold something new."""
        self.metadata.on_read(event)
        self._note_stored()
        run = self._runs.get(event.actor)
        if run is not None and event.fields["state"] == "CLOSED":
            run.is_over = True

    def _note_stored(self) -> None:
        current = self.metadata.current
        self.stored = current if current is not None and current.is_sound else None
        if current is not None and current.state == "CLOSED":
            self.confirmed = max(self.confirmed, current.last_entry)

    def on_ack(self, event: Event) -> None:
        """APP_ACK: an entry was acknowledged."""
        fields = event.fields
        entry: int = fields["entry"]
        known = self.acked.get(entry)
        if known is None:
            self.acked[entry] = Ack(event.seq, event.actor, fields["content"], is_durable=fields["durable"])
        elif fields["durable"] and not known.is_durable:  # which promises more
            self.acked[entry] = Ack(event.seq, event.actor, known.content, is_durable=True)
        self.max_acked = max(self.max_acked, entry)
        if entry == self.confirmed + 1:
            self._raise_over_gap()

    def _raise_over_gap(self) -> None:
        """Raise ``confirmed`` over entries that were acknowledged, or have their quorum at one writer, while there is no gap."""
        stored = self.metadata.current
        quorum = stored.ack_quorum_size if stored is not None else None
        entry = self.confirmed + 1
        while entry in self.acked or (
            quorum is not None and any(len(stream.answers.get(entry, ())) >= quorum for stream in self.writers.values())
        ):
            entry += 1
        self.confirmed = entry - 1

    def on_add_answer(self, event: Event) -> None:
        """ADD_RESP: a bookie stored an entry, or did not."""
        fields = event.fields
        stored = self.metadata.current
        if fields["code"] != codes.OK or stored is None:
            return
        if fields["recovery"]:
            run = self._runs.get(event.actor)
            if run is None:
                return
            stream = run.adds
        else:
            key = (event.actor, fields["incarnation"])
            known = self.writers.get(key)
            stream = known if known is not None else self.writers.setdefault(key, AddStream())
        stream.on_answer(fields["entry"], fields["bookie"], event.seq, stored.ack_quorum_size)
        if stream.confirmed > self.confirmed and stream.base <= self.confirmed:
            self.confirmed = stream.confirmed
        if self.confirmed < self.max_acked:
            self._raise_over_gap()

    def on_store(self, event: Event) -> None:
        """BK_STORE: a bookie has the entry."""
        self.recording.add(event.actor)
        self._mark(event, STORED)

    def on_inside(self, event: Event) -> None:
        """BK_RECV, FENCE_SET: the bookie tells of what happens inside it."""
        self.recording.add(event.actor)

    def on_sync(self, event: Event) -> None:
        """BK_SYNC: the entry survives a power loss there."""
        self.syncing.add(event.actor)
        self._mark(event, SYNCED)

    def _mark(self, event: Event, state: int) -> None:
        entry, bookie = event.fields["entry"], event.actor
        copies = self.copies.get(entry)
        if copies is None:
            self.copies[entry] = {bookie: state}
        else:
            copies[bookie] = copies.get(bookie, 0) | state

    def on_loss(self, event: Event) -> None:
        """BK_LOSS: the bookie does not have the entry any more."""
        copies = self.copies.setdefault(event.fields["entry"], {})
        copies[event.actor] = copies.get(event.actor, 0) & ~STORED | LOST

    def on_gc(self, event: Event) -> None:
        """BK_GC: the bookie dropped the ledger; this does not count as a loss."""
        self.collected.add(event.actor)
        for copies in self.copies.values():
            if event.actor in copies:
                copies[event.actor] &= ~STORED

    # Recoveries --------------------------------------------------------------------------------------------------

    def on_open_start(self, event: Event) -> None:
        """OPEN_START: if the same client is recovering already, what follows may belong to either."""
        if event.fields["recovery"]:
            count = self._open_recoveries.get(event.actor, 0) + 1
            self._open_recoveries[event.actor] = count
            if count > 1:
                self._ambiguous.add(event.actor)

    def on_open_result(self, event: Event) -> None:
        """OPEN_RESULT: the recovery is over."""
        if event.fields["recovery"]:
            count = self._open_recoveries.get(event.actor, 0) - 1
            self._open_recoveries[event.actor] = max(count, 0)
            if count <= 0:
                self._ambiguous.discard(event.actor)
                self._runs.pop(event.actor, None)

    def on_client_crash(self, event: Event) -> None:
        """CLIENT_CRASH: the client's recoveries are over."""
        self._open_recoveries.pop(event.actor, None)
        self._ambiguous.discard(event.actor)
        self._runs.pop(event.actor, None)

    def on_recovery_start(self, event: Event) -> None:
        """REC_START: fencing begins."""
        self._runs[event.actor] = RecoveryRun(event)

    def on_fence_answer(self, event: Event) -> None:
        """FENCE_RESP: a good answer or a denial proves the bookie fenced; a good one brings a LAC."""
        fields = event.fields
        run = self._runs.get(event.actor)
        if run is None:
            return
        if fields["code"] == codes.OK:
            run.fenced.setdefault(fields["bookie"], event.seq)
            run.fence_lac = max(run.fence_lac, fields["lac"])
        elif fields["code"] in codes.NEGATIVES:
            run.fenced.setdefault(fields["bookie"], event.seq)

    def on_recovery_read(self, event: Event) -> None:
        """REC_READ_SEND: the recovery counts all entries below the first read as confirmed."""
        run = self._runs.get(event.actor)
        if run is not None and run.first_read is None:
            run.first_read, run.first_read_seq = event.fields["entry"], event.seq
            run.adds.rebase(event.fields["entry"] - 1)

    def on_decision(self, event: Event) -> None:
        """REC_DECIDE: the recovery decided whether an entry exists."""
        run = self._runs.get(event.actor)
        if run is None:
            return
        if event.fields["verdict"] == "negative":
            run.negative, run.negative_seq = event.fields["entry"], event.seq
        elif event.fields["verdict"] == "unknown":
            run.unknown_seq = event.seq
