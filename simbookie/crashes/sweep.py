"""Many crash runs, on all processors, added up; the same whatever the number of workers."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from simbookie.crashes.invariants import StorageViolation
from simbookie.crashes.recipes import RECIPES
from simbookie.crashes.runs import CrashRun, crash_run, repeated
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.worker_processes import default_processes, in_order, worker_processes

__all__ = ["SHOWN_BY_CRASHES", "CrashSweep", "QuirkHunt", "Shown", "hunt_quirk", "hunt_quirks", "sweep"]

_RUNS_PER_UNIT: Final = 25
#: Texts of violations that are kept of each invariant.
_TEXTS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Shown:
    """How crash runs show a quirk: over which store, within how many runs, and what some of them violate."""

    kind: str
    runs: int
    invariants: tuple[str, ...]


#: Those that chance comes to. Some have a recipe (:mod:`simbookie.crashes.recipes`), the others tests of their own.
SHOWN_BY_CRASHES: Final[dict[Quirk, Shown]] = {
    Quirk.IDLE_FLUSH_SKIPPED: Shown("interleaved", 200, ("I2", "I3", "I1")),
    Quirk.HEADERS_WITH_PAGES_ONLY: Shown("interleaved", 100, ("I2", "I3", "I1")),
    Quirk.HEADERS_UNSYNCED: Shown("interleaved", 100, ("I1", "I2", "I3")),
    Quirk.FOLDERS_UNSYNCED: Shown("interleaved", 100, ("I1", "I3", "I4")),
    Quirk.SHIFTED_AFTER_PARTIAL_WRITE: Shown("interleaved", 200, ("I1", "I3", "I9", "I10", "I12")),
    Quirk.COPIES_REPLACED_EARLY: Shown("interleaved", 1_500, ("I1", "I3")),
    Quirk.FAILED_SYNC_RETRIED: Shown("interleaved", 2_000, ("I1", "I3", "I10")),
    Quirk.EXPLICIT_LAC_REPLACED: Shown("sorted", 100, ("I1",)),
    Quirk.IDLE_CHECKPOINT_SKIPPED: Shown("db", 100, ("I2", "I3", "I1")),
    Quirk.END_OF_LOG_DENIES: Shown("db-direct", 100, ("I14",)),
    Quirk.EMPTY_MAP_BELIEVED: Shown("db-direct", 400, ("I10", "I12", "I1")),
    Quirk.KEYLESS_FENCES: Shown("sorted", 100, ("I2",)),
    Quirk.ROLLED_FILE_SYNCED_LATE: Shown("interleaved", 500, ("I1", "I3", "I5", "I14")),
    Quirk.FORCE_WITHOUT_SYNC: Shown("interleaved", 400, ("I1", "I3", "I4", "I10")),
    Quirk.EXPLICIT_LAC_UNWRITTEN: Shown("interleaved", 100, ("I1",)),
    Quirk.MARKS_IN_PLACE: Shown("interleaved", 200, ("I4",)),
    Quirk.MARK_ERRORS_IGNORED: Shown("interleaved", 300, ("I4",)),
    Quirk.ZERO_RECORDS_REPLAYED: Shown("interleaved", 2_000, ("I1",)),
    Quirk.REPLAYED_FILES_UNSYNCED: Shown("interleaved", 200, ("I4", "I5")),
}


@dataclass(frozen=True, slots=True)
class QuirkHunt:
    """What came of looking for a quirk: the run of ``budget`` that showed it first, counted from 1, or 0 for none."""

    quirk: Quirk
    kind: str
    #: ``chance``, or ``recipe`` for a fixed one, whose budget is its only run.
    way: str
    budget: int
    run: int
    invariants: tuple[str, ...]
    #: Whether the same run violates nothing without the quirk.
    is_absent_repaired: bool

    @property
    def is_shown(self) -> bool:
        """With the quirk, and only with it."""
        return self.run > 0 and self.is_absent_repaired

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-sim crashes --quirks faithful --json`` prints."""
        return {
            "quirk": self.quirk.value,
            "storage": self.kind,
            "way": self.way,
            "budget": self.budget,
            "run": self.run,
            "violated": list(self.invariants),
            "absent_repaired": self.is_absent_repaired,
        }


