"""The same runs over objects and over bytes, and whether they come to the same.

The same plan and seed is no longer the same run over bytes: what chance decides for a message it decides there for a piece of a
stream. What must be the same is what runs come to: the verdict, and the clauses that were broken. Whether a run met what its plan
is about may depend on such chances; then one of the two has no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scenarios.history import History
from scenarios.model import RunResult, TransportKind
from scenarios.plan import Plan
from scenarios.specification.histories.conformance import conform_history
from scenarios.units import RUNS_PER_UNIT, Progress, Unit, batched, check_names, planned_runs, processes_for, work
from simbookie.worker_processes import in_order, worker_processes

__all__ = ["TransportComparison", "TransportDifference", "compare_transports"]


@dataclass(frozen=True, slots=True)
class TransportDifference:
    """A run that comes to something else over bytes; what, of each, in words."""

    scenario: str
    seed: int
    over_objects: str
    over_bytes: str

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos transports --json`` prints."""
        return {"scenario": self.scenario, "seed": self.seed, "objects": self.over_objects, "bytes": self.over_bytes}


@dataclass(slots=True)
class TransportComparison:
    """What pairs of runs came to. ``missed`` are pairs of which one or both did not meet what the plan is about.

    ``is_interrupted`` says that there could have been more.
    """

    seeds: int
    first_seed: int
    pairs: int = 0
    missed: int = 0
    cpu_seconds: float = 0.0
    differences: list[TransportDifference] = field(default_factory=list)
    is_interrupted: bool = False

    @property
    def is_fine(self) -> bool:
        """Whether all pairs came to the same."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos transports --json`` prints."""
        return {
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "pairs": self.pairs,
            "missed": self.missed,
            "cpu_seconds": round(self.cpu_seconds, 3),
            "interrupted": self.is_interrupted,
            "differences": [one.as_json() for one in self.differences],
        }


@dataclass(frozen=True, slots=True)
class _Pairs:
    """What a unit of pairs came to."""

    pairs: int
    missed: int
    cpu_seconds: float
    differences: tuple[TransportDifference, ...]


def compare_transports(
    seeds: Sequence[int],
    scenarios: Sequence[str],
    *,
    mutant: str | None = None,
    in_turn: bool = False,
    plans: Mapping[str, Plan] | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> TransportComparison:
    """Make every run over objects and over bytes, and compare what they come to.

    Every scenario with every seed, or one scenario ``in_turn`` with each. ``KeyError`` for an unknown scenario or mutant. A
    ``KeyboardInterrupt`` ends the comparison, which says so.
    """
    check_names(scenarios, mutant, None, plans)
    result = TransportComparison(len(seeds), seeds[0] if seeds else 0)
    in_all = len(seeds) * (1 if in_turn else len(scenarios))
    units = (
        Unit(
            batch,
            mutant,
            plans={name: plan for name, plan in (plans or {}).items() if any(name == run[0] for run in batch)},
        )
        for batch in batched(planned_runs(seeds, scenarios, in_turn=in_turn), RUNS_PER_UNIT)
    )
    try:
        with worker_processes(processes_for(-(-in_all // RUNS_PER_UNIT), processes), _compare) as hand_out:
            for done in in_order(hand_out(units)):
                result.pairs += done.pairs
                result.missed += done.missed
                result.cpu_seconds += done.cpu_seconds
                result.differences.extend(done.differences)
                if progress is not None:
                    progress(result.pairs, in_all, len(result.differences))
    except KeyboardInterrupt:
        result.is_interrupted = True
    return result


def _compare(unit: Unit) -> _Pairs:
    missed, differences = 0, []
    with TemporaryDirectory(prefix="bk-chaos-") as folder:
        kept = replace(unit, record=Path(folder))
        over_objects, over_bytes = (work(replace(kept, transport=kind)) for kind in TransportKind)
        for one, other in zip(over_objects.results, over_bytes.results, strict=True):
            missed += bool(one.missed or other.missed)
            told = _told(one), _told(other)
            if told[0] != told[1] and not _is_by_chance(one, other):
                differences.append(TransportDifference(one.scenario, one.seed, *told))
    cpu_seconds = over_objects.cpu_seconds + over_bytes.cpu_seconds
    return _Pairs(len(over_objects.results), missed, cpu_seconds, tuple(differences))


def _is_by_chance(one: RunResult, other: RunResult) -> bool:
    """Whether they differ only in whether they met what the plan is about, and both followed the specification."""
    return all(
        not result.violations and (result.verdict == "ok" or bool(result.missed)) and not _unspecified(result)
        for result in (one, other)
    )


def _told(result: RunResult) -> str:
    """What a run came to, in words: verdict, clauses, and the first event that is not specified."""
    clauses = sorted({violation.clause for violation in result.violations})
    why = ", ".join(clauses) if clauses else result.problem
    return "; ".join(part for part in (result.verdict + (f" ({why})" if why else ""), _unspecified(result)) if part)


def _unspecified(result: RunResult) -> str:
    if not result.path:
        return ""  # the run could not be made
    wrong = conform_history(History(Path(result.path)).events()).wrong
    return wrong[0].what if wrong else ""
