"""Handing one failure to several callers.

An exception object belongs to whoever catches it: its traceback and notes grow with every raise. So each caller gets one of its
own, with the original as its cause.
"""

from __future__ import annotations

from bkclient.errors import BookKeeperError, error_for

__all__ = ["fresh", "fresh_for_entry"]


def fresh(error: BookKeeperError) -> BookKeeperError:
    """An exception that says the same, caused by ``error``."""
    copy = type(error).__new__(type(error), *error.args)
    copy.args = error.args
    copy.ledger_id, copy.entry_id, copy.bookie_id = error.ledger_id, error.entry_id, error.bookie_id
    copy.__cause__ = error
    return copy


def fresh_for_entry(error: BookKeeperError, ledger_id: int, entry_id: int | None) -> BookKeeperError:
    """The same kind of failure, told of one entry, caused by ``error``."""
    copy = error_for(error.code, ledger_id=ledger_id, entry_id=entry_id)
    copy.__cause__ = error
    return copy
