"""How fast simulated runs are, what recording and checking cost of them, and event loops of other simulators beside ours.

    .venv/bin/python -m benchmarks.simulator --seeds 20 --rounds 3 --json

* *walks*: random walks of protocol machines alone, in an hour of CPU, over every world that is walked (80 moves each).
* *events* and *seeds*: those of runs with recording and checker, in a second and an hour of CPU, for scenarios and swarms; a
  seed counts once for each scenario. *swept* ones are those of a sweep: judged, and packed only if they are to be kept.
* *unjudged* and *unrecorded*: the same runs of scenarios without checker and situations, and without writing events down. The
  cost is in percent of the bare run, to which the wrappers around the seams belong: scenarios go by what they tell.
* *idle*: simulated seconds in a second of CPU, of a cluster with a writer and a reader that do nothing for most of an hour.
* *messages*: one asyncio program of tasks, queues and sleeps on our loop, on asyncio's, and on those of simloop, simloom and
  seedloop, each in a process of its own. They need Python 3.12: ``--install-peers`` makes ``build/peers`` with them and this
  package by uv; what is not there is said.

CPU time only, because other programs make a machine slow; contenders take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring import Result, machine, report
from benchmarks.simulator_peers import LOOPS
from scenarios.ending import Witnesses
from scenarios.exploration import Bounds, explore_world
from scenarios.history import Event, HistoryWriter
from scenarios.library import SCENARIOS
from scenarios.machines.worlds import WORLDS
from scenarios.plan import parse_plan
from scenarios.plan.named import DRAWN
from scenarios.runner import run_plan, run_scenario

ROOT: Final = Path(__file__).resolve().parents[1]
PEERS: Final = ROOT / "build" / "peers" / "bin" / "python"
PEER_PACKAGES: Final = ("simloop", "simloom", "seedloop")
IDLE_S: Final = 3500
IDLE: Final = f"""
plan idle
summary a writer and a reader that do nothing for most of an hour
expect safe
patience 7200s

cluster 3 3/3/2

client writer
  create a
  append a 10
  sleep {IDLE_S}s
  append a 10
  close a

