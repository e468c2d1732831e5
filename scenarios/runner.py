"""Runs one scenario with one seed, records its history and checks it."""

from __future__ import annotations

import time
import traceback
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bkclient import __version__
from scenarios.checker import OnlineChecker
from scenarios.conditions import Conditions, draw_conditions, draw_tcp
from scenarios.history import HistoryWriter, Kind
from scenarios.library import SCENARIOS
from scenarios.liveness import StuckError
from scenarios.model import RunResult, TransportKind, Violation
from scenarios.recording import Recorder
from scenarios.situations import Situations
from scenarios.stage import Stage
from simbookie.world.errors import WorldError
from simbookie.world.hosts import World

if TYPE_CHECKING:
    from scenarios.mutants import Mutant

__all__ = ["history_name", "run_scenario"]


def history_name(
    scenario: str, seed: int, mutant: str | None = None, transport: TransportKind = TransportKind.OBJECTS
) -> str:
    """The file name of a recorded run."""
    parts = (scenario, mutant, None if transport is TransportKind.OBJECTS else transport.value, str(seed))
    return "-".join(part for part in parts if part) + ".bkh"


def run_scenario(
    name: str,
    seed: int,
    *,
    mutant: str | None = None,
    record: Path | None = None,
    transport: TransportKind = TransportKind.OBJECTS,
    conditions: Conditions | None = None,
) -> RunResult:
    """Run a scenario of the library; with ``record``, a folder, keep its history there.

    Everything that happens depends on ``name``, ``seed``, ``mutant`` and ``transport`` alone, unless ``conditions`` are given
    instead of those that are drawn. ``KeyError`` for an unknown scenario or mutant; nothing that happens in the run is raised.
    """
    scenario = SCENARIOS[name]
    planted = _mutant(mutant) if mutant else None
    if conditions is None:
        conditions = (scenario.draw or draw_conditions)(seed)
        if transport is TransportKind.BYTES:
            conditions = replace(conditions, tcp=draw_tcp(seed))
    path = None if record is None else record / history_name(name, seed, mutant, transport)
    header = {
        "scenario": name,
        "seed": seed,
        "mutant": mutant or "",
        "transport": transport.value,
        "package_version": __version__,
        **conditions.as_header(),
    }
    started = time.perf_counter()
    problem = ""
    stuck: tuple[Violation, ...] = ()
    checker, situations = OnlineChecker(), Situations()
    with (
        World(
            seed,
            network=conditions.network,
            metadata=conditions.metadata,
            limits=conditions.limits,
            tcp=conditions.tcp,
        ) as world,
        planted.applied_to_run() if planted else nullcontext(),
    ):
        history = HistoryWriter(header, world.clock_us, path)
        history.listeners += (checker.feed, situations.feed)
        stage = Stage(world, Recorder(history), conditions, planted.wrap_transport if planted else None)

        async def play() -> None:
            await stage.start_bookies()
            await scenario.play(stage)

        try:
            world.run(play)
        except StuckError as error:
            stuck = (Violation(error.clause, error.ledger_id, error.problem, (history.events,)),)
        except WorldError as error:
            problem = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - whatever a scenario or a client raises proves nothing, and ends no sweep
            problem = _described(error)
        except BaseException:
            history.abandon()
            raise
        simulated_seconds = world.loop.time()
        history.record(Kind.RUN_END, "run", completed=not (problem or stuck))
        history.close()
    violations = (*checker.finish(), *stuck)
    met = {name: count for name, count in sorted(situations.met.items()) if count}
    missing = [name for name in scenario.meets if name not in met]
    if missing and not problem:
        problem = f"the run never met what it is about: {', '.join(missing)}"
    return RunResult(
        scenario=name,
        seed=seed,
        digest=history.digest,
        events=history.events,
        simulated_seconds=simulated_seconds,
        wall_seconds=time.perf_counter() - started,
        verdict="violated" if violations else "unknown" if problem else "ok",
        violations=violations,
        problem=problem,
        mutant=mutant or "",
        path="" if path is None else str(path),
        transport=transport,
        met=met,
    )


def _mutant(name: str) -> Mutant:
    from scenarios.mutants import MUTANTS  # noqa: PLC0415  most runs have none planted

    return MUTANTS[name]


def _described(error: Exception) -> str:
    """What was raised, and where in the program: there is no traceback in a result."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{type(error).__name__}: {error} (raised by {place.name}, line {place.lineno} of {Path(place.filename).name})"
    )
