"""Seeds to find each planted defect, under each policy of schedules, side by side.

    .venv/bin/python benchmarks/schedules.py --seeds 200

Every defect of clients of ledgers that runs show is planted into the same plan, in which a writer meets two recoveries and a
bookie crashes, but no message is aimed at. Each seed is played under each policy, so that the network's chances are the same for
all. A seed finds a defect if a clause breaks that the defect is known by.

Printed, for each defect and policy: how many of the seeds find it, the interval of that rate (Wilson, 95 %), and the median of
seeds to find it, which is the median of the geometric distribution with this rate.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from scenarios.mutants import MUTANTS, RUN_MUTANTS
from scenarios.mutants.bookies import BOOKIE_MUTANTS
from scenarios.mutants.log_compaction import LOG_COMPACTION_MUTANTS
from scenarios.mutants.log_groups import LOG_GROUP_MUTANTS
from scenarios.mutants.logs import LOG_MUTANTS
from scenarios.plan import Plan, parse_plan
from scenarios.plan.schedule import DelaySchedule, PctSchedule, PlanSchedule, UniformSchedule
from scenarios.runner import run_plan
from simbookie.worker_processes import default_processes, worker_processes

POLICIES: Final[dict[str, PlanSchedule | None]] = {
    "none": None,
    "uniform": UniformSchedule(),
    "pct 3": PctSchedule(3),
    "delay 2": DelaySchedule(2),
}
PLAN: Final = """
plan race
expect anything

cluster 4 3/3/2

client writer
  create a
  append a 12 window=4
  close a

client recoverer
  open a recover attempts=3
  read a

client rival
  open a recover attempts=3
  read a

when APP_ACK actor=writer entry=3 maybe: start recoverer
when APP_ACK actor=writer entry=3 maybe after=0.002s: start rival
when APP_ACK actor=writer entry=1 maybe: crash a@0 mode=power-loss
"""
_Z: Final = 1.959964


@dataclass(frozen=True, slots=True)
class Cell:
    """One defect under one policy."""

    mutant: str
    policy: str
    seeds: int


@dataclass(frozen=True, slots=True)
class Found:
    """In how many of the seeds a defect was found, and what that took."""

    found: int
    seeds: int
    cpu_seconds: float

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of the rate, at 95 %."""
        return wilson(self.found, self.seeds)

    @property
    def median_seeds(self) -> int | None:
        """How many seeds find it in half of the cases; None if none did."""
        if not self.found:
            return None
        rate = self.found / self.seeds
        return 1 if rate >= 0.5 else math.ceil(math.log(0.5) / math.log(1.0 - rate))


def wilson(found: int, trials: int) -> tuple[float, float]:
    """The interval of the rate behind ``found`` of ``trials``, at 95 %."""
    rate, share = found / trials, _Z * _Z / trials
    middle = (rate + share / 2) / (1 + share)
    half = _Z / (1 + share) * math.sqrt(rate * (1 - rate) / trials + share / (4 * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def measure(cell: Cell) -> Found:
    """Play all seeds of a cell."""
    plan: Plan = replace(parse_plan(PLAN), schedule=POLICIES[cell.policy])
    clauses = set(MUTANTS[cell.mutant].clauses)
    started, found = time.process_time(), 0
    for seed in range(cell.seeds):
        broken = {violation.clause for violation in run_plan(plan, seed, mutant=cell.mutant).violations}
        found += not broken.isdisjoint(clauses)
    return Found(found, cell.seeds, time.process_time() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--processes", type=int, default=default_processes())
    parser.add_argument("--defect", action="append", help="a defect; may be repeated; all of them")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args()
    others = {mutant.name for mutant in (*LOG_MUTANTS, *LOG_GROUP_MUTANTS, *LOG_COMPACTION_MUTANTS, *BOOKIE_MUTANTS)}
    defects = options.defect or [name for name in RUN_MUTANTS if name not in others]
    cells = [Cell(name, policy, options.seeds) for name in defects for policy in POLICIES]
    results: dict[Cell, Found] = {}
    with worker_processes(options.processes, measure) as hand_out:
        for index, found in hand_out(cells):
            results[cells[index]] = found
            print(f"{len(results)}/{len(cells)}", end="\r", file=sys.stderr)
    rows = ["| defect | " + " | ".join(POLICIES) + " |", "| --- |" + " --- |" * len(POLICIES)]
    for mutant in dict.fromkeys(cell.mutant for cell in cells):
        shown = [_shown(results[Cell(mutant, policy, options.seeds)]) for policy in POLICIES]
        rows.append(f"| `{mutant}` | " + " | ".join(shown) + " |")
    per_run = {
        policy: sum(found.cpu_seconds for cell, found in results.items() if cell.policy == policy)
        / sum(found.seeds for cell, found in results.items() if cell.policy == policy)
        for policy in POLICIES
    }
    rows.append("| CPU ms a run | " + " | ".join(f"{1000 * per_run[policy]:.1f}" for policy in POLICIES) + " |")
    print("\n".join(rows))
    if options.json is not None:
        told = [
            {
                "defect": cell.mutant,
                "policy": cell.policy,
                "seeds": found.seeds,
                "found": found.found,
                "cpu_seconds": round(found.cpu_seconds, 3),
            }
            for cell, found in results.items()
        ]
        options.json.write_text(json.dumps(told, indent=1), encoding="utf-8")


def _shown(found: Found) -> str:
    low, high = found.interval
    median = found.median_seeds
    seeds = "-" if median is None else str(median)
    return f"{found.found} ({100 * low:.0f}-{100 * high:.0f} %), {seeds}"


if __name__ == "__main__":
    main()
