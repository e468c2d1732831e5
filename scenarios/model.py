"""What a scenario is, and what a run of one results in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from scenarios.clauses import CLAUSES

if TYPE_CHECKING:
    from scenarios.conditions import Conditions
    from scenarios.stage import Stage

__all__ = ["RunResult", "Scenario", "TransportKind", "Violation"]


class TransportKind(StrEnum):
    """How clients and bookies of a run talk to each other."""

    #: Requests and responses travel as objects: fast, and nothing of sockets, frames and codecs takes part.
    OBJECTS = "objects"
    #: The shipped TCP transport and the shipped server, over streams of bytes.
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken clause: its number, in which ledger, and how to see it. ``seqs`` are the events that show it."""

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
    """A named story of clients, bookies and faults. ``play`` draws everything it varies from the stage's seed.

    ``expected`` says what a correct implementation makes of it, for people. ``meets`` names the situations it is about (see
    :mod:`scenarios.situations`): a run that met none of one of them comes to no verdict. ``draw`` draws the conditions from
    the seed; None stands for the usual ones.
    """

    name: str
    summary: str
    expected: str
    play: Callable[[Stage], Awaitable[None]] = field(repr=False)
    meets: tuple[str, ...] = ()
    draw: Callable[[int], Conditions] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one run of one scenario came to.

    ``verdict`` is ``ok`` (every invariant holds), ``violated``, or ``unknown`` (the run ended by a limit or an unexpected error,
    or without having met what the scenario is about, named in ``problem``, so that the absence of a violation proves nothing).
    ``met`` counts the situations that the run came across.
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
    transport: TransportKind = TransportKind.OBJECTS
    met: Mapping[str, int] = field(default_factory=dict)

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
            "violations": [violation.as_json() for violation in self.violations],
            "met": dict(self.met),
        }
        extra = {"problem": self.problem, "mutant": self.mutant, "path": self.path}
        return shown | {key: value for key, value in extra.items() if value}