client reader
  open a
  tail a
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="of every scenario, and four times as many swarms")
    parser.add_argument("--walks", type=int, default=200, help="in every world")
    parser.add_argument("--rounds", type=int, default=3, help="of each contender")
    parser.add_argument("--install-peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.install_peers:
        install_peers()
    results = [
        walks(options.walks),
        *costs(options.seeds, options.rounds),
        *swarms(4 * options.seeds),
        idle(),
        *beside_peers(options.rounds),
    ]
    report(results, machine(), as_json=options.json)


# T1 and T2 -----------------------------------------------------------------------------------------------------------


def walks(count: int) -> Result:
    """Walks of machines in an hour of CPU."""
    worlds = [world for world in WORLDS.values() if world.prepare is None]
    started = time.process_time()
    for world in worlds:
        found = explore_world(world, Bounds(walks=count))
        assert found.broken is None, f"{world.name}: {found.broken}"
    cpu_s = time.process_time() - started
    return told(
        "walks", {"worlds": len(worlds), "walks": count, "moves": 80}, count * len(worlds) / cpu_s * 3600, "/CPU-h"
    )


def costs(seeds: int, rounds: int) -> list[Result]:
    """Events and seeds of scenarios, and what recording and checking take; in turn, so that all meet the same machine."""
    modes: dict[str, Callable[[], Any]] = {
        "whole": nullcontext,
        "swept": nullcontext,
        "unjudged": unjudged,
        "unrecorded": unrecorded,
    }
    cpu_s: dict[str, list[float]] = {mode: [] for mode in modes}
    events = 0
    for number in range(rounds + 1):
        simulated: dict[str, float] = {}
        for mode in [*list(modes)[number % len(modes) :], *list(modes)[: number % len(modes)]]:
            started = time.process_time()
            with modes[mode]():
                runs = [
                    run_scenario(name, seed, with_digest=mode != "swept") for seed in range(seeds) for name in SCENARIOS
                ]
            taken = time.process_time() - started
            if number:
                cpu_s[mode].append(taken)
            simulated[mode] = sum(run.simulated_seconds for run in runs)
            if mode == "whole":
                events = sum(run.events for run in runs)
                assert all(run.verdict != "violated" for run in runs)
        assert len(set(simulated.values())) == 1, "the same runs, watched or not"
    made = seeds * len(SCENARIOS)
    params = {"runs": made, "of": "scenarios"}
    whole, swept, unwatched, bare = (statistics.median(cpu_s[mode]) for mode in modes)

    def percent(more: str, less: str) -> float:
        return 100 * statistics.median(a / b - 1 for a, b in zip(cpu_s[more], cpu_s[less], strict=True))

    return [
        told("events", params, events / whole, "/CPU-s"),
        told("seeds", params, made / whole * 3600, "/CPU-h"),
        told("events", {**params, "of": "swept scenarios"}, events / swept, "/CPU-s"),
        told("seeds", {**params, "of": "swept scenarios"}, made / swept * 3600, "/CPU-h"),
        told("events", {**params, "without": "checker"}, events / unwatched, "/CPU-s"),
        told("events", {**params, "without": "recording and checker"}, events / bare, "/CPU-s"),
        told("cost", {**params, "of": "checker and situations"}, percent("whole", "unjudged"), "%"),
        told("cost", {**params, "of": "recording"}, percent("unjudged", "unrecorded"), "%"),
        told("cost", {**params, "of": "both"}, percent("whole", "unrecorded"), "%"),
        told("cost", {**params, "of": "both in a sweep"}, percent("swept", "unrecorded"), "%"),
    ]


def swarms(seeds: int) -> list[Result]:
    """Events and seeds of what is drawn."""
    started = time.process_time()
    runs = [run_scenario(name, seed) for seed in range(seeds) for name in DRAWN]
    cpu_s = time.process_time() - started
    params = {"runs": len(runs), "of": "swarms"}
    return [
        told("events", params, sum(run.events for run in runs) / cpu_s, "/CPU-s"),
        told("seeds", params, len(runs) / cpu_s * 3600, "/CPU-h"),
    ]


def idle() -> Result:
    """Simulated seconds in a second of CPU while nothing is to do."""
    plan = parse_plan(IDLE, "idle")
    started = time.process_time()
    run = run_plan(plan, 0)
    cpu_s = time.process_time() - started
    assert (run.verdict, run.simulated_seconds > IDLE_S) == ("ok", True), run.problem or run.violations
    return told(
        "idle",
        {"simulated_s": round(run.simulated_seconds), "events": run.events},
        run.simulated_seconds / cpu_s,
        "s/s",
    )


@contextmanager
def unjudged() -> Iterator[None]:
    """Runs without witnesses in this block."""
    make = Witnesses.__init__

    def alone(self: Witnesses, history: HistoryWriter) -> None:
        make(self, history)
        history.readers.clear()

    Witnesses.__init__ = alone  # type: ignore[method-assign]
    try:
        yield
    finally:
        Witnesses.__init__ = make  # type: ignore[method-assign]


@contextmanager
def unrecorded() -> Iterator[None]:
    """Runs whose events are neither packed, hashed nor judged in this block; scenarios go by them, so they are told."""
    append = HistoryWriter.append

    def count(self: HistoryWriter, kind: str, actor: str, ledger: int, fields: dict[str, Any]) -> None:
        event = Event(self.events, 0, actor, kind, ledger, fields)
        self.events += 1
        self.tell(event)

    HistoryWriter.append = count  # type: ignore[method-assign]
    try:
        with unjudged():
            yield
    finally:
        HistoryWriter.append = append  # type: ignore[method-assign]


# Peers ---------------------------------------------------------------------------------------------------------------


def install_peers() -> None:
    """Make ``build/peers`` with this package and each peer that can be installed; the others are said."""
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--clear", "--python", "3.12", str(PEERS.parents[1])], cwd=ROOT, check=True)
    install = [*uv, "pip", "install", "--python", str(PEERS)]
    subprocess.run([*install, "--editable", ".[sim]"], cwd=ROOT, check=True)
    for name in PEER_PACKAGES:
        if subprocess.run([*install, name], cwd=ROOT, check=False).returncode != 0:
            print(f"{name} cannot be installed", file=sys.stderr)


def beside_peers(rounds: int) -> list[Result]:
    """Messages in a second of CPU, beside each loop that is there."""
    if not PEERS.exists():
        print("peers are left out: --install-peers makes build/peers", file=sys.stderr)
        return []
    taken: dict[str, list[float]] = {}
    python = ""
    for number in range(rounds):
        names = list(LOOPS)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            child = subprocess.run(
                [str(PEERS), "-m", "benchmarks.simulator_peers", name],
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                capture_output=True,
                text=True,
                check=False,
            )
            if child.returncode != 0:
                reason = (child.stderr.strip().splitlines() or ["no reason given"])[-1]
                print(f"{name} is left out: {reason}", file=sys.stderr)
                continue
            figures = json.loads(child.stdout)
            python = figures["python"]
            taken.setdefault(name, []).append(figures["messages"] / figures["cpu_s"])
    if "ours" not in taken:
        return []
    ours = statistics.median(taken["ours"])
    return [
        told("messages", {"python": python}, ours, "/CPU-s", name, statistics.median(taken[name]))
        for name in taken
        if name != "ours"
    ]


def told(
    name: str,
    params: Mapping[str, Any],
    value: float,
    unit: str,
    reference: str | None = None,
    other: float | None = None,
) -> Result:
    """One result; there is more of everything but of costs."""
    return {
        "name": name,
        "params": dict(params),
        "value": round(value, 1),
        "unit": unit,
        "reference": reference,
        "reference_value": None if other is None else round(other, 1),
        "ratio": None if other is None else round(value / other, 3),
        "foreign": None,
    }


if __name__ == "__main__":
    main()
