"""What is known of a run before its next event: the facts that situations depend on, each taken from the events so far.

A situation looks at an event before the event becomes a fact itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from scenarios.history import Event, Kind

__all__ = [
    "DENIALS",
    "FENCED",
    "NOT_AVAILABLE",
    "NOT_ENOUGH_BOOKIES",
    "OK",
    "READ_ONLY",
    "TIMEOUT",
    "LedgerSoFar",
    "RunSoFar",
    "denied",
    "failed",
    "undecided",
]

# Result codes, restated here: what judges runs shares no code with what they run.
OK: Final = 0
NOT_ENOUGH_BOOKIES: Final = -6
NOT_AVAILABLE: Final = -8
TIMEOUT: Final = -23
FENCED: Final = -101
READ_ONLY: Final = -104
#: A bookie that answers so vouches that it never had the entry.
DENIALS: Final = frozenset({-13, -7})


def failed(code: int) -> bool:
    """Whether it is anything but success."""
    return code != OK


def denied(code: int) -> bool:
    """Whether a bookie vouches by it that it never had the entry."""
    return code in DENIALS


def undecided(code: int) -> bool:
    """Whether a bookie neither has done what it was asked for nor denies an entry."""
    return code != OK and code not in DENIALS


Copy = tuple[str, int]
"""Bookie and entry, or client and entry."""


class LedgerSoFar:
    """What is known of one ledger."""

    __slots__ = (
        *("acked", "acks", "adds", "asked", "bad_adds", "bad_reads", "change_seqs", "changes", "closer", "closing"),
        *(
            "decided",
            "denied",
            "end",
            "fenced",
            "fragments",
            "is_deleted",
            "is_marked",
            "lac",
            "limbo",
            "looking",
            "lost",
        ),
        *(
            "opened",
            "recovered",
            "recovering",
            "replaced",
            "sent",
            "sizes",
            "state",
            "stored",
            "synced",
            "top",
            "version",
        ),
        *("writer", "written_back"),
    )

    def __init__(self) -> None:
        # Metadata
        self.version = -1
        self.state = ""
        self.fragments: Any = None
        #: Write quorum and ack quorum.
        self.sizes = (1, 1)
        self.end: int | None = None
        self.closer = ""
        self.is_deleted = False
        self.is_marked = False
        self.changes = 0
        #: The event that stored the metadata of a version, for ensemble changes.
        self.change_seqs: dict[int, int] = {}
        # The writer
        self.writer = ""
        #: Appends without an outcome, by client and entry.
        self.adds: set[Copy] = set()
        self.acked: set[int] = set()
        #: The last entry that was acknowledged.
        self.acks = -1
        self.closing: set[str] = set()
        #: The bookies that the writer sent an entry to.
        self.sent: dict[int, set[str]] = {}
        #: Entries whose add some bookie did not confirm.
        self.bad_adds: set[int] = set()
        # Recoveries
        #: The fragments that each began with; those that are under way.
        self.recovering: dict[str, Any] = {}
        self.recovered: set[str] = set()
        self.decided: set[Copy] = set()
        self.denied: set[Copy] = set()
        self.written_back: dict[int, set[str]] = {}
        # Readers
        #: Clients that are opening it, whether with recovery.
        self.looking: dict[str, bool] = {}
        #: When it was opened without recovery.
        self.opened: dict[str, int] = {}
        #: Reads that are under way: the bookies that were asked, by client and entry.
        self.asked: dict[Copy, set[str]] = {}
        self.bad_reads: set[Copy] = set()
        #: What readers were told of the LAC.
        self.lac: dict[str, int] = {}
        # Bookies
        self.stored: dict[int, set[str]] = {}
        #: The highest entry of each.
        self.top: dict[str, int] = {}
        self.synced: set[Copy] = set()
        self.lost: set[Copy] = set()
        #: Whether fences are durable, and which life of the bookie set them.
        self.fenced: dict[str, tuple[bool, int]] = {}
        self.limbo: set[str] = set()

    def has_pending(self, actor: str) -> bool:
        """Whether appends of this client are in flight."""
        return any(client == actor for client, _ in self.adds)


class RunSoFar:
    """What is known of the run: its ledgers, hosts, and faults in force."""

    def __init__(self) -> None:
        #: Those that an event was about; what counts situations fills it.
        self.ledgers: dict[int, LedgerSoFar] = {}
        self.down: set[str] = set()
        #: How often each bookie was started again.
        self.restarts: Counter[str] = Counter()
        self.paused: set[str] = set()
        self.woken: set[str] = set()
        #: Causes and hosts of the faults in force, by their identifiers.
        self.in_force: dict[str, tuple[str, str]] = {}
        #: By client and handle, ledger and publish time of the message of a log that a reader got last.
        self.log_times: dict[tuple[str, int], tuple[int, int | None]] = {}

    def takers(self) -> Mapping[str, Callable[[Event, LedgerSoFar], None]]:
        """By kind, what makes an event a fact; many kinds of events are none."""
        return {
            Kind.META_CAS: self._cas,
            Kind.APP_ADD: self._add,
            Kind.APP_ACK: self._ack,
            Kind.APP_FAIL: self._outcome,
            Kind.APP_CANCEL: self._outcome,
            Kind.CLOSE_START: lambda event, ledger: ledger.closing.add(event.actor),
            Kind.CLOSE_RESULT: lambda event, ledger: ledger.closing.discard(event.actor),
            Kind.OPEN_START: self._open,
            Kind.OPEN_RESULT: self._opened,
            Kind.LAC_ADV: self._told_lac,
            Kind.ADD_SEND: self._sent,
            Kind.ADD_RESP: self._answered,
            Kind.READ_SEND: self._asked,
            Kind.READ_RESP: self._read,
            Kind.READ_RESULT: self._read_ended,
            Kind.REC_START: self._recovery,
            Kind.REC_READ_RESP: self._recovery_read,
            Kind.REC_DECIDE: lambda event, ledger: ledger.decided.add((event.actor, event.fields["entry"])),
            Kind.BK_STORE: self._stored,
            Kind.BK_SYNC: lambda event, ledger: ledger.synced.add((event.actor, event.fields["entry"])),
            Kind.BK_LOSS: self._lost,
            Kind.BK_LIMBO: self._limbo,
            Kind.FENCE_SET: self._fenced,
            Kind.FENCE_LOST: lambda event, ledger: ledger.fenced.pop(event.actor, None) and None,
            Kind.BK_CRASH: lambda event, _: self.down.add(event.actor),
            Kind.BK_RESTART: self._restarted,
            Kind.CLIENT_CRASH: self._killed,
            Kind.CLIENT_PAUSE: lambda event, _: self.paused.add(event.actor),
            Kind.CLIENT_RESUME: self._resumed,
            Kind.FAULT: self._fault,
            Kind.LOG_READ: self._read_log,
        }

    def is_in_force(self, cause: str, host: str = "") -> bool:
        """Whether a fault is in force, about this host if one is given."""
        return any(known == cause and host in {"", target} for known, target in self.in_force.values())

    # Metadata ----------------------------------------------------------------------------------------------------

    def _cas(self, event: Event, ledger: LedgerSoFar) -> None:
        fields, actor = event.fields, event.actor
        if fields["outcome"] != "ok":
            return
        match fields["cause"]:
            case "create":
                ledger.writer = actor
                ledger.sizes = fields["write_quorum_size"], fields["ack_quorum_size"]
            case "ensemble":
                ledger.changes += 1
                ledger.change_seqs[fields["version"]] = event.seq
            case "recover":
                ledger.recovering.setdefault(actor, None)
                ledger.is_marked = True
            case "delete":
                ledger.is_deleted = True
        if fields["state"] == "CLOSED" and ledger.end is None:
            ledger.end, ledger.closer = fields["last_entry"], actor
        ledger.version, ledger.state, ledger.fragments = fields["version"], fields["state"], fields["fragments"]

    # Writers -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _add(event: Event, ledger: LedgerSoFar) -> None:
        ledger.adds.add((event.actor, event.fields["entry"]))

    @staticmethod
    def _outcome(event: Event, ledger: LedgerSoFar) -> None:
        ledger.adds.discard((event.actor, event.fields["entry"]))

    @staticmethod
    def _ack(event: Event, ledger: LedgerSoFar) -> None:
        entry = event.fields["entry"]
        ledger.adds.discard((event.actor, entry))
        ledger.acked.add(entry)
        ledger.acks = max(ledger.acks, entry)

    @staticmethod
    def _sent(event: Event, ledger: LedgerSoFar) -> None:
        fields = event.fields
        if not fields["recovery"]:
            entry, bookie = fields["entry"], fields["bookie"]
            sent = ledger.sent.get(entry)
            if sent is None:
                ledger.sent[entry] = {bookie}
            else:
                sent.add(bookie)

    @staticmethod
    def _answered(event: Event, ledger: LedgerSoFar) -> None:
        fields = event.fields
        if fields["recovery"]:
            if fields["code"] == OK:
                ledger.written_back.setdefault(fields["entry"], set()).add(event.actor)
        elif fields["code"] != OK:
            ledger.bad_adds.add(fields["entry"])

    # Recoveries and readers --------------------------------------------------------------------------------------

    @staticmethod
    def _open(event: Event, ledger: LedgerSoFar) -> None:
        ledger.looking[event.actor] = event.fields["recovery"]

    @staticmethod
    def _opened(event: Event, ledger: LedgerSoFar) -> None:
        fields, actor = event.fields, event.actor
        ledger.looking.pop(actor, None)
        if fields["recovery"]:
            ledger.recovering.pop(actor, None)
            if fields["code"] == OK:
                ledger.recovered.add(actor)
        elif fields["code"] == OK and fields["state"] != "CLOSED":
            ledger.opened[actor] = event.seq

    @staticmethod
    def _recovery(event: Event, ledger: LedgerSoFar) -> None:
        ledger.recovering[event.actor] = ledger.fragments

    @staticmethod
    def _recovery_read(event: Event, ledger: LedgerSoFar) -> None:
        if event.fields["code"] in DENIALS:
            ledger.denied.add((event.actor, event.fields["entry"]))

    @staticmethod
    def _told_lac(event: Event, ledger: LedgerSoFar) -> None:
        ledger.lac[event.actor] = event.fields["lac"]

    @staticmethod
    def _asked(event: Event, ledger: LedgerSoFar) -> None:
        place, bookie = (event.actor, event.fields["entry"]), event.fields["bookie"]
        asked = ledger.asked.get(place)
        if asked is None:
            ledger.asked[place] = {bookie}
        else:
            asked.add(bookie)

    @staticmethod
    def _read(event: Event, ledger: LedgerSoFar) -> None:
        fields = event.fields
        place = event.actor, fields["entry"]
        asked = ledger.asked.get(place)
        if asked is not None:
            asked.discard(fields["bookie"])
        if fields["code"] != OK:
            ledger.bad_reads.add(place)

    @staticmethod
    def _read_ended(event: Event, ledger: LedgerSoFar) -> None:
        place = event.actor, event.fields["entry"]
        ledger.asked.pop(place, None)
        ledger.bad_reads.discard(place)

    # Bookies -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _stored(event: Event, ledger: LedgerSoFar) -> None:
        entry, bookie = event.fields["entry"], event.actor
        stored = ledger.stored.get(entry)
        if stored is None:
            ledger.stored[entry] = {bookie}
        else:
            stored.add(bookie)
        if entry > ledger.top.get(bookie, -1):
            ledger.top[bookie] = entry
        ledger.lost.discard((bookie, entry))

    @staticmethod
    def _lost(event: Event, ledger: LedgerSoFar) -> None:
        entry, bookie = event.fields["entry"], event.actor
        ledger.lost.add((bookie, entry))
        ledger.stored.get(entry, set()).discard(bookie)
        ledger.synced.discard((bookie, entry))

    @staticmethod
    def _limbo(event: Event, ledger: LedgerSoFar) -> None:
        (ledger.limbo.add if event.fields["verdict"] == "on" else ledger.limbo.discard)(event.actor)

    def _fenced(self, event: Event, ledger: LedgerSoFar) -> None:
        is_durable = event.fields["durable"]
        if is_durable or event.actor not in ledger.fenced:
            life = ledger.fenced.get(event.actor, (False, self.restarts[event.actor]))[1]
            ledger.fenced[event.actor] = is_durable, life

    def _read_log(self, event: Event, _: LedgerSoFar) -> None:
        self.log_times[event.actor, event.fields["handle"]] = event.ledger, event.fields["publish_ms"]

    # Hosts and faults --------------------------------------------------------------------------------------------

    def _restarted(self, event: Event, _: LedgerSoFar) -> None:
        self.down.discard(event.actor)
        self.restarts[event.actor] += 1

    def _killed(self, event: Event, _: LedgerSoFar) -> None:
        for ledger in self.ledgers.values():
            ledger.recovering.pop(event.actor, None)
            ledger.looking.pop(event.actor, None)
            ledger.closing.discard(event.actor)

    def _resumed(self, event: Event, _: LedgerSoFar) -> None:
        self.paused.discard(event.actor)
        self.woken.add(event.actor)

    def _fault(self, event: Event, _: LedgerSoFar) -> None:
        fields = event.fields
        if fields["phase"] == "begin":
            self.in_force[fields["fault"]] = fields["cause"], fields["target"]
        elif fields["phase"] == "end":
            self.in_force.pop(fields["fault"], None)
