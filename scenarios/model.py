"""The values that describe a scenario and the result of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from scenarios.clauses import CLAUSES
from scenarios.situations import FAULT_MET

if TYPE_CHECKING:
    from scenarios.conditions import Conditions
    from scenarios.stage import Stage

__all__ = ["RunResult", "Scenario", "Tier", "TransportKind", "Violation"]


class TransportKind(StrEnum):
    """What the clients and bookies of a run exchange."""

    #: Requests and responses are passed as objects: fast, without sockets, frames and codecs.
    OBJECTS = "objects"
    #: The shipped TCP transport and the shipped server exchange bytes over simulated streams.
    BYTES = "bytes"


class Tier(StrEnum):
    """How real a run is: what a simulated one exchanges, or processes in real time."""

    OBJECTS = "objects"
    BYTES = "bytes"
    #: Clients, bookies and the metadata service are processes, which talk over TCP.
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken clause: its number, the ledger, and a sentence that shows it. ``seqs`` are the numbers of the events."""

    clause: str
    ledger: int
    witness: str
    seqs: tuple[int, ...] = ()

    @property
    def invariant(self) -> str:
        """The invariant that the clause belongs to."""
        return CLAUSES[self.clause].invariant

    @property
    def name(self) -> str:
        """Invariant and clause, for people."""
        return f"{self.invariant} ({self.clause})"

    def as_json(self) -> dict[str, Any]:
        """The shape that commands print."""
        return {"invariant": self.invariant, "clause": self.clause, "ledger": self.ledger, "witness": self.witness}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named sequence of calls and faults. ``play`` runs it and draws everything that varies from the stage's seed.

    ``expected`` describes the result with a correct implementation. ``meets`` names the situations that every run must meet (see
    :mod:`scenarios.situations`): a run that misses one has no verdict. ``draw`` draws the conditions from the seed; None means
    :func:`~scenarios.conditions.draw_conditions`.
    """

    name: str
    summary: str
    expected: str
    play: Callable[[Stage], Awaitable[None]] = field(repr=False)
    meets: tuple[str, ...] = ()
    draw: Callable[[int], Conditions] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one run of one scenario.

    ``verdict`` is ``ok`` (every invariant holds), ``violated``, or ``unknown``: the run ended at a limit, with an unexpected
    error, or without meeting a situation of the scenario, so that it proves nothing; ``problem`` has the reason.
    ``met`` counts the situations of the run; ``missed`` names those of the scenario that it did not meet, if that is the reason.
    ``unseen`` has the clauses that nobody can judge, because the bookies do not record what happens inside them.
    ``choices`` is what its schedule chose, if it has one (:mod:`simbookie.world.schedule`).
    """

    scenario: str
    seed: int
    digest: str
    events: int
    simulated_seconds: float
    wall_seconds: float
    verdict: str
    violations: tuple[Violation, ...] = ()
    problem: str = ""
    mutant: str = ""
    path: str = ""
    transport: TransportKind | Tier = TransportKind.OBJECTS
    met: Mapping[str, int] = field(default_factory=dict)
    missed: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    choices: Mapping[str, Mapping[int, int]] = field(default_factory=dict, repr=False)

    @property
    def is_vacuous(self) -> bool:
        """Whether every invariant holds in a run in which nothing went wrong."""
        return self.verdict == "ok" and FAULT_MET not in self.met

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos run --json`` prints."""
        shown = {
            "scenario": self.scenario,
            "seed": self.seed,
            "transport": self.transport.value,
            "digest": self.digest,
            "events": self.events,
            "simulated_seconds": round(self.simulated_seconds, 6),
            "wall_seconds": round(self.wall_seconds, 6),
            "verdict": self.verdict,
            "vacuous": self.is_vacuous,
            "violations": [violation.as_json() for violation in self.violations],
            "met": dict(self.met),
        }
        extra = {"problem": self.problem, "mutant": self.mutant, "path": self.path, "unseen": list(self.unseen)}
        return shown | {key: value for key, value in extra.items() if value}
