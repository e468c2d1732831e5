"""What client and bookies take from the real world while they are simulated, by file and line.

Runs are made in fresh processes, because the modules are changed while they are imported (:mod:`scenarios.set_order`), and under
the eyes of :class:`~scenarios.testing.entropy.Audit`. A run is some five times slower for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scenarios.model import TransportKind
    from scenarios.plan import Plan
    from scenarios.testing.entropy import RealUse
    from scenarios.units import Run

__all__ = ["AuditResult", "AuditedRuns", "audit_runs", "audited"]

#: Packages whose code is audited; the rest plays and records.
_UNDER_TEST: Final = ("bkclient", "simbookie")
_ROOT: Final = Path(__file__).resolve().parents[1]
_RUNS_PER_UNIT: Final = 32


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What was found in so many runs; paths are relative to the folder of the packages."""

    runs: int
    uses: tuple[RealUse, ...]

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos determinism --audit --json`` prints."""
        found = [{"file": use.file, "line": use.line, "sentence": use.sentence} for use in self.uses]
        return {"runs": self.runs, "real_uses": found}


@dataclass(frozen=True, slots=True)
class AuditedRuns:
    """A unit of work: some runs, for one process."""

    runs: tuple[Run, ...]
    transport: TransportKind
    plans: Mapping[str, str] = field(default_factory=dict)


def audit_runs(
    seeds: Sequence[int],
    scenarios: Sequence[str],
    *,
    transport: TransportKind,
    in_turn: bool = False,
    plans: Mapping[str, Plan] | None = None,
    processes: int | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> AuditResult:
    """Make runs as :func:`~scenarios.determinism.check_determinism` does, each once, and tell what they used.

    Raises ``KeyError`` for an unknown scenario.
    """
    from scenarios.plan import print_plan  # noqa: PLC0415  a process that is audited imports everything by itself
    from scenarios.testing.entropy import RealUse  # noqa: PLC0415
    from scenarios.units import batched, check_names, planned_runs, processes_for  # noqa: PLC0415
    from simbookie.worker_processes import in_order, worker_processes  # noqa: PLC0415

    check_names(scenarios, None, None, plans)
    runs = list(planned_runs(seeds, scenarios, in_turn=in_turn))
    texts = {name: print_plan(plan, full=True) for name, plan in (plans or {}).items()}
    units = [AuditedRuns(batch, transport, texts) for batch in batched(runs, _RUNS_PER_UNIT)]
    found: dict[RealUse, None] = {}
    done = 0
    with worker_processes(processes_for(len(units), processes), audited) as hand_out:
        for unit, uses in zip(units, in_order(hand_out(units)), strict=True):
            found |= dict.fromkeys(RealUse(file, line, sentence) for file, line, sentence in uses)
            done += len(unit.runs)
            if progress is not None:
                progress(done, len(runs), len(found))
    return AuditResult(len(runs), tuple(sorted(found, key=lambda use: (use.file, use.line))))


def audited(unit: AuditedRuns) -> list[tuple[str, int, str]]:
    """What the runs of a unit use, in a fresh process."""
    task = {"runs": list(unit.runs), "transport": unit.transport.value, "plans": dict(unit.plans)}
    child = subprocess.run(
        [sys.executable, "-m", "scenarios.auditing"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        raise RuntimeError(f"the process for audited runs failed:\n{child.stderr.strip()}")
    return [(file, line, sentence) for file, line, sentence in json.loads(child.stdout)]


# In the fresh process ----------------------------------------------------------------------------------------------


def _audit(task: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    from scenarios.set_order import install  # noqa: PLC0415  before what is audited is imported
    from scenarios.testing.entropy import Audit  # noqa: PLC0415

    audit = Audit([str(_ROOT / name) for name in _UNDER_TEST])
    install(_UNDER_TEST, lambda file, line: audit.note(file, line, "iteration over a set of plain objects", "order"))
    from scenarios.model import TransportKind  # noqa: PLC0415
    from scenarios.plan import parse_plan  # noqa: PLC0415
    from scenarios.runner import run_plan, run_scenario  # noqa: PLC0415

    transport = TransportKind(task["transport"])
    plans = {name: parse_plan(text, name) for name, text in task["plans"].items()}
    for name, seed in task["runs"]:
        with audit.listening():
            if name in plans:
                run_plan(plans[name], seed, transport=transport)
            else:
                run_scenario(name, seed, transport=transport)
    return [(str(Path(use.file).relative_to(_ROOT)), use.line, use.sentence) for use in audit.uses]


if __name__ == "__main__":
    json.dump(_audit(json.load(sys.stdin)), sys.stdout)
