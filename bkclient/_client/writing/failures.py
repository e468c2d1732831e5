"""Failing what callers wait for, and telling the log what ended a writer."""

from __future__ import annotations

import asyncio
from typing import Any

from bkclient.errors import BookKeeperError, Code
from bkclient.observability import log

__all__ = ["fail_quietly", "log_failure"]


def fail_quietly(future: asyncio.Future[Any], error: BookKeeperError) -> None:
    """Set the exception without a warning if it is never retrieved: flush() and close() report it too."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def log_failure(error: BookKeeperError, ledger_id: int, entry_id: int) -> None:
    """Log what ended a writer, unless the application did."""
    if error.code == Code.LEDGER_FENCED:
        log.WRITER_FENCED(ledger_id=ledger_id, entry_id=entry_id, code=error.code)
    elif error.code not in {Code.CLIENT_CLOSED, Code.LEDGER_CLOSED}:
        log.WRITER_FAILED(ledger_id=ledger_id, entry_id=entry_id, code=error.code, reason=error.message)
