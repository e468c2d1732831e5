"""What the commands of ``bk-verify`` share: options, the histories to work on, a session, and ends that are not results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console, RenderableType

from scenarios.history import History, HistoryError
from simbookie.java import JavaNotFoundError
from spark_analysis.dataset.layout import DataSetError, is_dataset
from spark_analysis.defaults import EXIT_FAILED, EXIT_UNUSABLE, EXIT_VIOLATED, LOCAL_MASTER
from spark_analysis.executors import NotSeenError, check_seen
from spark_analysis.jobs.files import REJECTED_MAX, NoHistoriesError, Rejected, histories_in
from spark_analysis.jobs.inputs import histories_of
from spark_analysis.report import rejected_table
from spark_analysis.session import open_session
from spark_analysis.source import HistoryFile

__all__ = [
    "Conf",
    "Folder",
    "Input",
    "JobVerdict",
    "Json",
    "Master",
    "conclude",
    "fail",
    "in_spark",
    "parts_shown",
    "print_json",
    "size_of",
    "usable_files",
]

Folder = Annotated[Path, typer.Argument(help="Folder of *.bkh files, searched below; or one such file.")]
Input = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder of *.bkh files, searched below; one such file; or a data set.")
]
Master = Annotated[
    str | None, typer.Option(help=f"Spark master to run on. Default: what spark-submit was told, or {LOCAL_MASTER}.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of Spark, such as spark.executor.memory=4g; may be given again."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def fail(message: str, code: int = EXIT_UNUSABLE) -> NoReturn:
    """End with one sentence on standard error."""
    typer.echo(f"bk-verify: {message}", err=True)
    raise typer.Exit(code)


def print_json(value: Mapping[str, Any]) -> None:
    """Print the JSON object of a command."""
    typer.echo(json.dumps(value))


def usable_files(folder: Path) -> list[HistoryFile]:
    """The files to work on, of which one at least begins as a history does: starting Spark takes longer than to see that."""
    if is_dataset(folder):
        fail(f"{folder}: is a data set; give the folder of the files that it was made of")
    try:
        files = histories_in(folder)
    except NoHistoriesError as error:
        fail(str(error))
    problems = []
    for file in files:
        try:
            History(Path(file.path))
        except HistoryError as error:
            problems.append(str(error))
        else:
            return files
    for problem in problems[1:REJECTED_MAX]:
        typer.echo(f"bk-verify: {problem}", err=True)
    fail(problems[0])


def size_of(folder: Path) -> int:
    """About how many bytes of histories there are below ``folder``, one of them usable at least, or in the data set there."""
    if not is_dataset(folder):
        return sum(file.size for file in usable_files(folder))
    try:
        return histories_of(folder).size
    except (NoHistoriesError, DataSetError) as error:
        fail(str(error))


@contextmanager
def in_spark(
    master: str | None,
    conf: Sequence[str] | None,
    input_bytes: int,
    failed: str,
    doing: str = "",
    paths: Sequence[Path] = (),
) -> Iterator[SparkSession]:
    """A session for work on about ``input_bytes`` at ``paths``, with the settings ``conf``.

    Without Java, if executors do not see the paths, or if Spark fails, the program ends; ``failed`` says what that means. On a
    terminal it says ``doing`` while the block runs.
    """
    settings = _settings_of(conf or ())
    status = Console(stderr=True).status(f"{doing} ...") if doing and sys.stderr.isatty() else nullcontext()
    try:
        with status:
            session = open_session(master, input_bytes=input_bytes, settings=settings)
            check_seen(session, paths)
            yield session
    except (NoHistoriesError, NotSeenError, DataSetError, JavaNotFoundError) as error:
        fail(str(error))
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        fail(f"Spark failed, and {failed}: {reason[0]}", EXIT_FAILED)


@contextmanager
def parts_shown(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Inside, a terminal says ``doing`` and, if the histories are judged in parts, which of these; what is given is told that.

    It is called with how many parts are done, and how many there are.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _in_all: None
        return
    with Console(stderr=True).status(f"{doing} ...") as status:

        def tell(done: int, in_all: int) -> None:
            if in_all > 1:
                status.update(f"{doing}, part {done + 1} of {in_all} ...")

        yield tell


def _settings_of(conf: Sequence[str]) -> dict[str, str]:
    """The settings in ``conf``, each ``KEY=VALUE`` with a key of Spark's."""
    settings = {}
    for told in conf:
        key, separator, value = told.partition("=")
        if not separator or not key.startswith("spark."):
            fail(f"--conf wants spark.NAME=VALUE, got {told!r}")
        settings[key] = value
    return settings


class JobVerdict(Protocol):
    """What a job over a folder of histories comes to."""

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Files that cannot be used."""
        ...

    @property
    def rejected_files(self) -> int:
        """How many there are."""
        ...

    @property
    def seconds(self) -> float:
        """How long it took."""
        ...

    def as_json(self) -> dict[str, Any]:
        """The shape that the command prints."""
        ...


def conclude(verdict: JobVerdict, *parts: RenderableType, is_fine: bool, as_json: bool) -> None:
    """Print a verdict, as JSON or in ``parts`` for people, and end with the exit code of what was found, if anything was."""
    if as_json:
        print_json(verdict.as_json())
    else:
        console = Console()
        for part in parts:
            console.print(part)
        if verdict.rejected:
            console.print(rejected_table(verdict.rejected, verdict.rejected_files))
        console.print(f"{verdict.seconds:.1f} s in Spark")
    if not is_fine:
        raise typer.Exit(EXIT_VIOLATED)
    for file in verdict.rejected:
        typer.echo(f"bk-verify: {file.file}: {file.problem}", err=True)
    unnamed = verdict.rejected_files - len(verdict.rejected)
    if unnamed:
        typer.echo(f"bk-verify: {unnamed} more files are not usable", err=True)
    if verdict.rejected_files:
        raise typer.Exit(EXIT_UNUSABLE)
