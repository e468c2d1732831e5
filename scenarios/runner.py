"""Runs one scenario with one seed, records its history and checks it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bkclient import __version__
from scenarios.conditions import Conditions, draw_conditions, draw_tcp
from scenarios.ending import RunEnding, Witnesses, ending_of, history_name
from scenarios.history import HistoryWriter, Kind
from scenarios.library import SCENARIOS
from scenarios.model import RunResult, Scenario, TransportKind
from scenarios.plan import Plan, print_plan
from scenarios.plan.named import plan_named
from scenarios.plan.schedule import PlanSchedule, late_turns, strand_lines
from scenarios.playing import scenario_of
from scenarios.recording.recorders import Recorder
from scenarios.stage import Stage
from simbookie.collector_off import collector_off
from simbookie.world.hosts import World

if TYPE_CHECKING:
    from scenarios.mutants import Mutant

__all__ = ["run_plan", "run_scenario"]

# What simulated bookies warn of is a part of the run: where nobody asked for logs, Python would write it between the results.
logging.getLogger("simbookie").addHandler(logging.NullHandler())


def run_scenario(
    name: str,
    seed: int,
    *,
    mutant: str | None = None,
    record: Path | None = None,
    transport: TransportKind = TransportKind.OBJECTS,
    conditions: Conditions | None = None,
    schedule: PlanSchedule | None = None,
    with_digest: bool = True,
) -> RunResult:
    """Run a scenario or a plan by its name; with ``record``, a folder, keep its history there.

    Everything that happens depends on ``name``, ``seed``, ``mutant`` and ``transport`` alone, unless ``conditions`` are given
    instead of those that are drawn. A ``schedule`` takes the place of a plan's own. Without ``with_digest`` a run that is not
    kept has no digest, and takes a twentieth less.

    ``KeyError`` for an unknown scenario or mutant, ``ValueError`` for a schedule of a scenario that is no plan; nothing that
    happens in the run is raised.
    """
    if name not in SCENARIOS and conditions is None:
        plan = plan_named(name, seed)
        if schedule is not None:
            plan = replace(plan, schedule=schedule)
        return run_plan(plan, seed, mutant=mutant, record=record, transport=transport, with_digest=with_digest)
    if schedule is not None:
        raise ValueError(f"{name} is no plan, and has no schedule")
    scenario = SCENARIOS[name]
    if conditions is None:
        conditions = (scenario.draw or draw_conditions)(seed)
        if transport is TransportKind.BYTES:
            conditions = replace(conditions, tcp=draw_tcp(seed))
    with collector_off():  # until nothing refers to the run any more: what it meets before, it looks at in vain
        return _run(scenario, seed, mutant, record, transport, conditions, with_digest=with_digest)


def run_plan(
    plan: Plan,
    seed: int,
    *,
    mutant: str | None = None,
    record: Path | None = None,
    transport: TransportKind = TransportKind.OBJECTS,
    with_digest: bool = True,
) -> RunResult:
    """Run a plan, over bytes if ``transport`` or the plan says so; with ``record``, a folder, keep its history there.

    Everything that happens depends on the arguments alone, and the history's header holds them all. ``with_digest`` is as in
    :func:`run_scenario`. ``KeyError`` for an unknown mutant; nothing that happens in the run is raised.
    """
    if transport is TransportKind.BYTES:
        plan = replace(plan, cluster=plan.cluster.over(transport))
    scenario = scenario_of(plan)
    more = {} if record is None else {"plan": print_plan(plan, full=True)}
    with collector_off():  # as above
        return _run(
            *(scenario, seed, mutant, record, plan.cluster.transport, plan.cluster.conditions(), more),
            with_digest=with_digest,
        )


def _run(
    scenario: Scenario,
    seed: int,
    mutant: str | None,
    record: Path | None,
    transport: TransportKind,
    conditions: Conditions,
    more_header: Mapping[str, Any] = MappingProxyType({}),
    *,
    with_digest: bool,
) -> RunResult:
    planted = _mutant(mutant) if mutant else None
    path = None if record is None else record / history_name(scenario.name, seed, mutant, transport)
    header: dict[str, Any] = {}
    if path is not None:  # otherwise nobody reads it
        header = {
            "scenario": scenario.name,
            "seed": seed,
            "mutant": mutant or "",
            "transport": transport.value,
            "package_version": __version__,
            **conditions.as_header(),
            **more_header,
        }
    started = time.perf_counter()
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
        history = HistoryWriter(header, world.clock_us, path, with_digest=with_digest)
        witnesses = Witnesses(history)
        stage = Stage(world, Recorder(history), conditions, planted.wrap_transport if planted else None)

        async def play() -> None:
            await stage.start_bookies()
            await scenario.play(stage)

        try:
            how = _ended(lambda: world.run(play), history)
        except BaseException:
            history.abandon()
            raise
        simulated_seconds = world.loop.time()
        history.record(Kind.RUN_END, "run", completed=how.completed)
        choices = stage.schedule.choices if stage.schedule is not None else {}
        history.close(choices=strand_lines(late_turns(choices)))
    judgement = witnesses.judge(how, scenario.meets)
    return RunResult(
        scenario=scenario.name,
        seed=seed,
        digest=history.digest,
        events=history.events,
        simulated_seconds=simulated_seconds,
        wall_seconds=time.perf_counter() - started,
        verdict=judgement.verdict,
        violations=judgement.violations,
        problem=judgement.problem,
        mutant=mutant or "",
        path="" if path is None else str(path),
        transport=transport,
        met=judgement.met,
        missed=judgement.missed,
        choices=choices,
    )


def _ended(run: Callable[[], None], history: HistoryWriter) -> RunEnding:
    try:
        run()
    except Exception as error:  # noqa: BLE001 - whatever a scenario or a client raises ends no sweep
        return ending_of(error, history.events)
    return RunEnding()


def _mutant(name: str) -> Mutant:
    from scenarios.mutants import MUTANTS  # noqa: PLC0415  most runs have none planted

    return MUTANTS[name]
