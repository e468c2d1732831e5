"""Options and endings that several commands of ``bk-sim`` share."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from bkclient.errors import BookKeeperError
from simbookie.java import JavaNotFoundError
from simbookie.serving import uvloop_is_installed
from simbookie.start_errors import BookieStartError, ZooKeeperStartError
from simbookie.storage.base import StorageError

__all__ = [
    "Capacity",
    "ConnectionsMax",
    "ConnectionsPerSource",
    "GarbageInterval",
    "JournalSync",
    "JournalWait",
    "Json",
    "LogLevel",
    "MaxFrameSize",
    "PendingAddsMax",
    "SessionTimeout",
    "Uvloop",
    "announce",
    "check_admin",
    "choose_loop",
    "errors_end_the_program",
    "start_logging",
]

EXIT_FAILURE = 1
EXIT_USAGE = 2

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Uvloop = Annotated[
    bool | None,
    typer.Option("--uvloop/--no-uvloop", help="Run on uvloop.  [default: if it is installed]", show_default=False),
]
LogLevel = Annotated[str, typer.Option(help="What to log on standard error: debug, info, warning or error.")]
JournalSync = Annotated[float, typer.Option(min=0, help="How long one journal sync takes, in milliseconds.")]
JournalWait = Annotated[
    float, typer.Option(min=0, help="How long the first entry of a journal group waits for company, in milliseconds.")
]
Capacity = Annotated[int, typer.Option(min=1, help="MiB of entries one bookie takes; read-only above 95 % of it.")]
SessionTimeout = Annotated[
    float, typer.Option(min=0.1, help="Seconds until the metadata service misses a silent bookie.")
]
GarbageInterval = Annotated[float, typer.Option(min=0.1, help="Seconds between runs of the garbage collector.")]
MaxFrameSize = Annotated[
    int, typer.Option(min=1024, help="Largest frame accepted, in bytes; 5253120 for Pulsar with its default settings.")
]
ConnectionsMax = Annotated[int, typer.Option(min=1, help="Connections that one bookie serves at a time.")]
ConnectionsPerSource = Annotated[
    int | None,
    typer.Option(min=1, help="Connections of one source address.  [default: half of all]", show_default=False),
]
PendingAddsMax = Annotated[int, typer.Option(min=1, help="Adds of one bookie waiting for its journal at a time.")]


def announce(facts: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print what serves now, for programs or for people."""
    typer.echo(json.dumps(facts) if as_json else text)
    sys.stdout.flush()


def check_admin(is_wanted: bool, option: str) -> None:  # noqa: FBT001  what the option says
    """Refuse wrong usage: an interface for operators whose packages are not installed."""
    missing = [name for name in ("h11", "prometheus_client") if importlib.util.find_spec(name) is None]
    if is_wanted and missing:
        raise typer.BadParameter(f"{missing[0]} is not installed: install bkclient[admin]", param_hint=option)


def start_logging(level: str) -> None:
    """Log to standard error from ``level`` on."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise typer.BadParameter(f"must be debug, info, warning or error, got {level!r}", param_hint="--log-level")
    logging.basicConfig(level=number, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")


def choose_loop(wanted: bool | None) -> bool:  # noqa: FBT001  three-valued
    """Whether to run on uvloop."""
    is_installed = uvloop_is_installed()
    if wanted and not is_installed:
        raise typer.BadParameter("uvloop is not installed: install bkclient[fast]", param_hint="--uvloop")
    return is_installed if wanted is None else wanted


@contextmanager
def errors_end_the_program(*, as_json: bool) -> Iterator[None]:
    """Turn what can go wrong outside this program into a message and an exit code."""
    try:
        yield
    except (BookKeeperError, BookieStartError, StorageError, ZooKeeperStartError, JavaNotFoundError, OSError) as error:
        message = _said(error)
        if as_json:
            typer.echo(json.dumps({"error": {"type": type(error).__name__, "message": message}}))
        typer.echo(f"bk-sim: {message}", err=True)
        usage = isinstance(error, BookKeeperError) and isinstance(error, ValueError)
        raise typer.Exit(EXIT_USAGE if usage else EXIT_FAILURE) from None


def _said(error: Exception) -> str:
    """An error in words, without the number that an operating system gives it."""
    if isinstance(error, OSError) and error.strerror and error.filename is None:
        return error.strerror
    return str(error)
