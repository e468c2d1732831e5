"""The output of ``bk-chaos``: one JSON object, or text and tables; a progress bar on a terminal.

The libraries for tables and progress bars are imported when they are used.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import typer

from scenarios.model import RunResult, Tier, Violation

if TYPE_CHECKING:
    from scenarios.determinism import Difference

__all__ = [
    "EXIT_FOUND",
    "EXIT_INTERRUPTED",
    "EXIT_UNDECIDED",
    "EXIT_USAGE",
    "ProgressBar",
    "fail",
    "known",
    "on_terminal",
    "pool_errors",
    "print_difference",
    "print_json",
    "print_lines",
    "print_result",
    "print_table",
    "terminal_width",
    "watched",
]

EXIT_FOUND = 1
EXIT_USAGE = 2
EXIT_UNDECIDED = 3
EXIT_INTERRUPTED = 130

_WIDTH_DEFAULT = 120
_WIDTH_MIN = 80

#: How many names are offered in place of an unknown one.
_OFFERED_MAX: Final = 20


#: What a run over another transport than objects is told to be.
_HOW: Final = {"bytes": " over bytes", "processes": " with processes"}


class ProgressBar(Protocol):
    """Advances a progress bar: so many are done of so many, so many were found; a ``note`` stands beside."""

    def __call__(self, done: int, in_all: int, count: int, note: str = "") -> None:
        """Advance it."""


def fail(message: str) -> NoReturn:
    """Print the error to standard error, and end with the exit code for input that cannot be used."""
    typer.echo(f"bk-chaos: {message}", err=True)
    raise typer.Exit(EXIT_USAGE)


def known(name: str, names: Sequence[str], what: str) -> None:
    """Refuse an unknown name, with the nearest known one."""
    if name in names:
        return
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else _offer(names)
    fail(f"no {what} is called {name}; {hint}")


def print_json(value: Mapping[str, Any]) -> None:
    """Print the JSON object of a command."""
    typer.echo(json.dumps(value, indent=2))


def print_lines(*lines: str) -> None:
    """Print lines of text."""
    for line in lines:
        typer.echo(line)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; long cells are wrapped."""
    from rich.console import Console  # noqa: PLC0415  see the docstring of the module
    from rich.table import Table  # noqa: PLC0415

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    Console(width=None if on_terminal() else 2 * _WIDTH_DEFAULT, highlight=False, markup=False).print(table)


def print_result(result: RunResult) -> None:
    """Print the result of one run as text."""
    planted = f" with the defect {result.mutant}" if result.mutant else ""
    planted += _HOW.get(result.transport.value, "")
    verdict = f"{result.verdict}, but nothing went wrong" if result.is_vacuous else result.verdict
    print_lines(
        f"{result.scenario}, seed {result.seed}{planted}: {verdict}",
        f"  {result.events} events, {_lasted(result)}",
        f"  digest {result.digest}",
    )
    if result.problem:
        print_lines(f"  no verdict: {result.problem}")
    if result.unseen:
        print_lines(f"  not judged, because these bookies do not record: {', '.join(result.unseen)}")
    if result.path:
        print_lines(f"  history {result.path}")
    for violation in result.violations:
        print_lines(_violation_line(violation))


def _lasted(result: RunResult) -> str:
    if result.transport is Tier.PROCESSES:
        return f"{result.simulated_seconds:.3f} seconds, {result.wall_seconds:.3f} s with starting and checking"
    return f"{result.simulated_seconds:.3f} simulated seconds in {result.wall_seconds:.3f} s"


def _violation_line(violation: Violation) -> str:
    return f"  {violation.name}, ledger {violation.ledger}: {violation.witness}"


def print_difference(difference: Difference, one: str, other: str) -> None:
    """Print the first event in which two histories differ as text."""
    from scenarios.determinism import HAS_ENDED, event_line  # noqa: PLC0415  needed here only

    then, now = (HAS_ENDED if event is None else event_line(event) for event in (difference.one, difference.other))
    print_lines(f"  first difference at event {difference.seq}:", f"    {one}: {then}", f"    {other}: {now}")


def _offer(names: Sequence[str]) -> str:
    """The names, or where they are listed if they are many."""
    return "bk-chaos list has them all" if len(names) > _OFFERED_MAX else f"there are: {', '.join(names) or 'none'}"


def on_terminal() -> bool:
    """Whether standard output is a terminal with colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def terminal_width() -> int:
    """The columns of the terminal, or the default width."""
    return max(_WIDTH_MIN, get_terminal_size().columns) if sys.stdout.isatty() else _WIDTH_DEFAULT


@contextmanager
def watched(what: str, found: str) -> Iterator[ProgressBar | None]:
    """Show a progress bar on standard error, and yield the function that advances it; None if there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{{task.fields[found]}} {found}"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, found=0, note="")

        def move(done: int, in_all: int, count: int, note: str = "") -> None:
            bar.update(task, completed=done, total=in_all, found=count, note=note)

        yield move


@contextmanager
def pool_errors() -> Iterator[None]:
    """Turn the death of a worker process into a plain message."""
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415  takes long to import, for sweeps only

    try:
        yield
    except BrokenProcessPool:
        fail("a worker process died, perhaps for lack of memory; try again with fewer --processes")
