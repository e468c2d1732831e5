"""The checker of a history that is being recorded or read.

It passes every event first to the facts of its ledger and then to the families that handle its kind. Ledgers are checked
independently; events without a ledger (the crash of a bookie or client) go to all of them. A ledger that is created under the id
of a deleted one is not judged: clients may still be busy with the former one, and no event says which of the two it is about.

An event with an unknown essential field is skipped and counted in ``skipped``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from scenarios.checker.ack_has_quorum import AckHasQuorum
from scenarios.checker.acked_readable import AckedReadable
from scenarios.checker.acks_end import NoAckAfterEnd
from scenarios.checker.acks_in_order import AcksInOrder
from scenarios.checker.add_resolves import AddResolves
from scenarios.checker.answers_match import AnswersMatch
from scenarios.checker.base import Family, Handler, Report
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


#: Both.
_ALL_ESSENTIAL: Final = {**_ESSENTIAL, **_ESSENTIAL_OF_LOGS}


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
_AWAITING: Final = {number for number, family in enumerate(FAMILIES, 1) if family.awaits_restart}
#: The same before any bookie was restarted.
_HANDLERS_BEFORE: Final[Mapping[str, tuple[tuple[int, str], ...]]] = {
    kind: tuple(handler for handler in handlers if handler[0] not in _AWAITING or kind == Kind.BK_RESTART)
    for kind, handlers in _HANDLERS.items()
}


_Route = tuple[tuple[str, ...], tuple[Handler, ...]]
"""Of a kind of event: its essential fields, and who handles it if all of them are known."""


def _route(handlers: Callable[[str], tuple[Handler, ...]], kind: str) -> _Route:
    """The route of a kind of event; it goes nowhere if the kind is not judged."""
    essential = _ALL_ESSENTIAL.get(kind)
    return ((), ()) if essential is None else (essential, handlers(kind))


class _Ledger:
    """The facts and families of one ledger.

    ``routes`` has those that were asked for, by kind of event: they go to facts and families, and to the log of the ledger.
    """

    __slots__ = ("_is_over", "_judges", "_logs", "_owners", "facts", "families", "routes")

    def __init__(self, facts: LedgerFacts, logs: LogsChecker, report: Report) -> None:
        self.facts = facts
        self.families = tuple([family(facts, report) for family in FAMILIES])
        self.routes: dict[str, _Route] = {}
        self._judges: dict[str, tuple[Handler, ...]] = {}
        self._owners: tuple[object, ...] = (facts, *self.families)
        self._logs = logs
        self._is_over = False

    def judges(self, kind: str) -> tuple[Handler, ...]:
        """Facts and families that handle events of this kind."""
        judges = self._judges.get(kind)
        if judges is None:
            judges = self._judges[kind] = self._judges_of(kind)
        return judges

    def _judges_of(self, kind: str) -> tuple[Handler, ...]:
        if self._is_over:
            return ()
        owners, handlers = self._owners, _HANDLERS if self.facts.restarts else _HANDLERS_BEFORE
        return tuple([getattr(owners[number], name) for number, name in handlers.get(kind, ())])

    def forget_routes(self) -> None:
        """Find anew who handles what."""
        self._judges.clear()
        self.routes.clear()

    def handlers(self, kind: str) -> tuple[Handler, ...]:
        """All that handle events of this kind."""
        if kind in _ESSENTIAL_OF_LOGS:
            return (self._logs.feed,)
        of_log = (self._logs.feed_ledger,) if self.facts.ledger in self._logs.ledgers else ()
        return (*of_log, *((self._take_cas,) if kind == Kind.META_CAS else self.judges(kind)))

    def _take_cas(self, event: Event) -> None:
        if not self._is_over and self.facts.metadata.begins_anew(event):
            self._is_over = True
            self.forget_routes()
        for handle in self.judges(event.kind):
            handle(event)


class OnlineChecker:
    """All invariants over one history, event by event.

    Feed it every event in order, as a reader of a :class:`~scenarios.history.HistoryWriter` or from a file. ``violations``
    may be read at any time; it has the first violation of each clause and ledger. ``events`` counts all events,
    ``skipped`` those with an unknown essential field. It pickles at any time, and goes on where it was.
    """

    def __init__(self) -> None:
        self.events = 0
        self.skipped = 0
        self.violations: list[Violation] = []
        self._broken: set[tuple[int, str]] = set()
        self._ledgers: dict[int, _Ledger] = {}
        #: By ledger and kind, where its events go; those without a ledger have a negative one.
        self._routes: dict[int, dict[str, _Route]] = {}
        self._syncing: set[str] = set()
        self._recording: set[str] = set()
        self._restarts: dict[str, tuple[int, str | None]] = {}
        self._logs = LogsChecker(self._report, self._is_of_log)

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        self.feed_all((event,))

    def feed_all(self, events: Iterable[Event]) -> None:
        """Take in the next events: faster than one by one."""
        # No dictionary that fills itself: to ask one of a class of Python's takes ten times as long.
        routes = self._routes
        for event in events:
            self.events += 1
            try:
                essential, handlers = routes[event.ledger][event.kind]
            except KeyError:
                essential, handlers = self._find_route(event.ledger, event.kind)
            fields = event.fields
            try:
                for name in essential:
                    if fields[name] is None:
                        self.skipped += 1
                        handlers = ()
                        break
            except KeyError:  # of another version of the vocabulary
                self.skipped += 1
                continue
            for handle in handlers:
                handle(event)

    def _find_route(self, ledger_id: int, kind: str) -> _Route:
        """Where events of this ledger and kind go, from now on without asking here."""
        if ledger_id < 0:
            handlers = self._handlers_elsewhere
        else:
            ledger = self._ledgers.get(ledger_id)
            if ledger is None:
                facts = LedgerFacts(ledger_id, self._syncing, self._recording, self._restarts)
                ledger = self._ledgers[ledger_id] = _Ledger(facts, self._logs, partial(self._report, ledger_id))
                self._routes[ledger_id] = ledger.routes
            handlers = ledger.handlers
        route = self._routes.setdefault(ledger_id, {})[kind] = _route(handlers, kind)
        return route

    def _handlers_elsewhere(self, kind: str) -> tuple[Handler, ...]:
        if kind in _ESSENTIAL_OF_LOGS:
            return (self._logs.feed,)
        return (self._restarted, self._feed_each) if kind == Kind.BK_RESTART else (self._feed_each,)

    def _restarted(self, event: Event) -> None:
        if not self._restarts:
            for ledger in self._ledgers.values():
                ledger.forget_routes()
        self._restarts[event.actor] = event.seq, event.fields.get("cookie")

    def _feed_each(self, event: Event) -> None:
        for ledger in self._ledgers.values():
            for handle in ledger.judges(event.kind):
                handle(event)

    def _is_of_log(self, ledger_id: int) -> None:
        """A ledger turns out to be made for a log."""
        if ledger_id in self._ledgers:
            self._ledgers[ledger_id].routes.clear()

    def finish(self) -> tuple[Violation, ...]:
        """All violations, in the order in which they were found."""
        return tuple(self.violations)

    def let_go(self) -> None:
        """Forget all but what was found: nothing follows.

        Ledgers and their families refer to the checker, which refers to them. What is taken apart here, a seventh of what a run
        leaves behind, goes at once, and the collector of garbage need not look at it.
        """
        self._routes.clear()
        for ledger in self._ledgers.values():
            ledger.forget_routes()
        self._ledgers.clear()

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
