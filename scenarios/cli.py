"""``bk-chaos``: run fault scenarios, look at them, sweep seeds, hunt planted defects.

Exit codes of every command: 0 all is well; 1 something was found (a broken invariant, a defect that was not caught, runs that
differ); 2 the input cannot be used (an unknown name, an unreadable history, a wrong option); 3 nothing was found, but a run
came to no verdict, so that it proves nothing. Standard output holds the result, one JSON object with ``--json``; progress, on a
terminal only, and errors go to standard error.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from scenarios.checker import INVARIANTS, OnlineChecker
from scenarios.cli_explore import explore
from scenarios.cli_help import (
    DETERMINISM_HELP,
    EXPLORE_HELP,
    LIST_HELP,
    MUTANTS_HELP,
    REPLAY_HELP,
    RUN_HELP,
    SHOW_HELP,
    SWEEP_HELP,
)
from scenarios.cli_output import (
    EXIT_FOUND,
    EXIT_UNDECIDED,
    fail,
    known,
    on_terminal,
    print_difference,
    print_json,
    print_lines,
    print_result,
    print_table,
    terminal_width,
    watched,
)
from scenarios.determinism import check_determinism, first_difference
from scenarios.history import Event, History, HistoryError, HistoryWriter
from scenarios.library import SCENARIOS
from scenarios.machines.worlds import PREPARED, WORLDS
from scenarios.model import RunResult, TransportKind, Violation
from scenarios.mutants import MUTANTS, RUN_MUTANTS
from scenarios.runner import run_scenario
from scenarios.sweep import SweepResult, hunt_mutants, sweep
from scenarios.timeline import render

__all__ = ["app", "main"]

app = typer.Typer(
    name="bk-chaos",
    help="Fault scenarios for BookKeeper clients: the shipped client in a simulated world, replayable from a seed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="The first seed.")]
Scenarios = Annotated[
    list[str] | None,
    typer.Option("--scenario", help="A scenario; may be repeated.  [default: all]", show_default=False),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Worker processes.  [default: one for each processor]", show_default=False),
]
MutantName = Annotated[str | None, typer.Option("--mutant", help="Plant this known defect.", show_default=False)]
Transport = Annotated[
    TransportKind,
    typer.Option("--transport", help="What clients and bookies exchange: objects, or bytes over simulated TCP."),
]
HistoryFile = Annotated[Path, typer.Argument(help="A recorded history (.bkh).", metavar="FILE")]


def main() -> None:
    """The console script."""
    app()


@app.command("list", help=LIST_HELP)
def list_(*, as_json: Json = False) -> None:
    """Print what there is."""
    if as_json:
        print_json(
            {
                "scenarios": [
                    {"name": scenario.name, "summary": scenario.summary, "expected": scenario.expected}
                    for scenario in SCENARIOS.values()
                ],
                "worlds": [
                    {"name": named.name, "summary": named.summary} for named in (*PREPARED.values(), *WORLDS.values())
                ],
                "mutants": [
                    {
                        "name": mutant.name,
                        "summary": mutant.summary,
                        "invariants": list(mutant.invariants),
                        "clauses": list(mutant.clauses),
                        "world": mutant.world or None,
                        "in_runs": mutant.in_runs,
                    }
                    for mutant in MUTANTS.values()
                ],
            }
        )
        return
    print_table(("scenario", "what happens"), [(found.name, found.summary) for found in SCENARIOS.values()])
    print_lines("")
    print_table(
        ("world of machines", "what is in it"),
        [(named.name, named.summary) for named in (*PREPARED.values(), *WORLDS.values())],
    )
    print_lines("")
    print_table(("defect", "what is wrong"), [(found.name, found.summary) for found in MUTANTS.values()])


@app.command(help=RUN_HELP)
def run(
    name: Annotated[str, typer.Argument(help="The scenario.", metavar="NAME")],
    *,
    seed: Annotated[int, typer.Option(min=0, help="The seed.")] = 0,
    record: Annotated[
        Path | None, typer.Option(help="Keep the history in this folder.", show_default=False, metavar="DIR")
    ] = None,
    mutant: MutantName = None,
    transport: Transport = TransportKind.OBJECTS,
    timeline: Annotated[bool, typer.Option("--timeline", help="Show the run as a timeline.")] = False,
    as_json: Json = False,
) -> None:
    """Make one run."""
    _check_names([name], mutant)
    with tempfile.TemporaryDirectory(prefix="bk-chaos-") as scratch:
        folder = record if record is not None else Path(scratch) if timeline and not as_json else None
        result = _made(name, seed, mutant, folder, transport)
        if as_json:
            print_json(result.as_json())
        else:
            shown = result if record is not None else _without_path(result)
            print_result(shown)
            if timeline:
                print_lines("", _timeline(Path(result.path), result.violations))
    _end(result)


@app.command(help=REPLAY_HELP)
def replay(file: HistoryFile, *, as_json: Json = False) -> None:
    """Make a recorded run again."""
    history, recorded_digest = _whole(file)
    name, seed, mutant, transport = _origin(history)
    with tempfile.TemporaryDirectory(prefix="bk-chaos-") as scratch:
        result = _made(name, seed, mutant, Path(scratch), transport)
        same = result.digest == recorded_digest
        difference = None if same else first_difference(file, Path(result.path))
    result = _without_path(result)
    if as_json:
        shown = None if difference is None else difference.as_json()
        print_json(result.as_json() | {"recorded_digest": recorded_digest, "same": same, "difference": shown})
    else:
        print_result(result)
        if same:
            print_lines("  the same as recorded, event by event")
        else:
            version = history.header.get("package_version", "?")
            print_lines(f"  not what was recorded (by version {version}, digest {recorded_digest})")
            if difference is not None:
                print_difference(difference, "recorded", "now")
    if not same:
        raise typer.Exit(EXIT_FOUND)
    _end(result)


@app.command(help=SHOW_HELP)
def show(
    file: HistoryFile,
    *,
    ledger: Annotated[int | None, typer.Option(help="The ledger to tell.", show_default=False)] = None,
    invariant: Annotated[str | None, typer.Option(help="The broken invariant to tell.", show_default=False)] = None,
    width: Annotated[
        int | None, typer.Option(min=40, help="Columns.  [default: those of the terminal]", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge and show a recorded run."""
    history, digest = _whole(file)
    if invariant is not None:
        known(invariant, list(INVARIANTS), "invariant")
    checker = OnlineChecker()
    last: Event | None = None
    for event in history.events():
        checker.feed(event)
        last = event
    violations = checker.finish()
    if as_json:
        header = history.header
        print_json(
            {
                "scenario": header.get("scenario"),
                "seed": header.get("seed"),
                "mutant": header.get("mutant"),
                "digest": digest,
                "events": checker.events,
                "simulated_seconds": 0.0 if last is None else last.time_us / 1_000_000,
                "verdict": "violated" if violations else "ok",
                "violations": [violation.as_json() for violation in violations],
                "checked": checker.checked,
            }
        )
    else:
        chosen = [
            found for found in violations if invariant in {None, found.invariant} and ledger in {None, found.ledger}
        ]
        print_lines(_timeline(file, chosen, ledger=ledger, width=width))
        for violation in violations:
            print_lines(f"{violation.name}, ledger {violation.ledger}: {violation.witness}")
        if not violations:
            judged = sum(count > 0 for count in checker.checked.values())
            print_lines(f"no violation; {judged} of {len(INVARIANTS)} invariants had something to judge")
    if violations:
        raise typer.Exit(EXIT_FOUND)


