"""A plan: everything that decides a run but its seed, as one frozen value.

A plan has a cluster, programs of clients, steps that break and mend things, and what is expected. It compares, prints
(:mod:`scenarios.plan.text`) and needs nothing else to be played: no library, no draw. The seed decides what chance decides in
the world: latencies within their bounds, the choice of bookies, the bytes of payloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from scenarios.plan.cluster import Cluster
from scenarios.plan.errors import PlanError
from scenarios.plan.faults import ANY, Compact, Crash, EndFault, Fault, ForeignCookie, Start
from scenarios.plan.log_operations import MakeLog
from scenarios.plan.operations import Call, ClientOperation, CreateLedger, Decommission, Open, RecoverBookie, Until
from scenarios.plan.schedule import ChosenSchedule, PlanSchedule
from scenarios.plan.triggers import At, Trigger
from scenarios.plan.words import check_name, member_of
from scenarios.situations import SITUATIONS
from simbookie.world.metadata_service import METADATA_HOST

__all__ = ["PATIENCE_S", "End", "Expectation", "Expected", "Plan", "Program", "Step"]

#: Actors of a history that are neither clients nor bookies, and words that stand for several hosts.
_OTHER_ACTORS: Final = (METADATA_HOST, "nemesis", "intruder", "run", "final-0", "final-1", ANY)
STEPS_MAX: Final = 1_000
PATIENCE_S: Final = 20.0


class Expected(Enum):
    """What a plan comes to with a correct client."""

    #: Every program ends once all faults have ended, and every ledger is recovered and read.
    SAFE = auto()
    #: Some client gets nowhere: its program does not end, or one of its operations fails.
    BLOCKED = auto()
    #: Nothing but what always holds: no end is demanded.
    ANYTHING = auto()
    #: As ``SAFE``; ledgers may come to more than one end, and all observers agree on which.
    AMBIGUOUS = auto()


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected. ``clients`` are those of which one is blocked, ``until_healed`` whether that ends with the faults."""

    verdict: Expected = Expected.SAFE
    clients: tuple[str, ...] = ()
    until_healed: bool = False

    def __post_init__(self) -> None:
        if (self.verdict is Expected.BLOCKED) != bool(self.clients):
            raise PlanError("expected clients if blocked, and none otherwise")
        if self.until_healed and self.verdict is not Expected.BLOCKED:
            raise PlanError("until-healed goes with blocked clients only")

    @property
    def demands_end(self) -> bool:
        """Whether everything has to end once the faults have."""
        return self.until_healed or self.verdict in {Expected.SAFE, Expected.AMBIGUOUS}


@dataclass(frozen=True, slots=True)
class End:
    """The ids that a ledger's last entry may have when it is closed; -1 for an empty ledger."""

    ledger: str
    entries: tuple[int, ...]

    def __post_init__(self) -> None:
        check_name(self.ledger, "a ledger")
        if not self.entries or min(self.entries) < -1:
            raise PlanError(f"expected entries >= -1, found {self.entries}")


