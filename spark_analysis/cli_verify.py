"""What ``bk-verify`` does; loaded when it does it, because Spark takes long to load."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.console import Console

from scenarios.history import History, HistoryError
from simbookie.java import JavaNotFoundError
from spark_analysis.defaults import EXIT_FAILED, EXIT_UNUSABLE, EXIT_VIOLATED
from spark_analysis.invariants import INVARIANTS, select
from spark_analysis.jobs.verify import REJECTED_MAX, NoHistoriesError, Verdict, verify
from spark_analysis.report import rejected_table, verdict_table, witness_list
from spark_analysis.session import open_session
from spark_analysis.source import HistoryFile, find_histories

__all__ = ["list_invariants", "verify_folder"]


def list_invariants(*, as_json: bool) -> None:
    """Print the invariants with their statements."""
    if as_json:
        shown = [
            {"name": invariant.name, "statement": invariant.statement, "clauses": list(invariant.clauses)}
            for invariant in INVARIANTS
        ]
        typer.echo(json.dumps({"invariants": shown}))
        return
    for invariant in INVARIANTS:
        typer.echo(f"{invariant.name:<22} {', '.join(invariant.clauses):<36} {invariant.statement}")


def verify_folder(
    folder: Path | None, *, master: str | None, invariants: Sequence[str], max_witnesses: int, as_json: bool
) -> None:
    """Judge the histories in ``folder``, and print the verdict."""
    if folder is None:
        _fail("name a folder of histories; bk-chaos sweep --record makes one")
    try:
        chosen = select(invariants)
    except ValueError as error:
        _fail(str(error))
    if not folder.exists():
        _fail(f"{folder}: no such folder or file")
    files = find_histories(folder)
    if not files:
        _fail(f"{folder}: holds no history (*.bkh)")
    _refuse_unless_one_is_a_history(files)
    status = Console(stderr=True).status("verifying ...") if sys.stderr.isatty() else nullcontext()
    try:
        with status:
            session = open_session(master, input_bytes=sum(file.size for file in files))
            verdict = verify(session, folder, invariants=chosen, max_witnesses=max_witnesses)
    except (NoHistoriesError, JavaNotFoundError) as error:
        _fail(str(error))
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        _fail(f"Spark failed, and nothing was judged: {reason[0]}", EXIT_FAILED)
    if as_json:
        typer.echo(json.dumps(verdict.as_json()))
    else:
        _print_verdict(verdict)
    if not verdict.is_clean:
        raise typer.Exit(EXIT_VIOLATED)
    if verdict.rejected_files:
        _report_rejected(verdict)
        raise typer.Exit(EXIT_UNUSABLE)


def _fail(message: str, code: int = EXIT_UNUSABLE) -> NoReturn:
    typer.echo(f"bk-verify: {message}", err=True)
    raise typer.Exit(code)


def _print_verdict(verdict: Verdict) -> None:
    console = Console()
    console.print(verdict_table(verdict))
    if verdict.violations:
        console.print(witness_list(verdict))
    if verdict.rejected:
        console.print(rejected_table(verdict))
    console.print(f"{verdict.seconds:.1f} s in Spark")


def _refuse_unless_one_is_a_history(files: Sequence[HistoryFile]) -> None:
    """Look at the beginnings of files until one is a history's: starting Spark takes longer than to see that none is."""
    problems = []
    for file in files:
        try:
            History(Path(file.path))
        except HistoryError as error:
            problems.append(str(error))
        else:
            return
    for problem in problems[1:REJECTED_MAX]:
        typer.echo(f"bk-verify: {problem}", err=True)
    _fail(problems[0])


def _report_rejected(verdict: Verdict) -> None:
    for rejected in verdict.rejected:
        typer.echo(f"bk-verify: {rejected.file}: {rejected.problem}", err=True)
    unnamed = verdict.rejected_files - len(verdict.rejected)
    if unnamed:
        typer.echo(f"bk-verify: {unnamed} more files are not usable", err=True)