@app.command("sweep", help=SWEEP_HELP)
def sweep_(
    *,
    seeds: Seeds = 100,
    first_seed: FirstSeed = 0,
    scenario: Scenarios = None,
    mutant: MutantName = None,
    transport: Transport = TransportKind.OBJECTS,
    record: Annotated[
        Path | None, typer.Option(help="Keep histories in this folder.", show_default=False, metavar="DIR")
    ] = None,
    failing_only: Annotated[
        bool, typer.Option("--failing-only", help="Keep only histories of runs that break an invariant.")
    ] = False,
    stop_at_first: Annotated[
        bool, typer.Option("--stop-at-first", help="Stop at the first run that breaks an invariant.")
    ] = False,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Sweep seeds."""
    chosen = _chosen(scenario, mutant)
    if failing_only and record is None:
        fail("--failing-only says which histories to keep; --record says where")
    _check_writable(record)
    with watched("sweeping", "broken") as progress, _pool_errors():
        result = sweep(
            range(first_seed, first_seed + seeds),
            chosen,
            mutant=mutant,
            record=record,
            failing_only=failing_only,
            processes=processes,
            stop_at_first=stop_at_first,
            transport=transport,
            progress=progress,
        )
    if as_json:
        print_json(result.as_json())
    else:
        _print_sweep(result)
    if result.failing:
        raise typer.Exit(EXIT_FOUND)
    if result.undecided:
        raise typer.Exit(EXIT_UNDECIDED)


@app.command("mutants", help=MUTANTS_HELP)
def mutants_(
    *,
    seeds: Seeds = 200,
    first_seed: FirstSeed = 0,
    mutant: Annotated[
        list[str] | None, typer.Option(help="A defect; may be repeated.  [default: all]", show_default=False)
    ] = None,
    scenario: Scenarios = None,
    transport: Transport = TransportKind.OBJECTS,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Hunt planted defects."""
    chosen = _chosen(scenario, None)
    planted = mutant or list(RUN_MUTANTS)
    for name in planted:
        _known_in_runs(name)
    with watched("hunting", "caught") as progress, _pool_errors():
        hunts = hunt_mutants(
            planted,
            range(first_seed, first_seed + seeds),
            chosen,
            processes=processes,
            transport=transport,
            progress=progress,
        )
    if as_json:
        print_json({"mutants": [hunt.as_json() for hunt in hunts]})
    else:
        print_table(
            ("defect", "caught", "by", "in", "seeds", "CPU s"),
            [
                (
                    hunt.name,
                    "yes" if hunt.caught else "NO",
                    f"{hunt.invariant} ({hunt.clause})" if hunt.caught else "",
                    f"{hunt.scenario} {hunt.seed}" if hunt.caught else "",
                    hunt.seeds_to_find if hunt.caught else f"> {seeds}",
                    f"{hunt.cpu_seconds:.1f}",
                )
                for hunt in hunts
            ],
        )
    if not all(hunt.caught for hunt in hunts):
        raise typer.Exit(EXIT_FOUND)


@app.command(help=DETERMINISM_HELP)
def determinism(
    *,
    seeds: Seeds = 10,
    first_seed: FirstSeed = 0,
    scenario: Scenarios = None,
    mutant: MutantName = None,
    transport: Transport = TransportKind.OBJECTS,
    as_json: Json = False,
) -> None:
    """Check that runs depend on their seed alone."""
    chosen = _chosen(scenario, mutant)
    with watched("repeating", "different") as progress:
        result = check_determinism(
            range(first_seed, first_seed + seeds), chosen, mutant=mutant, transport=transport, progress=progress
        )
    if as_json:
        print_json(result.as_json())
    else:
        print_lines(f"{result.runs} runs of {seeds} seeds, {len(result.diverged)} different")
        for divergence in result.diverged:
            print_lines(f"{divergence.scenario}, seed {divergence.seed}: different in {divergence.where}")
            if divergence.difference is not None:
                print_difference(divergence.difference, "first", "then")
    if result.diverged:
        raise typer.Exit(EXIT_FOUND)


app.command("explore", help=EXPLORE_HELP)(explore)


# Helpers -----------------------------------------------------------------------------------------------------------


def _check_names(scenarios: Sequence[str], mutant: str | None) -> None:
    for name in scenarios:
        known(name, list(SCENARIOS), "scenario")
    if mutant is not None:
        _known_in_runs(mutant)


def _known_in_runs(mutant: str) -> None:
    """Refuse a defect that is unknown, or that no scenario shows."""
    known(mutant, list(MUTANTS), "mutant")
    if mutant not in RUN_MUTANTS:
        fail(f"no scenario shows {mutant}; bk-chaos explore --mutant {mutant} does")


def _chosen(scenarios: Sequence[str] | None, mutant: str | None) -> list[str]:
    chosen = list(dict.fromkeys(scenarios or SCENARIOS))
    _check_names(chosen, mutant)
    return chosen


def _check_writable(folder: Path | None) -> None:
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"histories cannot be kept in {folder}: {error.strerror}")


