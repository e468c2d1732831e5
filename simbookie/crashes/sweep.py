"""Many crash runs, on all processors, added up; the same whatever the number of workers."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from simbookie.crashes.runs import CrashRun, crash_run, repeated
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.worker_processes import default_processes, in_order, worker_processes

__all__ = ["CrashSweep", "sweep"]

_RUNS_PER_UNIT: Final = 25
#: Texts of violations that are kept of each invariant.
_TEXTS_MAX: Final = 5


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


def _unit(kind: str, quirks: frozenset[Quirk], seeds: range) -> list[CrashRun]:
    runs = []
    for seed in seeds:
        run = crash_run(kind, seed, quirks)
        different = repeated(run)
        if different:
            run = CrashRun(run.seed, run.digest, run.crashes, (*run.violations, *different), run.settings)
        runs.append(run)
    return runs