@dataclass(frozen=True, slots=True)
class Program:
    """What one client process does."""

    name: str
    calls: tuple[Call, ...]
    prose: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name, "a client")
        _check_prose(self.prose)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is broken or mended when a trigger comes; ``name`` is for a later step that ends it."""

    trigger: Trigger
    fault: Fault
    name: str = ""
    prose: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name:
            check_name(self.name, "a step")
        _check_prose(self.prose)


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario as a value; :class:`PlanError` for one that cannot be played.

    ``meets`` names the situations that every run must meet (:mod:`scenarios.situations`). ``patience_s`` is how long programs may
    take before all faults end, and again after. ``schedule`` says what is late until then, if anything is.
    """

    name: str
    cluster: Cluster
    clients: tuple[Program, ...]
    steps: tuple[Step, ...] = ()
    summary: str = ""
    expect: Expectation = field(default_factory=Expectation)
    ends: tuple[End, ...] = ()
    meets: tuple[str, ...] = ()
    patience_s: float = PATIENCE_S
    schedule: PlanSchedule | None = None
    prose: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name, "a plan")
        _check_prose(self.prose)
        if self.summary != " ".join(self.summary.split()):
            raise PlanError(f"expected a summary of words in one line, found {self.summary!r}")
        if not self.patience_s > 0:
            raise PlanError(f"expected patience > 0, found {self.patience_s}")
        if isinstance(self.schedule, ChosenSchedule):
            places = [(turn.strand, turn.number) for turn in self.schedule.late]
            if not places or len(set(places)) < len(places):
                raise PlanError("expected turns of a schedule, each once", self.schedule)
        self._check_clients()
        self._check_steps()
        self._check_expectations()

    @property
    def operations(self) -> Iterator[ClientOperation]:
        """Every operation of every client."""
        return (call.operation for client in self.clients for call in client.calls)

    @property
    def waiting(self) -> frozenset[str]:
        """The clients that a step starts; the others start with the run."""
        return frozenset(step.fault.host for step in self.steps if isinstance(step.fault, Start))

    @property
    def client_names(self) -> tuple[str, ...]:
        """The clients."""
        return tuple(client.name for client in self.clients)

    def _check_clients(self) -> None:
        if not self.clients:
            raise PlanError("expected a client, found none")
        taken = {*self.cluster.bookie_names, *_OTHER_ACTORS}
        for client in self.clients:
            if client.name in taken or client.name.startswith("final-"):
                raise PlanError(f"expected a name for a client that nothing else has, found {client.name!r}", client)
            taken.add(client.name)
        self._check_creations()
        for client in self.clients:
            operations = [call.operation for call in client.calls]
            handles = {known.handle or known.ledger for known in operations if isinstance(known, Open)}
            for operation in operations:
                handle = getattr(operation, "handle", None)
                if handle is not None and not isinstance(operation, Open) and handle not in handles:
                    raise PlanError(f"expected a handle that the client opens, found {handle!r}", operation)
                self._check_ledger(getattr(operation, "ledger", None), self.ledgers, operation)
                log = getattr(operation, "log", None)
                if log is not None and log not in self.logs:
                    raise PlanError(f"expected a log that a client creates, found {log!r}", operation)
                if isinstance(operation, RecoverBookie | Decommission) and not self._is_bookie(operation.bookie):
                    raise PlanError(f"expected a bookie of the plan, found {operation.bookie!r}", operation)
                if isinstance(operation, Until):
                    self._check_trigger(operation.trigger, operation)

    def _check_creations(self) -> None:
        created: set[str] = set()
        for operation in self.operations:
            if isinstance(operation, CreateLedger | MakeLog):
                name = operation.ledger if isinstance(operation, CreateLedger) else operation.log
                if name in created:
                    raise PlanError(f"expected a ledger or a log that is created once, found {name!r}", operation)
                created.add(name)

    def _check_steps(self) -> None:
        if len(self.steps) > STEPS_MAX:
            raise PlanError(f"expected at most {STEPS_MAX} steps, found {len(self.steps)}")
        names: set[str] = set()
        for step in self.steps:
            if step.name and step.name in names:
                raise PlanError(f"expected a name that no other step has, found {step.name!r}", step)
            names.add(step.name)
        hosts = self._hosts
        for step in self.steps:
            for host in step.fault.hosts:
                if host not in hosts and not self._is_member(host):
                    raise PlanError(f"expected a client or a bookie of the plan, found {host!r}", step)
            if isinstance(step.fault, EndFault) and step.fault.step not in names:
                raise PlanError(f"expected the name of a step, found {step.fault.step!r}", step)
            self._check_ledger(getattr(step.fault, "ledger", None), self.ledgers, step)
            self._check_trigger(step.trigger, step)
            self._check_storage(step)

    def _check_storage(self, step: Step) -> None:
        needs_files = isinstance(step.fault, Compact) or (isinstance(step.fault, Crash) and step.fault.before)
        if needs_files and self.cluster.store is None:
            raise PlanError(f"expected a cluster with store=... for {step.fault.verb}, found one in memory", step)
        if isinstance(step.fault, ForeignCookie) and not self.cluster.cookies:
            raise PlanError(f"expected a cluster with cookies for {step.fault.verb}, found one without", step)

    def _check_expectations(self) -> None:
        for name in self.meets:
            if name not in SITUATIONS:
                raise PlanError(f"expected a situation, found {name!r}", self.meets)
        for name in self.expect.clients:
            if name not in self.client_names:
                raise PlanError(f"expected a client of the plan, found {name!r}", self.expect)
        for end in self.ends:
            self._check_ledger(end.ledger, self.ledgers, end)

    def _check_trigger(self, trigger: Trigger, about: object) -> None:
        if isinstance(trigger, At):
            return
        if trigger.actor not in {"", *self._hosts, *_OTHER_ACTORS} and not self._is_member(trigger.actor):
            raise PlanError(f"expected an actor of the plan, found {trigger.actor!r}", about)
        for condition in trigger.where:
            if condition.field == "ledger":
                self._check_ledger(str(condition.value), self.ledgers | self.logs, about)

    @staticmethod
    def _check_ledger(ledger: str | None, created: frozenset[str] | set[str], about: object) -> None:
        if ledger is not None and ledger not in created:
            raise PlanError(f"expected a ledger that a client creates, found {ledger!r}", about)

    @property
    def ledgers(self) -> frozenset[str]:
        """The ledgers that clients create."""
        return frozenset(operation.ledger for operation in self.operations if isinstance(operation, CreateLedger))

    @property
    def logs(self) -> frozenset[str]:
        """The logs that clients create."""
        return frozenset(operation.log for operation in self.operations if isinstance(operation, MakeLog))

    def _is_bookie(self, host: str) -> bool:
        return host in self.cluster.bookie_names or self._is_member(host)

    def _is_member(self, host: str) -> bool:
        """Whether it stands for a bookie of an ensemble."""
        member = member_of(host)
        return member is not None and member[0] in self.ledgers | self.logs and member[1] < self.cluster.bookies

    @property
    def _hosts(self) -> set[str]:
        return {*self.cluster.bookie_names, *self.client_names, METADATA_HOST}


def _check_prose(lines: tuple[str, ...]) -> None:
    for line in lines:
        if line != line.strip() or not line.isprintable():
            raise PlanError(f"expected prose in lines without spaces around them, found {line!r}")
