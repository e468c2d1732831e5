"""A model of what owners of one log meet: the manifest's register, ledgers, and everything that may go wrong.

The :class:`Model` says which events are possible, and makes one happen; :func:`explore` makes them all, in every order, as far
as budgets for faults go, and :func:`walk` some of them by chance. After every event :meth:`Model.check` holds the model, not the
machines, to what a log promises. Ledgers behave as BookKeeper's protocol guarantees: what was acknowledged to a writer stays, a
fenced ledger stores nothing more, and everybody agrees on where it ends.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from bkclient.errors import LedgerTruncated
from bkclient.log.machine.manifest import LedgerEnd, LogManifest
from bkclient.log.machine.owner import CloseLedger, LogOwner, MakeLedger, RecoverLedger
from bkclient.log.machine.owner_state import ENDED, OwnerState
from bkclient.log.machine.update import ReadManifest, VersionedManifest, WriteManifest
from bkclient.log.settings import LogSettings

Event = tuple[str, int, int]
"""What happens, to which owner, and which of several ways."""


class BrokenLogError(AssertionError):
    """A log does not keep what it promises."""


@dataclass
class Ledger:
    """A ledger as its bookies have it: what was sent, how much of that an ack quorum stores, whether it is fenced or closed."""

    entries: list[str] = field(default_factory=list)
    stored: int = 0
    is_fenced: bool = False
    end: int | None = None

    def copy(self) -> Ledger:
        return Ledger([*self.entries], self.stored, self.is_fenced, self.end)

    def content(self) -> list[str]:
        return self.entries[: self.stored if self.end is None else self.end + 1]

    def snapshot(self) -> Hashable:
        return tuple(self.entries), self.stored, self.is_fenced, self.end


@dataclass
class Program:
    """One owner, what it publishes, and what it was told."""

    machine: LogOwner
    to_publish: int
    #: By number, what was published.
    published: list[str] = field(default_factory=list)
    #: Entries of the current ledger whose acknowledgement its writer has not had yet, counted; and whether one failed.
    acked: list[tuple[str, int, int]] = field(default_factory=list)
    answered: int = 0
    has_failed: bool = False
    is_alive: bool = True
    #: A write of the manifest that was sent, gave no answer, and may still be carried out.
    late: WriteManifest | None = None

    def copy(self) -> Program:
        return replace(self, machine=self.machine.copy(), published=[*self.published], acked=[*self.acked])

    def snapshot(self) -> Hashable:
        late = None if self.late is None else (self.late.manifest, self.late.version)
        rest = (self.to_publish, tuple(self.acked), self.answered, self.has_failed, self.is_alive, late)
        return (self.machine.snapshot(), *rest)


@dataclass
class Model:
    """The world of some owners."""

    programs: list[Program]
    manifest: LogManifest
    version: int = 0
    ledgers: dict[int, Ledger] = field(default_factory=dict)
    #: How often owners may die, metadata outcomes be unknown, entries fail, and a watch show an owner a newer manifest.
    deaths: int = 0
    unknowns: int = 0
    failures: int = 0
    looks: int = 0

    def copy(self) -> Model:
        return replace(
            self,
            programs=[program.copy() for program in self.programs],
            ledgers={ledger_id: ledger.copy() for ledger_id, ledger in self.ledgers.items()},
        )

    def snapshot(self) -> Hashable:
        return (
            tuple(program.snapshot() for program in self.programs),
            (self.manifest, self.version, self.deaths, self.unknowns, self.failures, self.looks),
            tuple((ledger_id, ledger.snapshot()) for ledger_id, ledger in self.ledgers.items()),
        )

    # What may happen ---------------------------------------------------------------------------------------------

    def events(self) -> Iterator[Event]:
        for index, program in enumerate(self.programs):
            if program.late is not None:
                yield "late", index, 0
            if not program.is_alive or program.machine.state in ENDED:
                continue
            yield from self._events_of(index, program)

    def _events_of(self, index: int, program: Program) -> Iterator[Event]:  # noqa: C901
        machine = program.machine
        if self.deaths:
            yield "die", index, 0
        if machine.state is OwnerState.NEW:
            yield "claim", index, 0
            return
        may_publish = machine.state not in (OwnerState.CLAIMING, OwnerState.RECOVERING) and not machine.is_closing
        if program.to_publish and may_publish:
            yield "publish", index, 0
        if not program.to_publish and not machine.is_closing:
            yield "close", index, 0
        action = machine.action
        if self.looks and machine.known is not None and machine.known.version < self.version:
            yield "look", index, 0
        if isinstance(action, RecoverLedger):
            ledger = self.ledgers[action.ledger_id]
            if not ledger.is_fenced and ledger.end is None:
                yield "fence", index, 0
            elif ledger.end is not None:
                yield "recover", index, ledger.end
            else:
                for end in range(ledger.stored - 1, len(ledger.entries)):
                    yield "recover", index, end
        elif action is not None:
            yield "act", index, 0
            if isinstance(action, WriteManifest) and self.unknowns:
                yield from (("lose-call", index, 0), ("lose-answer", index, 0), ("delay-call", index, 0))
            if isinstance(action, CloseLedger) and self.failures:
                yield "close-fails", index, 0
        if machine.ledger_id is not None and machine.state in (OwnerState.OPEN, OwnerState.DRAINING):
            yield from self._events_at_bookies(index, program, self.ledgers[machine.ledger_id])

    def _events_at_bookies(self, index: int, program: Program, ledger: Ledger) -> Iterator[Event]:
        is_refused = ledger.is_fenced or ledger.end is not None
        if ledger.stored < len(ledger.entries) and not is_refused:
            yield "store", index, 0
        if program.answered < ledger.stored and not program.has_failed:
            yield "answer", index, 0
        if program.answered < len(ledger.entries) and (self.failures or is_refused):
            yield "fail", index, 0
        if self.failures and ledger.end is None:
            for end in range(ledger.stored - 1, len(ledger.entries)):
                yield "meddle", index, end  # somebody recovers the ledger who is no owner, as auto-recovery may

    def happen(self, event: Event) -> None:  # noqa: C901  # one line for each kind of event
        kind, index, way = event
        program = self.programs[index]
        machine = program.machine
        match kind:
            case "claim":
                machine.claim()
            case "publish":
                program.to_publish -= 1
                program.published.append(f"{machine.name}{len(program.published)}")
                machine.publish(1)
            case "close":
                machine.close()
            case "die":
                self.deaths -= 1
                program.is_alive = False
            case "fence":
                self.ledgers[self._ledger_of(program)].is_fenced = True
            case "recover":
                ledger_id = self._ledger_of(program)
                self.ledgers[ledger_id].end = way
                machine.on_ended(LedgerEnd(ledger_id, way, way + 1))
            case "store":
                self.ledgers[machine.ledger_id or 0].stored += 1
            case "answer":
                program.answered += 1
                machine.on_stored(program.answered - 1)
            case "fail":
                self.failures = max(self.failures - 1, 0)
                program.has_failed = True
                machine.on_entry_failed()
            case "close-fails":
                self.failures -= 1
                machine.on_close_failed()
            case "meddle":
                self.failures -= 1
                self.ledgers[machine.ledger_id or 0].end = way
            case "look":
                self.looks -= 1
                machine.on_seen(VersionedManifest(self.manifest, self.version))
            case "late":
                self._write(program.late)
                program.late = None
            case _:
                self._act(kind, program)
        self._settle(program, is_answer=kind == "answer")
        self.check()

    def _ledger_of(self, program: Program) -> int:
        action = program.machine.action
        assert isinstance(action, RecoverLedger)
        return action.ledger_id

    def _act(self, kind: str, program: Program) -> None:
        machine, action = program.machine, program.machine.action
        match action:
            case ReadManifest():
                machine.on_read(VersionedManifest(self.manifest, self.version))
            case WriteManifest() if kind == "act":
                machine.on_written() if self._write(action) else machine.on_not_written()
            case WriteManifest():
                self.unknowns -= 1
                if kind == "lose-answer":
                    self._write(action)
                elif kind == "delay-call":
                    program.late = action
                machine.on_not_written()
            case MakeLedger():
                ledger_id = len(self.ledgers)
                self.ledgers[ledger_id] = Ledger()
                machine.on_made(ledger_id)
            case CloseLedger(ledger_id):
                self._close(program, ledger_id)

    def _close(self, program: Program, ledger_id: int) -> None:
        ledger, last = self.ledgers[ledger_id], program.answered - 1
        if ledger.end is None:
            ledger.end = last
        if ledger.end == last:
            program.machine.on_ended(LedgerEnd(ledger_id, last, last + 1))
        else:
            program.machine.on_close_failed()

    def _write(self, action: WriteManifest | None) -> bool:
        assert action is not None
        if action.version != self.version:
            return False
        self.manifest, self.version = action.manifest, self.version + 1
        return True

    def _settle(self, program: Program, *, is_answer: bool) -> None:
        """What follows at once: entries are sent in order, and the application is told."""
        machine = program.machine
        if not program.is_alive:
            return
        before = machine.ledger_id
        numbers = machine.take_sends()
        if numbers:
            assert before is not None
            ledger = self.ledgers[before]
            if not ledger.entries:
                program.answered, program.has_failed = 0, False
            ledger.entries += [program.published[number] for number in numbers]
        for entry in machine.take_confirmed():
            program.acked.append((program.published[entry.number], entry.ledger_id, entry.entry_id))
            self._check_acknowledged(program, entry.ledger_id, entry.entry_id)
            is_owner = self.manifest.epoch == machine.epoch
            _hold(is_answer or is_owner, "an owner that was deposed acknowledges what bookies did not answer to it")

    # What has to hold --------------------------------------------------------------------------------------------

    def _check_acknowledged(self, program: Program, ledger_id: int, entry_id: int) -> None:
        """Of an acknowledgement at the moment at which it is given."""
        _hold(self.manifest.has(ledger_id), f"ledger {ledger_id} has an acknowledged entry and is not in the list")
        listed = self.manifest.ledger(ledger_id)
        is_own = listed is not None and listed.epoch == program.machine.epoch
        _hold(is_own, f"{program.machine.name} acknowledges entries of a ledger of another epoch, {ledger_id}")
        ledger = self.ledgers[ledger_id]
        _hold(entry_id < len(ledger.content()), f"entry {entry_id} of ledger {ledger_id} is acknowledged, not stored")

    def check(self) -> None:
        """Of the log as it is now."""
        content: list[tuple[str, int, int]] = []
        for listed in self.manifest.ledgers:
            stored = self.ledgers[listed.ledger_id].content()
            content += [(text, listed.ledger_id, entry_id) for entry_id, text in enumerate(stored)]
            if listed.end is not None:
                _hold(listed.end.last_entry_id == len(stored) - 1, f"the manifest has a wrong end of {listed}")
        texts = [text for text, _, _ in content]
        _hold(len(set(texts)) == len(texts), f"a message is there twice: {texts}")
        where = {text: (ledger_id, entry_id) for text, ledger_id, entry_id in content}
        for program in self.programs:
            for text, ledger_id, entry_id in program.acked:
                _hold(where.get(text) == (ledger_id, entry_id), f"{text} is acknowledged, not in the log")
            own = [text for text in texts if text in program.published]
            _hold(own == sorted(own), f"messages are out of order: {own}")
            orphan = program.machine.orphan
            _hold(
                orphan is None or not self.manifest.has(orphan), f"ledger {orphan} is in the list, and would be deleted"
            )
            _hold(not isinstance(program.machine.failure, LedgerTruncated), "an owner finds its ledger truncated")
        for ledger_id, ledger in self.ledgers.items():
            is_listed = self.manifest.has(ledger_id)
            _hold(
                is_listed or not ledger.entries or ledger.end == -1, f"ledger {ledger_id} has entries and is not listed"
            )
        accepting = [ledger_id for ledger_id in self.ledgers if self._accepts(ledger_id)]
        _hold(len(accepting) <= 1, f"ledgers {accepting} accept entries at the same time")

    def _accepts(self, ledger_id: int) -> bool:
        ledger = self.ledgers[ledger_id]
        return self.manifest.has(ledger_id) and not ledger.is_fenced and ledger.end is None


def _hold(what: bool, message: str) -> None:
    if not what:
        raise BrokenLogError(message)


def new_model(
    *publishes: int,
    deaths: int = 0,
    unknowns: int = 0,
    failures: int = 0,
    looks: int = 0,
    max_entries: int = 2,
    owner: type[LogOwner] = LogOwner,
) -> Model:
    """An owner for each number, who publishes so many entries."""
    settings = LogSettings(max_ledger_entries=max_entries, min_ledger_s=0)
    names = "abcdef"
    programs = [Program(owner(names[n], f"claim_id-{n}"), count) for n, count in enumerate(publishes)]
    manifest = LogManifest("log", settings)
    return Model(programs, manifest, deaths=deaths, unknowns=unknowns, failures=failures, looks=looks)


def explore(model: Model, *, most: int = 1_000_000) -> tuple[int, set[str]]:
    """Every state that can be reached; how many, and the events that happened."""
    seen = {model.snapshot()}
    to_do = [model]
    kinds = set()
    while to_do:
        here = to_do.pop()
        for event in here.events():
            there = here.copy()
            there.happen(event)
            kinds.add(event[0])
            snapshot = there.snapshot()
            if snapshot not in seen:
                assert len(seen) < most, "more states than expected"
                seen.add(snapshot)
                to_do.append(there)
    return len(seen), kinds


def walk(model: Model, rng: Random, steps: int = 400) -> list[Event]:
    """One run by chance, in which faults are rarer than progress; the events."""
    events: list[Event] = []
    while len(events) < steps and (possible := list(model.events())):
        weights = [1 if event[0] in ("die", "fail", "fence", "meddle") else 6 for event in possible]
        event = rng.choices(possible, weights)[0]
        model.happen(event)
        events.append(event)
    return events
