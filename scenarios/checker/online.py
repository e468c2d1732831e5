"""The checker of a history that is being recorded or read.

It passes every event first to the facts of its ledger and then to the families that handle its kind. Ledgers are checked
independently; events without a ledger (the crash of a bookie or client) go to all of them. A ledger that is created under the id
of a deleted one is not judged: clients may still be busy with the former one, and no event says which of the two it is about.

An event with an unknown essential field is skipped and counted in ``skipped``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

from scenarios.checker.ack_has_quorum import AckHasQuorum
from scenarios.checker.acked_readable import AckedReadable
from scenarios.checker.acks_end import NoAckAfterEnd
from scenarios.checker.acks_in_order import AcksInOrder
from scenarios.checker.add_resolves import AddResolves
from scenarios.checker.answers_match import AnswersMatch
from scenarios.checker.base import Family, Handler
from scenarios.checker.cookie_gate import CookieGate
from scenarios.checker.coverage_before_reads import CoverageBeforeReads
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.fenced_stays_fenced import FencedStaysFenced
from scenarios.checker.forces_confirm import ForcesConfirm
from scenarios.checker.fragments_well_formed import FragmentsWellFormed
from scenarios.checker.lac_honest import LacHonest
from scenarios.checker.length_consistent import LengthConsistent
from scenarios.checker.logs import LOG_FAMILIES, LogsChecker
from scenarios.checker.metadata_before_use import MetadataBeforeUse
from scenarios.checker.metadata_lawful import MetadataLawful
from scenarios.checker.negative_coverage import NegativeCoverage
from scenarios.checker.no_false_negative import NoFalseNegative
from scenarios.checker.no_lac_truncation import NoLacTruncation
from scenarios.checker.read_stability import ReadStability
from scenarios.checker.read_within_lac import ReadWithinLac
from scenarios.checker.reader_lac import ReaderLac
from scenarios.checker.recoveries_agree import RecoveriesAgree
from scenarios.checker.recovery_adds import RecoveryAdds
from scenarios.checker.recovery_close import RecoveryClose
from scenarios.checker.recovery_gives_up import RecoveryGivesUp
from scenarios.checker.recovery_reads import RecoveryReads
from scenarios.checker.replicas_agree import ReplicasAgree
from scenarios.checker.stored_where_sent import StoredWhereSent
from scenarios.checker.told_at_end import ToldAtEnd
from scenarios.checker.told_at_open import ToldAtOpen
from scenarios.checker.writer_lac import WriterLac
from scenarios.clauses import CLAUSES as VOCABULARY
from scenarios.clauses import Clause, invariants_of
from scenarios.history.schema import Event, Kind
from scenarios.model import Violation

__all__ = ["CLAUSES", "FAMILIES", "INVARIANTS", "OnlineChecker"]

FAMILIES: Final[tuple[type[Family], ...]] = (
    NoLacTruncation,
    AckHasQuorum,
    AcksInOrder,
    NoAckAfterEnd,
    AckedReadable,
    RecoveriesAgree,
    LacHonest,
    FencedStaysFenced,
    FragmentsWellFormed,
    MetadataLawful,
    MetadataBeforeUse,
    CoverageBeforeReads,
    RecoveryReads,
    NegativeCoverage,
    RecoveryClose,
    ReplicasAgree,
    ReadWithinLac,
    ReadStability,
    NoFalseNegative,
    LengthConsistent,
    ReaderLac,
    AddResolves,
    ToldAtEnd,
    AnswersMatch,
    WriterLac,
    StoredWhereSent,
    RecoveryAdds,
    RecoveryGivesUp,
    ForcesConfirm,
    ToldAtOpen,
    CookieGate,
)

_OF_ALL: Final = (
    *(number for family in FAMILIES for number in family.clauses),
    *(number for log_family in LOG_FAMILIES for number in log_family.clauses),
)
_JUDGED: Final = frozenset(_OF_ALL)
assert len(_JUDGED) == len(_OF_ALL), "each clause has one family"

CLAUSES: Final[Mapping[str, Clause]] = MappingProxyType(
    {number: clause for number, clause in VOCABULARY.items() if number in _JUDGED}
)
"""The clauses of the online checker; worlds of machines and the stage check others."""

INVARIANTS: Final[Mapping[str, tuple[str, ...]]] = invariants_of(_JUDGED)
"""The invariants of the online checker, each with its clauses, the most important first."""

_METADATA: Final = (
    "state",
    "fragments",
    "last_entry",
    "length",
    "ensemble_size",
    "write_quorum_size",
    "ack_quorum_size",
)

#: The kinds of events that are checked, with their essential fields.
_ESSENTIAL: Final[dict[str, tuple[str, ...]]] = {
    Kind.META_CAS: ("cause", "outcome", "expected_version", "version", *_METADATA),
    Kind.META_READ: ("outcome", "version", *_METADATA),
    Kind.APP_ADD: ("incarnation", "entry"),
    Kind.APP_ACK: ("incarnation", "entry", "durable"),
    Kind.APP_FAIL: ("incarnation", "entry", "code"),
    Kind.APP_CANCEL: ("incarnation", "entry"),
    Kind.OPEN_START: ("recovery",),
    Kind.OPEN_RESULT: ("recovery", "code"),
    Kind.CLOSE_START: (),
    Kind.FORCE_START: (),
    Kind.FORCE_RESULT: ("code",),
    Kind.FAULT_DOMAINS: ("bookies", "racks"),
    Kind.CLOSE_RESULT: ("code", "last_entry", "length"),
    Kind.READ_RESULT: ("entry", "code", "version"),
    Kind.LAC_ADV: ("lac",),
    Kind.ADD_SEND: ("incarnation", "entry", "bookie", "recovery", "lac"),
    Kind.ADD_RESP: ("incarnation", "entry", "bookie", "recovery", "code"),
    Kind.FENCE_SEND: ("bookie",),
    Kind.FENCE_RESP: ("bookie", "code", "lac"),
    Kind.READ_SEND: ("entry", "bookie"),
    Kind.READ_RESP: ("entry", "bookie", "code"),
    Kind.REC_START: ("version", "first_entry", "bookies"),
    Kind.REC_READ_SEND: ("entry", "bookie", "fence"),
    Kind.REC_READ_RESP: ("entry", "bookie", "fence", "code"),
    Kind.REC_DECIDE: ("entry", "verdict", "bookies"),
    Kind.BK_RECV: ("source", "operation", "entry"),
    Kind.BK_ANSWER: ("source", "operation", "entry", "code"),
    Kind.BK_STORE: ("entry", "recovery"),
    Kind.BK_SYNC: ("entry",),
    Kind.BK_LAC: ("lac",),
    Kind.FENCE_SET: ("durable",),
    Kind.FENCE_LOST: (),
    Kind.BK_CRASH: ("clean",),
    Kind.BK_RESTART: (),
    Kind.BK_LOSS: ("entry",),
    Kind.BK_LIMBO: ("verdict",),
    Kind.BK_GC: (),
    Kind.CLIENT_START: ("incarnation",),
    Kind.CLIENT_CRASH: ("incarnation",),
    Kind.CLIENT_PAUSE: (),
    Kind.CLIENT_RESUME: (),
    Kind.RUN_END: ("completed",),
}

#: The same for logs, which are judged apart from ledgers.
_ESSENTIAL_OF_LOGS: Final[dict[str, tuple[str, ...]]] = {
    Kind.LOG_LEDGER: ("log",),
    Kind.LOG_APPEND: ("log", "epoch"),
    Kind.LOG_END: ("log", "last_entry"),
    Kind.LOG_TRIM: ("log",),
    Kind.LOG_CURSOR: ("log", "cursor", "cause", "entry"),
    Kind.LOG_COMPACT: ("log", "cause", "through", "entry"),
    Kind.LOG_MEMBER: ("log", "cursor", "cause", "member", "mode"),
    Kind.LOG_PUB: ("log", "epoch", "message", "content"),
    Kind.LOG_ACK: ("log", "epoch", "message", "content", "entry", "batch"),
    Kind.LOG_READ_START: ("log", "handle", "cursor", "cause"),
    Kind.LOG_READ: ("log", "handle", "content", "entry", "batch"),
    Kind.LOG_READ_END: ("log", "handle"),
}


# Every event asks for these, and members of an enumeration take longer to find.
_META_CAS: Final = Kind.META_CAS
_BK_RESTART: Final = Kind.BK_RESTART


def _getter(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    # A name alone is asked for twice: a function of Python's own returns a tuple of two at once, and one of ours is a call.
    return itemgetter(*names, names[0]) if names else (lambda _fields: ())


#: How the essential fields of an event are taken, by its kind, and whether it is one of logs.
_GETTERS: Final[Mapping[str, tuple[Callable[[Mapping[str, Any]], tuple[Any, ...]], bool]]] = {
    **{kind: (_getter(names), False) for kind, names in _ESSENTIAL.items()},
    **{kind: (_getter(names), True) for kind, names in _ESSENTIAL_OF_LOGS.items()},
}


#: By kind, what of the facts takes it in, before any family.
_FACTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        Kind.META_CAS: "on_cas",
        Kind.META_READ: "on_read",
        Kind.APP_ACK: "on_ack",
        Kind.ADD_RESP: "on_add_answer",
        Kind.BK_RECV: "on_inside",
        Kind.FENCE_SET: "on_inside",
        Kind.BK_STORE: "on_store",
        Kind.BK_SYNC: "on_sync",
        Kind.BK_LOSS: "on_loss",
        Kind.BK_GC: "on_gc",
        Kind.OPEN_START: "on_open_start",
        Kind.OPEN_RESULT: "on_open_result",
        Kind.CLIENT_CRASH: "on_client_crash",
        Kind.REC_START: "on_recovery_start",
        Kind.FENCE_RESP: "on_fence_answer",
        Kind.REC_READ_SEND: "on_recovery_read",
        Kind.REC_DECIDE: "on_decision",
    }
)


def _nobody(_clause: str, _witness: str, _seqs: tuple[int, ...]) -> None:
    """Who is told by families that judge nothing."""


def _handlers() -> dict[str, tuple[tuple[int, str], ...]]:
    """By kind, who handles it, in this order: the facts, which are number 0, and families, with the names of their methods."""
    found: dict[str, list[tuple[int, str]]] = {kind: [(0, name)] for kind, name in _FACTS.items()}
    nothing = LedgerFacts(-1, set(), set())
    for number, family in enumerate(FAMILIES, 1):
        for kind, handler in family(nothing, _nobody).handlers().items():
            assert getattr(family, handler.__name__, None) is not None, "a handler is a method"
            found.setdefault(kind, []).append((number, handler.__name__))
    return {kind: tuple(handlers) for kind, handlers in found.items()}


_HANDLERS: Final = _handlers()


class _Ledger:
    """The facts and families of one ledger, and the handlers of each kind of event, once there was one."""

    __slots__ = ("_owners", "facts", "families", "table")

    def __init__(
        self,
        ledger: int,
        syncing: set[str],
        recording: set[str],
        restarts: dict[str, tuple[int, str | None]],
        report: Callable[[int, str, str, tuple[int, ...]], None],
    ) -> None:
        facts = self.facts = LedgerFacts(ledger, syncing, recording, restarts)
        report_here = partial(report, ledger)
        self.families = tuple(family(facts, report_here) for family in FAMILIES)
        self._owners: tuple[object, ...] = (facts, *self.families)
        self.table: dict[str, tuple[Handler, ...]] = {}

    def handlers(self, kind: str) -> tuple[Handler, ...]:
        """Those of a kind that ``table`` does not have yet."""
        owners = self._owners
        found = self.table[kind] = tuple(getattr(owners[number], name) for number, name in _HANDLERS.get(kind, ()))
        return found

    def end(self) -> None:
        """Judge nothing more."""
        self.table = dict.fromkeys(_ESSENTIAL, ())


class OnlineChecker:
    """All invariants over one history, event by event.

    Feed it every event in order, as a listener of a :class:`~scenarios.history.HistoryWriter` or from a file. ``violations``
    may be read at any time; it has the first violation of each clause and ledger. ``events`` counts all events,
    ``skipped`` those with an unknown essential field. It pickles at any time, and goes on where it was.
    """

    def __init__(self) -> None:
        self.events = 0
        self.skipped = 0
        self.violations: list[Violation] = []
        self._broken: set[tuple[int, str]] = set()
        self._ledgers: dict[int, _Ledger] = {}
        self._syncing: set[str] = set()
        self._recording: set[str] = set()
        self._restarts: dict[str, tuple[int, str | None]] = {}
        self._logs = LogsChecker(self._report)

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        self.events += 1
        _, _, actor, kind, ledger_id, fields = event
        known = _GETTERS.get(kind)
        if known is None:
            return
        essential, is_of_logs = known
        try:
            if None in essential(fields):
                self.skipped += 1
                return
        except KeyError:
            self.skipped += 1  # of another version of the vocabulary
            return
        if is_of_logs:
            self._logs.feed(event)
            return
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            if ledger_id < 0:
                if kind == _BK_RESTART:
                    self._restarts[actor] = event.seq, fields.get("cookie")
                self._feed_all(event)
                return
            ledger = self._ledgers[ledger_id] = _Ledger(
                ledger_id, self._syncing, self._recording, self._restarts, self._report
            )
        elif kind == _META_CAS and ledger.facts.metadata.begins_anew(event):
            ledger.end()
        if ledger_id in self._logs.ledgers:
            self._logs.feed_ledger(event)
        handlers = ledger.table.get(kind)
        for handle in ledger.handlers(kind) if handlers is None else handlers:
            handle(event)

    def _feed_all(self, event: Event) -> None:
        for ledger in self._ledgers.values():
            handlers = ledger.table.get(event.kind)
            for handle in ledger.handlers(event.kind) if handlers is None else handlers:
                handle(event)

    def finish(self) -> tuple[Violation, ...]:
        """All violations, in the order in which they were found."""
        return tuple(self.violations)

    @property
    def checked(self) -> dict[str, int]:
        """How often each invariant was checked; 0 means that the history does not exercise it."""
        judged = self.judged
        return {invariant: sum(judged[number] for number in clauses) for invariant, clauses in INVARIANTS.items()}

    @property
    def judged(self) -> dict[str, int]:
        """How often each clause was checked."""
        counts = dict.fromkeys(CLAUSES, 0)
        for ledger in self._ledgers.values():
            for family in ledger.families:
                for number, count in family.checked.items():
                    counts[number] += count
        for log_family in self._logs.families:
            for number, count in log_family.checked.items():
                counts[number] += count
        return counts

    def _report(self, ledger: int, clause: str, witness: str, seqs: tuple[int, ...]) -> None:
        if (ledger, clause) not in self._broken:
            self._broken.add((ledger, clause))
            self.violations.append(Violation(clause, ledger, witness, seqs))