@dataclass(slots=True)
class CrashSweep:
    """What runs came to. ``seen`` counts crashes by the step that came next, ``violated`` the runs that broke an invariant."""

    kind: str
    quirks: str
    runs: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    violated: Counter[str] = field(default_factory=Counter)
    #: Of the first violations of each invariant: seed and text.
    texts: list[tuple[str, int, str]] = field(default_factory=list)
    wall_seconds: float = 0.0
    _hash: Any = field(default_factory=hashlib.sha256)

    @property
    def digest(self) -> str:
        """Of all runs, in the order of their seeds."""
        text: str = self._hash.hexdigest()
        return text

    def add(self, run: CrashRun) -> None:
        """Count one run, the next in order."""
        self.runs += 1
        self._hash.update(run.digest.encode())
        self.seen.update(run.crashes)
        for invariant in dict.fromkeys(violation.invariant for violation in run.violations):
            self.violated[invariant] += 1
            if self.violated[invariant] <= _TEXTS_MAX:
                text = next(each.text for each in run.violations if each.invariant == invariant)
                self.texts.append((invariant, run.seed, text))

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-sim crashes --json`` prints."""
        return {
            "storage": self.kind,
            "quirks": self.quirks,
            "runs": self.runs,
            "crashes": sum(self.seen.values()),
            "steps": dict(sorted(self.seen.items())),
            "violated": dict(sorted(self.violated.items())),
            "violations": [{"invariant": name, "seed": seed, "text": text} for name, seed, text in self.texts],
            "digest": self.digest,
            "wall_seconds": round(self.wall_seconds, 3),
        }


def sweep(
    kind: str,
    seeds: range,
    quirks: frozenset[Quirk] = REPAIRED,
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CrashSweep:
    """Make the run of every seed; ``progress`` is told how many are done, and how many violated something."""
    started = time.perf_counter()
    result = CrashSweep(kind, ",".join(sorted(quirk.value for quirk in quirks)) or "repaired")
    units = [seeds[start : start + _RUNS_PER_UNIT] for start in range(0, len(seeds), _RUNS_PER_UNIT)]
    count = min(processes if processes is not None else default_processes(), len(units))
    with worker_processes(count, partial(_unit, kind, quirks)) as hand_out:
        for runs in in_order(hand_out(units)):
            for run in runs:
                result.add(run)
            if progress is not None:
                progress(result.runs, sum(result.violated.values()))
    result.wall_seconds = time.perf_counter() - started
    return result


def hunt_quirk(quirk: Quirk, first_seed: int = 0, *, budget: int | None = None) -> QuirkHunt:
    """Make runs with ``quirk``, or those of its recipe, until one violates something; then the same run without it.

    Raises :class:`KeyError` for a quirk that neither chance nor a recipe shows.
    """
    if quirk in RECIPES:
        recipe = RECIPES[quirk]
        found = recipe.violations(frozenset({quirk}))
        return QuirkHunt(
            quirk, recipe.kind, "recipe", 1, int(bool(found)), _names(found), not recipe.violations(REPAIRED)
        )
    shown = SHOWN_BY_CRASHES[quirk]
    runs = budget if budget is not None else shown.runs
    for number in range(runs):
        seed = first_seed + number
        found = crash_run(shown.kind, seed, frozenset({quirk})).violations
        if found:
            repaired = crash_run(shown.kind, seed).violations
            return QuirkHunt(quirk, shown.kind, "chance", runs, number + 1, _names(found), not repaired)
    return QuirkHunt(quirk, shown.kind, "chance", runs, 0, (), is_absent_repaired=True)


def _names(violations: tuple[StorageViolation, ...]) -> tuple[str, ...]:
    return tuple(sorted({violation.invariant for violation in violations}))


def hunt_quirks(
    first_seed: int = 0,
    *,
    budget: int | None = None,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[QuirkHunt]:
    """Look for every quirk that chance or a recipe shows; ``progress`` is told how many are done, and how many were seen."""
    quirks = [quirk for quirk in Quirk if quirk in SHOWN_BY_CRASHES or quirk in RECIPES]
    count = min(processes if processes is not None else default_processes(), len(quirks))
    hunts: list[QuirkHunt] = []
    with worker_processes(count, partial(hunt_quirk, first_seed=first_seed, budget=budget)) as hand_out:
        for each in in_order(hand_out(quirks)):
            hunts.append(each)
            if progress is not None:
                progress(len(hunts), sum(hunt.is_shown for hunt in hunts))
    return hunts


def _unit(kind: str, quirks: frozenset[Quirk], seeds: range) -> list[CrashRun]:
    runs = []
    for seed in seeds:
        run = crash_run(kind, seed, quirks)
        different = repeated(run)
        if different:
            run = CrashRun(run.seed, run.digest, run.crashes, (*run.violations, *different), run.settings)
        runs.append(run)
    return runs