def _made(name: str, seed: int, mutant: str | None, record: Path | None, transport: TransportKind) -> RunResult:
    _check_writable(record)
    return run_scenario(name, seed, mutant=mutant, record=record, transport=transport)


def _without_path(result: RunResult) -> RunResult:
    """The result without the path of a history that is not kept."""
    return replace(result, path="")


def _end(result: RunResult) -> None:
    if result.violations:
        raise typer.Exit(EXIT_FOUND)
    if result.verdict == "unknown":
        raise typer.Exit(EXIT_UNDECIDED)


def _whole(file: Path) -> tuple[History, str]:
    """The history in ``file`` and the digest of its events, read through once; refused if anything is wrong with it."""
    now = 0
    copy = HistoryWriter({}, lambda: now)
    try:
        history = History(file)
        for event in history.events():
            now = event.time_us
            copy.record(event.kind, event.actor, event.ledger, **event.fields)
    except HistoryError as error:
        fail(str(error))
    except (KeyError, TypeError):
        fail(f"{file}: holds events that this version does not know")
    return history, copy.digest


def _origin(history: History) -> tuple[str, int, str | None, TransportKind]:
    """The scenario, seed, mutant and transport that a history says it came from."""
    header = history.header
    name, seed, mutant = header.get("scenario"), header.get("seed"), header.get("mutant")
    if not isinstance(name, str) or not isinstance(seed, int) or not isinstance(mutant, str | None):
        fail(f"{history.path}: its header names no scenario and seed to run again")
    _check_names([name], mutant or None)
    door = header.get("transport", TransportKind.OBJECTS.value)  # there was no other one once
    if door not in set(TransportKind):
        fail(f"{history.path}: its header names no transport that this version knows")
    return name, seed, mutant or None, TransportKind(door)


