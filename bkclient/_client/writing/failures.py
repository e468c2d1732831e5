"""Handing one failure to several callers, and telling the log.

An exception object belongs to whoever catches it: its traceback and notes grow with every raise. So each caller gets one of its
own, which says the same and has the same cause.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from bkclient.errors import BookKeeperError, Code
from bkclient.observability import log

__all__ = ["fail_quietly", "fresh", "log_failure"]


def fresh(error: BookKeeperError, *, ledger_id: int | None = None, entry_id: int | None = None) -> BookKeeperError:
    """An exception that says the same as ``error``, of the entry ``entry_id`` if that is given.

    ``ledger_id`` is named where ``error`` names none.
    """
    twin = copy.copy(error)
    twin.__cause__ = error.__cause__  # copies leave out causes that may not be picklable
    BookKeeperError.__init__(  # composes the text anew; what a subclass adds stays
        twin,
        error.message,
        ledger_id=ledger_id if error.ledger_id is None else error.ledger_id,
        entry_id=error.entry_id if entry_id is None else entry_id,
        bookie_id=error.bookie_id,
        advice=error.advice,
    )
    return twin


def fail_quietly(future: asyncio.Future[Any], error: BookKeeperError) -> None:
    """Set the exception without a complaint if nobody ever asks for it: flush() and close() report it too."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def log_failure(error: BookKeeperError, ledger_id: int, entry_id: int) -> None:
    """Log what ended a writer, unless the application did."""
    if error.code == Code.LEDGER_FENCED:
        log.WRITER_FENCED(ledger_id=ledger_id, entry_id=entry_id, code=error.code)
    elif error.code not in {Code.CLIENT_CLOSED, Code.LEDGER_CLOSED}:
        log.WRITER_FAILED(ledger_id=ledger_id, entry_id=entry_id, code=error.code, reason=error.message)
