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

__all__ = ["SHOWN_BY_CRASHES", "CrashSweep", "sweep", "sweep_quirks"]

_RUNS_PER_UNIT: Final = 25
#: Texts of violations that are kept of each invariant.
_TEXTS_MAX: Final = 5

#: Which invariants crash runs see violated by which quirk. The others are shown by tests with recipes of their own.
SHOWN_BY_CRASHES: Final[dict[Quirk, tuple[str, ...]]] = {
    Quirk.IDLE_FLUSH_SKIPPED: ("I2", "I3", "I1"),
    Quirk.HEADERS_WITH_PAGES_ONLY: ("I2", "I3", "I1"),
    Quirk.HEADERS_UNSYNCED: ("I1", "I2", "I3"),
    Quirk.FOLDERS_UNSYNCED: ("I1", "I3", "I4"),
    Quirk.SHIFTED_AFTER_PARTIAL_WRITE: ("I1", "I3", "I9", "I12"),
    Quirk.COPIES_REPLACED_EARLY: ("I1", "I3"),
    Quirk.FAILED_SYNC_RETRIED: ("I1", "I3"),
    Quirk.KEYLESS_FENCES: ("I2",),
    Quirk.ROLLED_FILE_SYNCED_LATE: ("I1", "I5"),
    Quirk.FORCE_WITHOUT_SYNC: ("I1", "I4"),
    Quirk.EXPLICIT_LAC_UNWRITTEN: ("I1",),
    Quirk.MARKS_IN_PLACE: ("I4",),
    Quirk.MARK_ERRORS_IGNORED: ("I4",),
    Quirk.ZERO_RECORDS_REPLAYED: ("I1",),
    Quirk.REPLAYED_FILES_UNSYNCED: ("I4",),
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


def sweep_quirks(
    kind: str, seeds: range, *, processes: int | None = None, progress: Callable[[int, int], None] | None = None
) -> dict[Quirk, CrashSweep]:
    """A sweep with each quirk that crash runs can show, by itself; they share the seeds evenly."""
    share = max(1, len(seeds) // len(SHOWN_BY_CRASHES))
    found = {}
    for number, quirk in enumerate(SHOWN_BY_CRASHES):
        each = sweep(kind, seeds[:share], frozenset({quirk}), processes=processes)
        found[quirk] = each
        if progress is not None:
            progress((number + 1) * share, sum(sum(one.violated.values()) > 0 for one in found.values()))
    return found


def _unit(kind: str, quirks: frozenset[Quirk], seeds: range) -> list[CrashRun]:
    runs = []
    for seed in seeds:
        run = crash_run(kind, seed, quirks)
        different = repeated(run)
        if different:
            run = CrashRun(run.seed, run.digest, run.crashes, (*run.violations, *different), run.settings)
        runs.append(run)
    return runs
