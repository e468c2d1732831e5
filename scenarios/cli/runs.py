"""``bk-chaos run``, ``replay`` and ``show``: one run, with its verdict."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.checker import INVARIANTS
from scenarios.cli.completion import complete_invariant, complete_scenario
from scenarios.cli.options import (
    AnyTransport,
    HistoryFile,
    HtmlFile,
    Json,
    MutantName,
    ScheduleWord,
    check_names,
    check_writable,
    exit_codes,
    schedule_for,
)
from scenarios.cli.output import (
    EXIT_FOUND,
    EXIT_UNDECIDED,
    fail,
    known,
    on_terminal,
    print_difference,
    print_json,
    print_lines,
    print_result,
    terminal_width,
)
from scenarios.cli.plan import SUFFIX, read_plan
from scenarios.history import History, HistoryError
from scenarios.library import SCENARIOS
from scenarios.model import RunResult, Tier, TransportKind, Violation
from scenarios.plan import Plan
from scenarios.plan.named import plan_named
from scenarios.runner import run_plan, run_scenario

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("run", help=_RUN_HELP)(run)
    app.command("replay", help=_REPLAY_HELP)(replay)
    app.command("show", help=_SHOW_HELP)(show)


_RUN_HELP: Final = f"""Run one scenario or plan with one seed, and judge it.

NAME is a scenario or a plan of bk-chaos list, or a file with a plan (.scn).

The same scenario, seed, defect and transport make the same run, bit for bit, wherever and whenever. With --transport bytes,
client and bookies use the shipped TCP transport and server over simulated TCP; with objects, the default, runs are faster.

With --transport processes a plan is played in real time: every client and every bookie is a process, they are killed and
stopped by signals, and proxies between them break connections. What happened is judged in the same way, but does not
happen again. A plan that asks for what TCP cannot do is refused.

With --schedule deliveries and processes of a plan are late: uniform, any of them by any number of others; pct:3, by random
priorities, of which two fall; delay:2, two of them. The policy takes the place of the plan's own.

\b
Examples:
  bk-chaos run dead-writer --seed 7
  bk-chaos run dead-writer --seed 7 --record histories
  bk-chaos run dead-writer --seed 7 --transport bytes
  bk-chaos run late-add.scn --timeline
  bk-chaos run zombie-returns --transport processes
  bk-chaos run close-meets-recovery --schedule pct:3
  bk-chaos run lost-fence --mutant recovery-reads-do-not-fence --timeline
  bk-chaos run lost-fence --mutant recovery-reads-do-not-fence --html lost-fence.html

\b
{exit_codes(found="an invariant was broken")}
With --json: {{"scenario", "seed", "transport", "digest", "events", "simulated_seconds", "wall_seconds", "verdict",
"vacuous", "violations": [...], "met": {{situation: how often}}}}.
"""


def run(
    name: Annotated[
        str,
        typer.Argument(
            help="The scenario or plan, or a file with a plan.", metavar="NAME", autocompletion=complete_scenario
        ),
    ],
    *,
    seed: Annotated[int, typer.Option(min=0, help="The seed.")] = 0,
    record: Annotated[
        Path | None, typer.Option(help="Keep the history in this folder.", show_default=False, metavar="DIR")
    ] = None,
    mutant: MutantName = None,
    transport: AnyTransport = Tier.OBJECTS,
    schedule: ScheduleWord = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Show the run as a timeline.")] = False,
    html: HtmlFile = None,
    as_json: Json = False,
) -> None:
    """Make one run."""
    _check_html(html)
    plan = read_plan(Path(name)) if name.endswith(SUFFIX) else None
    check_names([] if plan else [name], mutant)
    policy = schedule_for(schedule, [] if plan else [name])
    if policy is not None:
        plan = replace(plan or plan_named(name, seed), schedule=policy)
    with tempfile.TemporaryDirectory(prefix="bk-chaos-") as scratch:
        is_looked_at = html is not None or (timeline and not as_json)
        folder = record if record is not None else Path(scratch) if is_looked_at else None
        result = _made(plan or name, seed, mutant, folder, transport)
        if as_json:
            print_json(result.as_json())
        else:
            shown = result if record is not None else _without_path(result)
            print_result(shown)
            if timeline:
                print_lines("", _timeline(Path(result.path), result.violations))
        if html is not None:
            _write_page(html, Path(result.path), result.violations, verdict=result.verdict, is_told=not as_json)
    _end(result)


_REPLAY_HELP: Final = f"""Run again what a history recorded, and compare event by event.

\b
Examples:
  bk-chaos replay histories/dead-writer-7.bkh
  bk-chaos replay histories/dead-writer-7.bkh --json

\b
{exit_codes(found="the runs differ, or an invariant was broken (again)")}
With --json: what run prints, and {{"recorded_digest", "same", "difference"}}.
"""


def replay(file: HistoryFile, *, as_json: Json = False) -> None:
    """Make a recorded run again."""
    from scenarios.replaying import replay_history  # noqa: PLC0415  needed here only

    try:
        made = replay_history(file)
    except HistoryError as error:
        fail(str(error))
    digest, result = made.recorded.digest, made.result
    if as_json:
        shown = None if made.difference is None else made.difference.as_json()
        print_json(result.as_json() | {"recorded_digest": digest, "same": made.is_same, "difference": shown})
    else:
        print_result(result)
        if made.is_same:
            print_lines("  the same as recorded, event by event")
        else:
            print_lines(f"  not what was recorded (by version {made.recorded.version or '?'}, digest {digest})")
            if made.difference is not None:
                print_difference(made.difference, "recorded", "now")
    if not made.is_same:
        raise typer.Exit(EXIT_FOUND)
    _end(result)


_SHOW_HELP: Final = f"""Judge a recorded history without running anything, and show it as a timeline.

