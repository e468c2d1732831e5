"""Handing one failure to several callers.

An exception object belongs to whoever catches it: its traceback and notes grow with every raise. So each caller gets one of its
own, with the original as its cause.
"""

from __future__ import annotations

import copy

from bkclient.errors import BookKeeperError, error_for

__all__ = ["fresh", "fresh_for_entry"]


def fresh(error: BookKeeperError) -> BookKeeperError:
    """An exception that says the same, caused by ``error``."""
    twin = copy.copy(error)
    twin.__cause__ = error
    return twin


def fresh_for_entry(error: BookKeeperError, ledger_id: int, entry_id: int | None) -> BookKeeperError:
    """The same kind of failure, told of one entry, caused by ``error``."""
    twin = error_for(error.code, error.message, ledger_id=ledger_id, entry_id=entry_id, bookie_id=error.bookie_id)
    twin.__cause__ = error
    return twin
