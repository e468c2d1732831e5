"""How ``bk`` speaks: JSON for programs, lines, tables and progress for people."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bkclient.cli.text import terminal_safe

__all__ = ["Move", "print_json", "print_json_line", "print_lines", "print_note", "print_table", "watched"]

_WIDTH_ELSEWHERE = 240

Move = Callable[[int], None]
"""Moves a progress bar to what is done in all."""


def print_json(value: Mapping[str, Any]) -> None:
    """The one JSON object of a command."""
    typer.echo(json.dumps(value, indent=2))


def print_json_line(value: Mapping[str, Any]) -> None:
    """One of many JSON objects, a line each, passed on at once."""
    typer.echo(json.dumps(value))
    sys.stdout.flush()


def print_lines(*lines: str) -> None:
    """Lines for people."""
    for line in lines:
        typer.echo(terminal_safe(line))


def print_note(line: str) -> None:
    """A line for people about what is being done, on standard error."""
    typer.echo(terminal_safe(line), err=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for people; everything in it is shown, wrapped if need be."""
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(terminal_safe(str(cell)) for cell in row))
    is_watched = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    Console(width=None if is_watched else _WIDTH_ELSEWHERE, highlight=False, markup=False).print(table)


@contextmanager
def watched(what: str, total: int | None, *, is_bytes: bool = False, is_printing: bool = True) -> Iterator[Move]:
    """A progress bar on standard error if that is a terminal; what moves it.

    There is none where the command prints as it goes, unless into a file: what is at the other end of a pipe may show what it
    reads on the same terminal.
    """
    if not sys.stderr.isatty() or (is_printing and not _is_file(sys.stdout)):
        yield lambda _: None
        return
    amount = DownloadColumn() if is_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, io.UnsupportedOperation):
        return False
