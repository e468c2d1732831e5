"""The help texts of ``bk-chaos``: what each command does, examples, exit codes."""

from __future__ import annotations

__all__ = [
    "DETERMINISM_HELP",
    "EXPLORE_HELP",
    "LIST_HELP",
    "MUTANTS_HELP",
    "REPLAY_HELP",
    "RUN_HELP",
    "SHOW_HELP",
    "SWEEP_HELP",
]

_EXIT_CODES = "Exit codes: 0 all is well; 1 {found}; 2 the input cannot be used; 3 a run came to no verdict."

LIST_HELP = """List the scenarios, the worlds of machines and the defects that can be planted.

\b
Examples:
  bk-chaos list
  bk-chaos list --json

\b
Exit codes: 0.
With --json: {"scenarios": [{"name", "summary", "expected"}], "worlds": [{"name", "summary"}],
"mutants": [{"name", "summary", "invariants", "clauses", "world", "in_runs"}]}.
"""

RUN_HELP = f"""Run one scenario with one seed, and judge it.

The same scenario, seed, defect and transport make the same run, bit for bit, wherever and whenever. With --transport bytes,
client and bookies use the shipped TCP transport and server over simulated TCP; with objects, the default, runs are faster.

\b
Examples:
  bk-chaos run dead-writer --seed 7
  bk-chaos run dead-writer --seed 7 --record histories
  bk-chaos run dead-writer --seed 7 --transport bytes
  bk-chaos run lost-fence --mutant recovery-reads-do-not-fence --timeline

\b
{_EXIT_CODES.format(found="an invariant was broken")}
With --json: {{"scenario", "seed", "transport", "digest", "events", "simulated_seconds", "wall_seconds", "verdict",
"violations": [...]}}.
"""

REPLAY_HELP = f"""Run again what a history recorded, and compare event by event.

\b
Examples:
  bk-chaos replay histories/dead-writer-7.bkh
  bk-chaos replay histories/dead-writer-7.bkh --json

\b
{_EXIT_CODES.format(found="the runs differ, or an invariant was broken (again)")}
With --json: what run prints, and {{"recorded_digest", "same", "difference"}}.
"""

SHOW_HELP = f"""Judge a recorded history without running anything, and show it as a timeline.

The timeline tells the violation that matters most, or the end of the ledger where there is none.

\b
Examples:
  bk-chaos show histories/lost-fence-recovery-reads-do-not-fence-0.bkh
  bk-chaos show histories/dead-writer-7.bkh --invariant NoLacTruncation --width 160
  bk-chaos show histories/dead-writer-7.bkh --json

\b
{_EXIT_CODES.format(found="an invariant was broken")}
With --json: {{"scenario", "seed", "mutant", "digest", "events", "simulated_seconds", "verdict", "violations": [...],
"checked": {{invariant: how often it had something to judge}}}}.
"""

SWEEP_HELP = f"""Run scenarios with many seeds, on all processors.

\b
Examples:
  bk-chaos sweep --seeds 1000
  bk-chaos sweep --seeds 200 --first-seed 5000 --scenario dead-writer --scenario zombie-writer
  bk-chaos sweep --seeds 500 --record histories --failing-only
  bk-chaos sweep --seeds 50 --mutant recovery-reads-do-not-fence --stop-at-first --json

\b
{_EXIT_CODES.format(found="an invariant was broken")}
With --json: {{"seeds", "scenarios", "violations", "unknown", "events", "events_per_second", "simulated_seconds_per_second",
"seeds_per_cpu_hour", "failing": [{{"scenario", "seed", "invariant"}}], ...}}.
"""

MUTANTS_HELP = f"""Plant known defects, one at a time, and see whether the invariants give them away.

\b
Examples:
  bk-chaos mutants
  bk-chaos mutants --seeds 500 --mutant recovery-starts-below-last-fragment --json

\b
{_EXIT_CODES.format(found="a defect was not caught")}
With --json: {{"mutants": [{{"name", "caught", "invariant", "clause", "seeds_to_find", "cpu_seconds", "shrunk_steps"}}]}}.
"""

DETERMINISM_HELP = f"""Make every run three times, once in a process that hashes strings differently, and compare.

\b
Examples:
  bk-chaos determinism --seeds 20
  bk-chaos determinism --seeds 100 --scenario dead-writer --json

\b
{_EXIT_CODES.format(found="a run did not come out the same")}
With --json: {{"seeds", "runs", "diverged": [{{"scenario", "seed", "where", "difference"}}]}}.
"""

EXPLORE_HELP = """Search worlds of protocol machines for a schedule that breaks a clause.

A world has the machines of one writer and some recoveries, bookies, and a network that may do anything; no shell, wire, loop or
clock. One that is prepared is searched through every order in which requests arrive and the store acts; any other is walked at
random, with crashes, losses and repetitions. What breaks a clause is shown as a schedule of which no move can be left out.

\b
Examples:
  bk-chaos explore
  bk-chaos explore closing-writer changing-writer --answers-wait
  bk-chaos explore rivals-3-3-2 storage-3-3-2 --walks 5000 --seed 1000
  bk-chaos explore --mutant acks-during-ensemble-change --walks 5000
  bk-chaos explore add-under-way --mutant recovery-reads-do-not-fence --json

\b
Exit codes: 0 all is well; 1 a clause was broken; 2 the input cannot be used; 3 a search met its bounds and found nothing.
With --json: {"seed", "mutant", "states", "seconds", "states_per_second", "depth", "broken", "worlds": [{"world", "how", "states",
"depth", "states_per_second", "whole", "ends", "broken": {"invariant", "clause", "witness", "seed", "schedule", "story"}}]}.
"""
