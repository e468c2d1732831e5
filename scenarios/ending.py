"""How a run ended, and what that and its history prove; the same for every tier."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scenarios.checker import OnlineChecker
from scenarios.history import HistoryWriter
from scenarios.liveness import StuckError
from scenarios.model import Tier, TransportKind, Violation
from scenarios.playing import UnmetError
from scenarios.situations import Situations
from simbookie.world.errors import WorldError

__all__ = ["Judgement", "RunEnding", "Witnesses", "ending_of", "history_name"]


def history_name(
    scenario: str, seed: int, mutant: str | None = None, tier: TransportKind | Tier = TransportKind.OBJECTS
) -> str:
    """The file name of a recorded run."""
    parts = (scenario, mutant, None if tier is TransportKind.OBJECTS else tier.value, str(seed))
    return "-".join(part for part in parts if part) + ".bkh"


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How a run ended. ``completed`` is what RUN_END says."""

    completed: bool = True
    #: Why the run proves nothing; empty if it may.
    problem: str = ""
    #: What did not end although it had to.
    stuck: tuple[Violation, ...] = ()


def ending_of(error: Exception, events: int) -> RunEnding:
    """The ending of a run that raised ``error`` after so many events: none proves anything but that of a client that is stuck."""
    match error:
        case StuckError():
            stuck = Violation(error.clause, error.ledger_id, error.problem, (events,))
            return RunEnding(completed=False, stuck=(stuck,))
        case UnmetError():
            return RunEnding(problem=f"the run is not what its plan says: {error}")
        case WorldError():
            return RunEnding(completed=False, problem=f"{type(error).__name__}: {error}")
    return RunEnding(completed=False, problem=_described(error))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was proved; the fields are those of :class:`~scenarios.model.RunResult`."""

    verdict: str
    violations: tuple[Violation, ...]
    problem: str
    met: dict[str, int]
    missed: tuple[str, ...]


class Witnesses:
    """Those who watch a history while it is written: the online checker, and who counts situations."""

    def __init__(self, history: HistoryWriter) -> None:
        self._checker, self._situations = OnlineChecker(), Situations()
        self._history = history
        history.readers += (self._checker.feed_all, self._situations.feed_all)

    def judge(self, ending: RunEnding, meets: Sequence[str]) -> Judgement:
        """What the history and its ending prove, once all of it is recorded, of a run that is about the situations ``meets``.

        The end of the witnesses.
        """
        self._history.flush()
        violations = (*self._checker.finish(), *ending.stuck)
        self._checker.let_go()
        met = {name: count for name, count in sorted(self._situations.met.items()) if count}
        problem = ending.problem
        missed = () if problem else tuple(name for name in meets if name not in met)
        if missed:
            problem = f"the run never met what it is about: {', '.join(missed)}"
        verdict = "violated" if violations else "unknown" if problem else "ok"
        return Judgement(verdict, violations, problem, met, missed)


def _described(error: Exception) -> str:
    """What was raised, and where in the program: there is no traceback in a result."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{type(error).__name__}: {error} (raised by {place.name}, line {place.lineno} of {Path(place.filename).name})"
    )