def _timeline(
    file: Path, violations: Sequence[Violation], *, ledger: int | None = None, width: int | None = None
) -> str:
    history = History(file)
    rank = {name: i for i, name in enumerate(INVARIANTS)}
    focus = min(violations, key=lambda found: rank.get(found.invariant, len(rank)), default=None)
    text = render(
        history.header,
        history.events(),
        ledger=ledger,
        focus=focus,
        width=terminal_width() if width is None else width,
        color=on_terminal(),
    )
    return text.rstrip("\n")


def _print_sweep(result: SweepResult) -> None:
    figures = result.as_json()
    print_lines(
        f"{result.runs} runs of {result.seeds} seeds in {len(result.scenarios)} scenarios: "
        f"{figures['violations']} violations, {figures['unknown']} without verdict",
        f"  {result.events} events, {figures['events_per_second']:.0f} a second; "
        f"{figures['simulated_seconds_per_second']:.0f} simulated seconds a second; "
        f"{figures['seeds_per_cpu_hour']:.0f} seeds an hour of CPU",
    )
    met = ", ".join(f"{name} {count}" for name, count in sorted(result.met.items()))
    print_lines(f"  runs that met: {met}" if met else "  no run met anything of note")
    for failing in result.failing:
        planted = f" --mutant {result.mutant}" if result.mutant else ""
        planted += f" --transport {result.transport}" if result.transport is not TransportKind.OBJECTS else ""
        print_lines(f"  {failing.invariant}: bk-chaos run {failing.scenario} --seed {failing.seed}{planted} --timeline")
    for scenario, seed, problem in result.undecided:
        print_lines(f"  no verdict: {scenario} --seed {seed}: {problem}")


@contextmanager
def _pool_errors() -> Iterator[None]:
    """Turn the death of a worker process into a plain message."""
    try:
        yield
    except BrokenProcessPool:
        fail("a worker process died, perhaps for lack of memory; try again with fewer --processes")
