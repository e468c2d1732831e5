"""Entries as readers get them, one at a time or several at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from bkclient.errors import BookKeeperError

__all__ = ["Entries", "Entry", "EntryResult", "LastConfirmedAndEntry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as read.

    :attr:`size` is the number of bytes of its payload, ``ledger_length`` that of the whole ledger up to and including this
    entry. ``last_add_confirmed`` is what the writer knew to be confirmed when it sent the entry.
    """

    ledger_id: int
    entry_id: int
    payload: bytes
    ledger_length: int
    last_add_confirmed: int

    @property
    def size(self) -> int:
        """Bytes of this entry's payload."""
        return len(self.payload)


@dataclass(frozen=True, slots=True)
class EntryResult:
    """What became of one entry of a range: the entry, or why it could not be read. Exactly one of both is there."""

    entry_id: int
    entry: Entry | None
    error: BookKeeperError | None


@dataclass(frozen=True, slots=True)
class LastConfirmedAndEntry:
    """What a long poll brought: the LAC, and the entry if it is confirmed and was sent along."""

    last_add_confirmed: int
    entry: Entry | None


class Entries(Sequence[Entry]):
    """Consecutive entries in order, at least one; may be iterated over again and again."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[Entry]) -> None:
        if not entries:
            raise ValueError("there must be at least one entry")
        self._entries = tuple(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Entry, ...]: ...

    def __getitem__(self, index: int | slice) -> Entry | tuple[Entry, ...]:
        """By place in the result, from 0; a slice is a tuple. See :meth:`entry` for entry ids."""
        return self._entries[index]

    def __repr__(self) -> str:
        return f"<Entries {self.first_entry_id} to {self.last_entry_id} of ledger {self._entries[0].ledger_id}>"

    @property
    def first_entry_id(self) -> int:
        """The id of the first entry."""
        return self._entries[0].entry_id

    @property
    def last_entry_id(self) -> int:
        """The id of the last entry."""
        return self._entries[-1].entry_id

    def entry(self, entry_id: int) -> Entry:
        """The entry with this id; ``IndexError`` if it is none of these."""
        if not self.first_entry_id <= entry_id <= self.last_entry_id:
            raise IndexError(f"entry {entry_id} is not among {self.first_entry_id} to {self.last_entry_id}")
        return self._entries[entry_id - self.first_entry_id]