The timeline tells the violation that matters most, or the end of the ledger where there is none.

\b
Examples:
  bk-chaos show histories/lost-fence-recovery-reads-do-not-fence-0.bkh
  bk-chaos show histories/dead-writer-7.bkh --invariant NoLacTruncation --width 160
  bk-chaos show histories/dead-writer-7.bkh --html dead-writer-7.html
  bk-chaos show histories/dead-writer-7.bkh --json

\b
{exit_codes(found="an invariant was broken")}
With --json: {{"scenario", "seed", "mutant", "digest", "events", "simulated_seconds", "verdict", "violations": [...],
"checked": {{invariant: how often it had something to judge}}}}.
"""


def show(
    file: HistoryFile,
    *,
    ledger: Annotated[int | None, typer.Option(help="The ledger to tell.", show_default=False)] = None,
    invariant: Annotated[
        str | None,
        typer.Option(
            help="The broken invariant to tell.",
            show_default=False,
            autocompletion=complete_invariant,
        ),
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=40, help="Columns.  [default: those of the terminal]", show_default=False)
    ] = None,
    html: HtmlFile = None,
    as_json: Json = False,
) -> None:
    """Judge and show a recorded run."""
    _check_html(html)
    from scenarios.replaying import read_recorded  # noqa: PLC0415  needed here only

    if invariant is not None:
        known(invariant, list(INVARIANTS), "invariant")
    try:
        recorded = read_recorded(file)
    except HistoryError as error:
        fail(str(error))
    violations = recorded.violations
    if as_json:
        header = recorded.history.header
        print_json(
            {
                "scenario": header.get("scenario"),
                "seed": header.get("seed"),
                "mutant": header.get("mutant"),
                "digest": recorded.digest,
                "events": recorded.events,
                "simulated_seconds": recorded.simulated_seconds,
                "verdict": "violated" if violations else "ok",
                "violations": [violation.as_json() for violation in violations],
                "checked": recorded.checked,
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
            judged = sum(count > 0 for count in recorded.checked.values())
            print_lines(f"no violation; {judged} of {len(INVARIANTS)} invariants had something to judge")
    if html is not None:
        _write_page(html, file, violations, ledger=ledger, is_told=not as_json)
    if violations:
        raise typer.Exit(EXIT_FOUND)


# Helpers -----------------------------------------------------------------------------------------------------------


def _made(what: str | Plan, seed: int, mutant: str | None, record: Path | None, transport: Tier) -> RunResult:
    check_writable(record)
    if transport is Tier.PROCESSES:
        return _made_by_processes(what, seed, mutant, record)
    simulated = TransportKind(transport.value)
    if isinstance(what, Plan):
        return run_plan(what, seed, mutant=mutant, record=record, transport=simulated)
    return run_scenario(what, seed, mutant=mutant, record=record, transport=simulated)


def _made_by_processes(what: str | Plan, seed: int, mutant: str | None, record: Path | None) -> RunResult:
    from scenarios.processes import UnsuitablePlanError, run_plan_with_processes  # noqa: PLC0415  few runs have any

    if isinstance(what, str) and what in SCENARIOS:
        fail(f"{what} is a scenario, which needs a simulated world; processes play plans")
    plan = what if isinstance(what, Plan) else plan_named(what, seed)
    try:
        return run_plan_with_processes(plan, seed, mutant=mutant, record=record)
    except UnsuitablePlanError as error:
        fail(str(error))


def _check_html(html: Path | None) -> None:
    """Before anything is run."""
    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        fail(f"{html} cannot be written: {'it is a folder' if html.is_dir() else f'there is no folder {html.parent}'}")


def _write_page(
    html: Path,
    file: Path,
    violations: Sequence[Violation],
    *,
    is_told: bool,
    ledger: int | None = None,
    verdict: str | None = None,
) -> None:
    """Write the page about a history; ends the program if it cannot be."""
    from scenarios.page import PageError, content_of, render_page  # noqa: PLC0415  few runs are looked at so

    history = History(file)
    try:
        content = content_of(history.header, history.events(), violations, ledger=ledger, verdict=verdict)
        html.write_text(render_page(content), encoding="utf-8")
    except PageError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{html} cannot be written: {error.strerror}")
    if is_told:
        print_lines(f"  the run as a page: {html}")


def _without_path(result: RunResult) -> RunResult:
    """The result without the path of a history that is not kept."""
    return replace(result, path="")


def _end(result: RunResult) -> None:
    if result.violations:
        raise typer.Exit(EXIT_FOUND)
    if result.verdict == "unknown":
        raise typer.Exit(EXIT_UNDECIDED)


def _timeline(
    file: Path, violations: Sequence[Violation], *, ledger: int | None = None, width: int | None = None
) -> str:
    from scenarios.timeline import render  # noqa: PLC0415  most runs show none

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
