"""How a command runs and how it ends.

A command is one coroutine with a connected client. Whatever it raises becomes one line on standard error and an exit code that
tells a script what to do next; the codes are those below, for every command. Ctrl-C and SIGTERM cancel the coroutine, so
that what it opened is closed in order. A reader of our output that went away (``bk ... | head``) ends the program silently,
as it does every other Unix program.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NoReturn, TextIO

import typer

from bkclient import BookKeeper
from bkclient.cli.access import ClusterAccess
from bkclient.cli.text import terminal_safe
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    Code,
    DigestMismatch,
    DuplicateEntryId,
    IllegalOperation,
    LedgerClosed,
    LedgerExists,
    LedgerFenced,
    MetadataDriverMissing,
    MetadataVersionConflict,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
    UnclosedFragment,
)

__all__ = [
    "EXIT_INTERRUPTED",
    "EXIT_NO",
    "EXIT_OUTPUT_GONE",
    "EXIT_REFUSED",
    "EXIT_TERMINATED",
    "EXIT_UNAVAILABLE",
    "EXIT_USAGE",
    "Ending",
    "confirm_deletion",
    "exit_code_of",
    "run_command",
    "run_with_client",
]

EXIT_NO: Final = 1
"""The answer is no: there is no such ledger or entry, a check found something, a question was answered with no."""

EXIT_USAGE: Final = 2
"""The command line or the input cannot be used as it is."""

EXIT_UNAVAILABLE: Final = 3
"""It could not be done: the metadata store or bookies did not answer, or there are too few. Trying again may help."""

EXIT_REFUSED: Final = 4
"""The ledger does not allow it: wrong password, fenced or closed by another client, corrupt. Trying again does not help."""

EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
EXIT_OUTPUT_GONE: Final = 128 + signal.SIGPIPE
EXIT_TERMINATED: Final = 128 + signal.SIGTERM

_NO: Final = (NoSuchLedger, NoSuchEntry)
_REFUSED: Final = (
    DigestMismatch,
    DuplicateEntryId,
    IllegalOperation,
    LedgerClosed,
    LedgerExists,
    LedgerFenced,
    MetadataVersionConflict,
    UnauthorizedAccess,
    UnclosedFragment,
)


class Ending(Exception):
    """A command did what it could, and ends with ``code`` because of what ``message`` says.

    With ``is_told`` the JSON that was printed says it too, and needs no error beside it.
    """

    def __init__(self, message: str, *, code: int = EXIT_NO, is_told: bool = False) -> None:
        self.code = code
        self.is_told = is_told
        super().__init__(message)


def confirm_deletion(what: str, *, as_json: bool) -> None:
    """Ask before ``what`` is deleted for good; ``typer.Exit`` where the answer is no.

    ``typer.BadParameter`` with ``--json``, whose reader cannot be asked: such a command needs ``--force``.
    """
    if as_json:
        raise typer.BadParameter("--json requires --force, because it cannot ask for confirmation", param_hint="--json")
    if not typer.confirm(f"Delete {what} for good?", err=True):
        typer.echo("bk: nothing was deleted", err=True)
        raise typer.Exit(EXIT_NO)


def exit_code_of(error: BaseException) -> int:
    """The exit code that tells ``error`` to a script."""
    if isinstance(error, Ending):
        return error.code
    if isinstance(error, _NO):
        return EXIT_NO
    if isinstance(error, ArgumentError | MetadataDriverMissing):
        return EXIT_USAGE
    if isinstance(error, _REFUSED):
        return EXIT_REFUSED
    return EXIT_UNAVAILABLE


def run_with_client(
    connection: ClusterAccess,
    work: Callable[[BookKeeper], Awaitable[None]],
    *,
    as_json: bool = False,
    interrupted: int = EXIT_INTERRUPTED,
    terminated: int = EXIT_TERMINATED,
    done: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Run ``work`` with a client for ``connection``, and end the program as it ends.

    ``interrupted`` and ``terminated`` are the exit codes for Ctrl-C and SIGTERM, 0 where that is how a command should end.
    ``done`` stands beside an error in JSON: what was done in spite of it.
    """

    async def connected() -> None:
        async with connection.connect() as client:
            await work(client)

    run_command(connected, as_json=as_json, interrupted=interrupted, terminated=terminated, done=done)


def run_command(
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    as_json: bool = False,
    interrupted: int = EXIT_INTERRUPTED,
    terminated: int = EXIT_TERMINATED,
    done: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Run ``work`` in an event loop of its own, and end the program as it ends."""
    try:
        was_terminated = asyncio.run(_until_done_or_terminated(work))
        sys.stdout.flush()  # here, where it is known what to do if the reader has gone
    except KeyboardInterrupt:
        if as_json and interrupted != 0:
            _tell_end("Interrupted by Ctrl-C", done)
        raise typer.Exit(interrupted) from None
    except BrokenPipeError:
        _end_without_output()
    except (BookKeeperError, Ending, OSError) as error:
        _tell(error, as_json=as_json, done=done)
        raise typer.Exit(exit_code_of(error)) from None
    if was_terminated:
        if as_json and terminated != 0:
            _tell_end("Ended by SIGTERM", done)
        raise typer.Exit(terminated)


async def _until_done_or_terminated(work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    task = asyncio.ensure_future(work())
    was_terminated = False

    def terminate() -> None:
        nonlocal was_terminated
        was_terminated = True
        task.cancel()

    loop = asyncio.get_running_loop()
    # Not in a thread, where tests run commands, nor where the platform has no such thing.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        await task
    except asyncio.CancelledError:
        if not was_terminated:
            raise
    return was_terminated


def _tell(error: BaseException, *, as_json: bool, done: Mapping[str, Any]) -> None:
    message = terminal_safe(" ".join(str(error).split())) or type(error).__name__
    logging.getLogger("bkclient.cli").debug("the command failed", exc_info=error)
    if as_json and not (isinstance(error, Ending) and error.is_told):
        facts: dict[str, Any] = {"type": type(error).__name__, "message": message}
        if isinstance(error, BookKeeperError):
            facts["code"] = int(error.code)
        typer.echo(json.dumps({**done, "error": facts}))
    typer.echo(f"bk: {message}", err=True)


def _tell_end(message: str, done: Mapping[str, Any]) -> None:
    """A signal ended the command. Nothing is printed where that would wait for a pipe without a reader."""
    if _can_be_written(sys.stdout):
        typer.echo(
            json.dumps({**done, "error": {"type": "Interrupted", "message": message, "code": int(Code.INTERRUPTED)}})
        )


def _can_be_written(stream: TextIO) -> bool:
    try:
        return bool(select.select([], [stream], [], 0)[1])
    except (OSError, ValueError):  # it has no descriptor, or is none that select knows
        return True


def _end_without_output() -> NoReturn:
    # The interpreter flushes standard output once more at its end, and would complain about the pipe again.
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(EXIT_OUTPUT_GONE)
