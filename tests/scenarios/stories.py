"""Stories: hand-made histories for tests of the checker and the timeline.

A story is told in the protocol's words, one method a sentence; each appends the events that a recorder would, and most return
the ``seq`` of the event that matters. Nothing is enforced: telling what a correct client would never do is the point.

Entry ``e`` has content ``1000 + e``, ten bytes of payload and so ``10 * (e + 1)`` as length, unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scenarios.checker import OnlineChecker
from scenarios.history import KINDS, Event, Kind
from scenarios.model import Violation

__all__ = ["DENIED", "FENCED", "NO_LEDGER", "TIMEOUT", "Story", "assert_broken", "assert_holds"]

DENIED = -13
NO_LEDGER = -7
FENCED = -101
TIMEOUT = -23

Fragments = Sequence[tuple[int, Sequence[str]]]


class Story:
    """The history of one ledger, ``sizes`` being E/Qw/Qa; bookies are called b0, b1, ..."""

    def __init__(self, sizes: str = "3/3/2", ledger: int = 7) -> None:
        self.events: list[Event] = []
        self.ledger = ledger
        self.ensemble_size, self.write_quorum_size, self.ack_quorum_size = (int(size) for size in sizes.split("/"))
        self.version = -1
        self.state = "OPEN"
        self.fragments: Fragments = [(0, self.bookies(self.ensemble_size))]
        self.last_entry = -1
        self.length = 0
        #: Up to where all entries were acknowledged, which is what a writer sends along unless told otherwise.
        self.confirmed = -1

    @staticmethod
    def bookies(count: int) -> tuple[str, ...]:
        return tuple(f"b{i}" for i in range(count))

    def event(self, kind: Kind, actor: str, *, ledger: Any = None, **fields: Any) -> int:
        """Append any event; fields not given are None."""
        seq = len(self.events)
        unknown = set(fields) - set(KINDS[kind])
        assert not unknown, f"{kind} has no {unknown}"
        complete = {name: fields.get(name) for name in KINDS[kind]}
        self.events.append(Event(seq, seq * 1000, actor, kind, self.ledger if ledger is None else ledger, complete))
        return seq

    def ensemble(self, entry: int) -> Sequence[str]:
        return [members for first, members in self.fragments if first <= max(entry, 0)][-1]

    def write_set(self, entry: int) -> tuple[str, ...]:
        ensemble = self.ensemble(entry)
        return tuple(ensemble[(entry + i) % len(ensemble)] for i in range(self.write_quorum_size))

    # Metadata ----------------------------------------------------------------------------------------------------

    def cas(
        self,
        cause: str,
        actor: str,
        *,
        state: str | None = None,
        fragments: Fragments | None = None,
        last_entry: int = -1,
        length: int = 0,
        outcome: str = "ok",
        expected: int | None = None,
        version: int | None = None,
        sizes: tuple[int, int, int] | None = None,
    ) -> int:
        """A compare-and-set; by default an honest one, which succeeds."""
        expected = self.version if expected is None else expected
        state = self.state if state is None else state
        fragments = self.fragments if fragments is None else fragments
        if outcome == "ok":
            version = expected + 1 if version is None else version
            self.version, self.state, self.fragments = version, state, fragments
            self.last_entry, self.length = last_entry, length
        e, qw, qa = sizes or (self.ensemble_size, self.write_quorum_size, self.ack_quorum_size)
        return self.event(
            Kind.META_CAS,
            actor,
            cause=cause,
            outcome=outcome,
            expected_version=expected,
            version=-1 if version is None else version,
            state=state,
            fragments=[[first, list(members)] for first, members in fragments],
            last_entry=last_entry,
            length=length,
            ensemble_size=e,
            write_quorum_size=qw,
            ack_quorum_size=qa,
        )

    def create(self, actor: str = "writer", **options: Any) -> int:
        return self.cas("create", actor, **options)

    def change(self, first: int, *bookies: str, actor: str = "writer", **options: Any) -> int:
        """An ensemble change from entry ``first`` on."""
        kept = [fragment for fragment in self.fragments if fragment[0] < first]
        return self.cas("ensemble", actor, fragments=[*kept, (first, bookies)], **options)

    def close(self, last_entry: int, actor: str = "writer", **options: Any) -> int:
        """The closing write."""
        length = options.pop("length", 10 * (last_entry + 1))
        return self.cas("close", actor, state="CLOSED", last_entry=last_entry, length=length, **options)

    def look(self, actor: str, **fields: Any) -> int:
        """A META_READ of what is stored, or of what ``fields`` say instead."""
        found = {
            "outcome": "ok",
            "version": self.version,
            "state": self.state,
            "fragments": [[first, list(members)] for first, members in self.fragments],
            "last_entry": self.last_entry,
            "length": self.length,
            "ensemble_size": self.ensemble_size,
            "write_quorum_size": self.write_quorum_size,
            "ack_quorum_size": self.ack_quorum_size,
        }
        return self.event(Kind.META_READ, actor, **found | fields)

    # Adds --------------------------------------------------------------------------------------------------------

    def send(self, entry: int, *bookies: str, actor: str = "writer", recovery: bool = False, **fields: Any) -> int:
        lac = -1 if recovery else min(self.confirmed, entry - 1)
        for bookie in bookies:
            known = {"lac": lac, "length": 10 * (entry + 1), "content": 1000 + entry, "size": 10, "incarnation": 1}
            self.event(Kind.ADD_SEND, actor, entry=entry, bookie=bookie, recovery=recovery, **known | fields)
        return len(self.events) - 1

    def store(self, entry: int, *bookies: str, recovery: bool = False, sync: bool = True, **fields: Any) -> int:
        """The entry arrives and, unless told otherwise, is synced."""
        for bookie in bookies:
            known = {"content": 1000 + entry, "source": "writer", "lac": -1, "length": 10 * (entry + 1)}
            self.event(Kind.BK_STORE, bookie, entry=entry, recovery=recovery, **known | fields)
            if sync:
                self.sync(entry, bookie)
        return len(self.events) - 1

    def sync(self, entry: int, bookie: str) -> int:
        return self.event(Kind.BK_SYNC, bookie, entry=entry)

    def answer(
        self,
        entry: int,
        *bookies: str,
        actor: str = "writer",
        code: int = 0,
        recovery: bool = False,
        incarnation: int = 1,
    ) -> int:
        for bookie in bookies:
            self.event(
                Kind.ADD_RESP,
                actor,
                entry=entry,
                bookie=bookie,
                code=code,
                recovery=recovery,
                incarnation=incarnation,
            )
        return len(self.events) - 1

    def add(self, entry: int, *, actor: str = "writer", incarnation: int = 1, given: bool = False) -> int:
        """The application appends."""
        known = {"content": 1000 + entry, "size": 10, "incarnation": incarnation}
        return self.event(Kind.APP_ADD, actor, entry=entry, given=given, **known)

    def cancel(self, entry: int, *, actor: str = "writer", incarnation: int = 1) -> int:
        """The application does not want to know any more."""
        return self.event(Kind.APP_CANCEL, actor, entry=entry, incarnation=incarnation)

    def ack(
        self,
        entry: int,
        *,
        actor: str = "writer",
        content: int | None = None,
        durable: bool = True,
        incarnation: int = 1,
    ) -> int:
        content = 1000 + entry if content is None else content
        if entry == self.confirmed + 1:
            self.confirmed = entry
        return self.event(Kind.APP_ACK, actor, entry=entry, content=content, durable=durable, incarnation=incarnation)

    def fail(self, entry: int, code: int = FENCED, *, actor: str = "writer", incarnation: int = 1) -> int:
        return self.event(Kind.APP_FAIL, actor, entry=entry, code=code, incarnation=incarnation)

    def write(self, entry: int, *bookies: str, actor: str = "writer", incarnation: int = 1, **fields: Any) -> int:
        """An entry is sent to, stored by and answered by ``bookies`` (its write set by default), and acknowledged."""
        chosen = bookies or self.write_set(entry)
        self.send(entry, *chosen, actor=actor, incarnation=incarnation, **{"lac": entry - 1} | fields)
        self.add(entry, actor=actor, incarnation=incarnation)
        self.store(entry, *chosen)
        self.answer(entry, *chosen, actor=actor, incarnation=incarnation)
        return self.ack(entry, actor=actor, incarnation=incarnation)

    def write_all(self, first: int, last: int) -> int:
        return [self.write(entry) for entry in range(first, last + 1)][-1]

    # Bookies -----------------------------------------------------------------------------------------------------

    def lose(self, entry: int, *bookies: str) -> int:
        for bookie in bookies:
            self.event(Kind.BK_LOSS, bookie, entry=entry, detail="disk")
        return len(self.events) - 1

    def crash(self, bookie: str, *, clean: bool = False) -> int:
        return self.event(Kind.BK_CRASH, bookie, ledger=-1, clean=clean, detail="")

    def forget_fence(self, bookie: str) -> int:
        """The bookie is killed and forgets its fence."""
        forgotten = self.event(Kind.FENCE_LOST, bookie, detail="")
        self.crash(bookie)
        return forgotten

    def fence_set(self, bookie: str, *, durable: bool = True, actor: str = "r0") -> int:
        return self.event(Kind.FENCE_SET, bookie, source=actor, durable=durable)

    # Recovery ----------------------------------------------------------------------------------------------------

    def mark(self, actor: str = "r0") -> int:
        """OPEN -> IN_RECOVERY, and fencing begins. Another recovery finds it marked already."""
        self.event(Kind.OPEN_START, actor, recovery=True)
        self.look(actor)
        if self.state == "OPEN":
            self.cas("recover", actor, state="IN_RECOVERY")
        first, members = self.fragments[-1]
        return self.event(Kind.REC_START, actor, version=self.version, first_entry=first, bookies=",".join(members))

    def fence(self, *bookies: str, actor: str = "r0", code: int = 0, lac: int = -1) -> int:
        """These bookies are fenced and say so."""
        for bookie in bookies:
            self.event(Kind.FENCE_SEND, actor, bookie=bookie)
            self.fence_set(bookie, durable=False, actor=actor)
            self.fence_set(bookie, durable=True, actor=actor)
            self.event(Kind.FENCE_RESP, actor, bookie=bookie, code=code, lac=lac, entry=lac + 1)
        return len(self.events) - 1

    def ask(self, entry: int, *bookies: str, actor: str = "r0", fence: bool = True) -> int:
        """Recovery reads are sent."""
        for bookie in bookies or self.write_set(entry):
            self.event(Kind.REC_READ_SEND, actor, entry=entry, bookie=bookie, fence=fence)
        return len(self.events) - 1

    def told(self, entry: int, *bookies: str, actor: str = "r0", code: int = 0, fence: bool = True) -> int:
        """Recovery reads are answered; a fencing one fences."""
        for bookie in bookies:
            if fence:
                self.fence_set(bookie, durable=True, actor=actor)
            self.event(
                Kind.REC_READ_RESP,
                actor,
                entry=entry,
                bookie=bookie,
                fence=fence,
                code=code,
                content=1000 + entry if code == 0 else None,
            )
        return len(self.events) - 1

    def decide(self, entry: int, verdict: str, *bookies: str, actor: str = "r0") -> int:
        return self.event(Kind.REC_DECIDE, actor, entry=entry, verdict=verdict, bookies=",".join(bookies))

    def find(self, entry: int, *bookies: str, actor: str = "r0") -> int:
        """The entry is read from ``bookies`` and taken for recovered."""
        self.ask(entry, actor=actor)
        self.told(entry, *bookies, actor=actor)
        return self.decide(entry, "positive", *bookies, actor=actor)

    def rule_out(self, entry: int, *bookies: str, actor: str = "r0") -> int:
        """The entry is denied by ``bookies`` and taken for absent."""
        self.ask(entry, actor=actor)
        self.told(entry, *bookies, actor=actor, code=DENIED)
        return self.decide(entry, "negative", *bookies, actor=actor)

    def rewrite(self, entry: int, *bookies: str, actor: str = "r0", lac: int = -1) -> int:
        """The entry is written back to ``bookies``."""
        self.send(entry, *bookies, actor=actor, recovery=True, lac=lac)
        self.store(entry, *bookies, recovery=True, source=actor, lac=lac)
        return self.answer(entry, *bookies, actor=actor, recovery=True)

    def opened(self, actor: str = "r0", *, code: int = 0, recovery: bool = True, **fields: Any) -> int:
        """Opening the ledger ends; it is closed if that went well."""
        known = {"state": self.state, "last_entry": self.last_entry, "length": self.length}
        return self.event(Kind.OPEN_RESULT, actor, recovery=recovery, code=code, **known | fields)

    # Readers -----------------------------------------------------------------------------------------------------

    def read(
        self,
        entry: int,
        *bookies: str,
        actor: str = "reader",
        code: int = 0,
        content: int | None = None,
        lac: int | None = None,
        version: int | None = None,
    ) -> int:
        """One read by an application: asked of ``bookies``, ended by ``code``."""
        content = (1000 + entry if content is None else content) if code == 0 else None
        for bookie in bookies or self.write_set(entry)[:1]:
            self.event(Kind.READ_SEND, actor, entry=entry, bookie=bookie)
            self.event(Kind.READ_RESP, actor, entry=entry, bookie=bookie, code=code, content=content, lac=-1)
        return self.event(
            Kind.READ_RESULT,
            actor,
            entry=entry,
            code=code,
            content=content,
            size=10 if code == 0 else 0,
            lac=entry if lac is None else lac,
            version=self.version if version is None else version,
        )

    # Verdicts ----------------------------------------------------------------------------------------------------

    def checked(self) -> OnlineChecker:
        checker = OnlineChecker()
        for event in self.events:
            checker.feed(event)
        return checker


def assert_holds(story: Story, clause: str, *, but: Sequence[str] = ()) -> None:
    """The clause had something to judge and holds; so does everything else, ``but`` for other clauses named."""
    checker = story.checked()
    broken = {violation.clause: violation for violation in checker.finish()}
    assert not [violation for name, violation in broken.items() if name not in but]
    assert checker.judged[clause] > 0, f"{clause} had nothing to judge"


def assert_broken(story: Story, clause: str, *witnesses: int, says: str = "") -> Violation:
    """The clause is broken, and its witness names these events and words."""
    violations = [violation for violation in story.checked().finish() if violation.clause == clause]
    assert violations, f"{clause} was not seen broken"
    (violation,) = violations
    assert violation.ledger == story.ledger
    missing = set(witnesses) - set(violation.seqs)
    assert not missing, f"{violation} does not name events {missing}"
    assert says in violation.witness
    return violation
