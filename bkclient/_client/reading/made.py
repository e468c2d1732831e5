"""Entries are made here, many at a time.

:class:`~bkclient.Entry` is frozen, so its own constructor sets each field the slow way, which takes longer than anything else
that is done for an entry of a batch. So an entry is filled in as an object of a class with the same fields that is not frozen,
and becomes an :class:`~bkclient.Entry` when it is complete.
"""

from __future__ import annotations

from typing import cast

from bkclient.entry import Entry

__all__ = ["made_entry"]


class _Draft:
    """An entry before it is frozen: the slots are those of :class:`~bkclient.Entry`, or Python would not let it become one."""

    __slots__ = ("entry_id", "last_add_confirmed", "ledger_id", "ledger_length", "payload")

    def __init__(
        self, ledger_id: int, entry_id: int, payload: bytes, ledger_length: int, last_add_confirmed: int
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.payload = payload
        self.ledger_length = ledger_length
        self.last_add_confirmed = last_add_confirmed


def made_entry(ledger_id: int, entry_id: int, payload: bytes, ledger_length: int, last_add_confirmed: int) -> Entry:
    """What ``Entry(...)`` with the same arguments returns."""
    draft = _Draft(ledger_id, entry_id, payload, ledger_length, last_add_confirmed)
    draft.__class__ = Entry  # type: ignore[assignment]
    return cast("Entry", draft)
