"""``bk-chaos run``, ``replay`` and ``show``: one run, with its verdict."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.checker import INVARIANTS, OnlineChecker
from scenarios.cli_options import HistoryFile, Json, MutantName, Transport, check_names, check_writable, exit_codes
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
    terminal_width,
)
from scenarios.history import Event, History, HistoryError, HistoryWriter
from scenarios.model import RunResult, TransportKind, Violation
from scenarios.runner import run_scenario

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("run", help=_RUN_HELP)(run)
    app.command("replay", help=_REPLAY_HELP)(replay)
    app.command("show", help=_SHOW_HELP)(show)


_RUN_HELP: Final = f"""Run one scenario with one seed, and judge it.

The same scenario, seed, defect and transport make the same run, bit for bit, wherever and whenever. With --transport bytes,
client and bookies use the shipped TCP transport and server over simulated TCP; with objects, the default, runs are faster.

\b
Examples:
  bk-chaos run dead-writer --seed 7
  bk-chaos run dead-writer --seed 7 --record histories
  bk-chaos run dead-writer --seed 7 --transport bytes
  bk-chaos run lost-fence --mutant recovery-reads-do-not-fence --timeline

\b
{exit_codes(found="an invariant was broken")}
With --json: {{"scenario", "seed", "transport", "digest", "events", "simulated_seconds", "wall_seconds", "verdict",
"violations": [...]}}.
"""


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
    check_names([name], mutant)
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
    from scenarios.determinism import first_difference  # noqa: PLC0415  needed here only

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


_SHOW_HELP: Final = f"""Judge a recorded history without running anything, and show it as a timeline.

The timeline tells the violation that matters most, or the end of the ledger where there is none.

\b
Examples:
  bk-chaos show histories/lost-fence-recovery-reads-do-not-fence-0.bkh
  bk-chaos show histories/dead-writer-7.bkh --invariant NoLacTruncation --width 160
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


# Helpers -----------------------------------------------------------------------------------------------------------


def _made(name: str, seed: int, mutant: str | None, record: Path | None, transport: TransportKind) -> RunResult:
    check_writable(record)
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
    check_names([name], mutant or None)
    transport = header.get("transport", TransportKind.OBJECTS.value)  # there was no other one once
    if transport not in set(TransportKind):
        fail(f"{history.path}: its header names no transport that this version knows")
    return name, seed, mutant or None, TransportKind(transport)


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
