"""An error once more, for each of several who are told of it.

An exception object belongs to the caller that catches it: its traceback and notes grow with every raise. So where several wait,
each gets one of its own, which says the same and has the same cause.
"""

from __future__ import annotations

import copy

from bkclient.errors import BookKeeperError

__all__ = ["fresh"]


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
