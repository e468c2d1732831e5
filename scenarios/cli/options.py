"""Options that several commands of ``bk-chaos`` share, and checks of their values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.cli.completion import complete_mutant, complete_scenario
from scenarios.cli.output import fail, known
from scenarios.library import SCENARIOS
from scenarios.model import Tier, TransportKind
from scenarios.plan.errors import PlanError
from scenarios.plan.named import plan_names
from scenarios.plan.schedule import PlanSchedule, parse_schedule

__all__ = [
    "AnyTransport",
    "FirstSeed",
    "FixedFirstSeed",
    "HistoryFile",
    "HtmlFile",
    "Json",
    "MutantName",
    "Processes",
    "Scenarios",
    "ScheduleWord",
    "Seeds",
    "Transport",
    "check_names",
    "check_writable",
    "chosen_scenarios",
    "exit_codes",
    "first_seed_of_today",
    "known_in_runs",
    "schedule_for",
]

#: Seeds between those of two days that follow each other.
_SEEDS_A_DAY: Final = 1_000_000

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds.")]
FirstSeed = Annotated[
    int | None,
    typer.Option(min=0, help="The first seed.  [default: another one each day]", show_default=False),
]
FixedFirstSeed = Annotated[int, typer.Option("--first-seed", min=0, help="The first seed.")]
Scenarios = Annotated[
    list[str] | None,
    typer.Option(
        "--scenario",
        help="A scenario, a plan or a file with one; may be repeated.  [default: all scenarios]",
        show_default=False,
        autocompletion=complete_scenario,
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Worker processes.  [default: one for each processor]", show_default=False),
]
MutantName = Annotated[
    str | None,
    typer.Option(
        "--mutant",
        help="Plant this known defect.",
        show_default=False,
        autocompletion=complete_mutant,
    ),
]
Transport = Annotated[
    TransportKind,
    typer.Option("--transport", help="What clients and bookies exchange: objects, or bytes over simulated TCP."),
]
AnyTransport = Annotated[
    Tier,
    typer.Option(
        "--transport",
        help="What clients and bookies exchange: objects, bytes over simulated TCP, or bytes over TCP between real processes.",
    ),
]
ScheduleWord = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="Let things of plans be late: uniform, pct:DEPTH or delay:DELAYS.",
        show_default=False,
        metavar="POLICY",
    ),
]
HistoryFile = Annotated[Path, typer.Argument(help="A recorded history (.bkh).", metavar="FILE")]
HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", help="Write the run as one page for a browser.", show_default=False, metavar="FILE"),
]


def first_seed_of_today() -> int:
    """The first seed of this day in UTC, from which the day can be read: 20260131000000."""
    return int(datetime.now(UTC).strftime("%Y%m%d")) * _SEEDS_A_DAY


def exit_codes(found: str) -> str:
    """The line of a help text with the exit codes of a command; ``found`` is the meaning of code 1."""
    return f"Exit codes: 0 all is well; 1 {found}; 2 the input cannot be used; 3 a run came to no verdict."


def check_names(scenarios: Sequence[str], mutant: str | None) -> None:
    """Refuse a scenario, a plan or a defect that is unknown."""
    for name in scenarios:
        known(name, [*SCENARIOS, *plan_names()], "scenario")
    if mutant is not None:
        known_in_runs(mutant)


def known_in_runs(mutant: str) -> None:
    """Refuse a defect that is unknown, or that no scenario shows."""
    from scenarios.mutants import MUTANTS, RUN_MUTANTS  # noqa: PLC0415  most runs have none planted

    known(mutant, list(MUTANTS), "mutant")
    if mutant not in RUN_MUTANTS:
        fail(f"no scenario shows {mutant}; bk-chaos explore --mutant {mutant} does")


def chosen_scenarios(scenarios: Sequence[str] | None, mutant: str | None) -> list[str]:
    """The scenarios that were named, each once, or all."""
    chosen = list(dict.fromkeys(scenarios or SCENARIOS))
    check_names(chosen, mutant)
    return chosen


def schedule_for(word: str | None, names: Sequence[str]) -> PlanSchedule | None:
    """The policy that an option names, for plans of these names; ends the program for a scenario that is none."""
    if word is None:
        return None
    for name in names:
        if name in SCENARIOS:
            fail(f"{name} is a scenario that draws what happens while it runs; a schedule is for plans")
    try:
        return parse_schedule(word)
    except PlanError as error:
        fail(f"--schedule: {error}")


def check_writable(folder: Path | None) -> None:
    """Make ``folder``, and refuse one that cannot be made."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"histories cannot be kept in {folder}: {error.strerror}")
