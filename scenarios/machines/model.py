"""The reference model: a ledger as applications see it, an append-only list with a fence.

It has no bookies, quorums and metadata. It gets the calls and results of applications, and raises
:class:`~scenarios.machines.broken.BrokenClause` at the first result that such a list could not have returned:

* A3, A6: acknowledgements are 0, 1, 2, ... and none comes after a failure.
* A1: no end is below an acknowledged entry, and once the ledger has an end, nothing above it is acknowledged. (An acknowledgement
  from before the takeover may reach its application late; it is true, since the entry is in the ledger.)
* B3: all clients that close, recover or open the ledger see the same last entry and length.
* B6: and the length is that of the entries.
* A8: entry n is what the application appended as entry n, by every reader.
* D6: no reader gets a LAC that is not confirmed; so none is above the end.
* A5, A9, B4: a confirmed entry is never absent: no reader gets that answer, and enough bookies hold it.
"""

from __future__ import annotations

from typing import ClassVar

from scenarios.machines.broken import BrokenClause

__all__ = ["LedgerModel"]


class LedgerModel:
    """The list. ``acknowledged`` is the highest acknowledged entry; ``end`` is last entry and length of the closed ledger."""

    #: The numbers of the clauses that are checked.
    clauses: ClassVar[tuple[str, ...]] = ("A1", "A3", "A5", "A6", "A8", "A9", "B3", "B4", "B6", "D6")

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.acknowledged = -1
        self.end: tuple[int, int] | None = None
        self._failed: int | None = None

    # The writer

    def append(self, payload: bytes) -> int:
        """The application appends the next entry."""
        self.entries.append(payload)
        return len(self.entries) - 1

    def acknowledge(self, entry_id: int) -> None:
        """The entry is acknowledged to the application."""
        if entry_id != self.acknowledged + 1:
            raise BrokenClause("A3", f"entry {entry_id} was acknowledged after {self.acknowledged}")
        if self._failed is not None:
            raise BrokenClause("A6", f"entry {entry_id} was acknowledged after {self._failed} had failed")
        if self.end is not None and entry_id > self.end[0]:
            raise BrokenClause("A1", f"entry {entry_id} was acknowledged, the ledger ends at {self.end[0]}")
        self.acknowledged = entry_id

    def fail(self, entry_id: int) -> None:
        """The append fails; the entry may still be in the ledger."""
        if entry_id <= self.acknowledged:
            raise BrokenClause("A6", f"entry {entry_id} failed after it was acknowledged")
        self._failed = entry_id if self._failed is None else min(entry_id, self._failed)

    # All clients

    def ends(self, last_entry_id: int, length: int | None) -> None:
        """A client gets the end of the ledger; ``length`` is None if the client that closed it could not measure it."""
        if last_entry_id < self.acknowledged:
            raise BrokenClause("A1", f"the ledger ends at {last_entry_id}, {self.acknowledged} was acknowledged")
        if last_entry_id >= len(self.entries):
            raise BrokenClause("B4", f"the ledger ends at {last_entry_id}, only {len(self.entries)} were appended")
        exact = sum(map(len, self.entries[: last_entry_id + 1]))
        if length is not None and length != exact:
            raise BrokenClause("B6", f"{length} bytes up to entry {last_entry_id} instead of {exact}")
        if self.end is None:
            self.end = (last_entry_id, exact)
        if self.end[0] != last_entry_id:
            raise BrokenClause("B3", f"{last_entry_id} and {self.end[0]}")

    def sees_lac(self, last_add_confirmed: int) -> None:
        """A reader gets a LAC."""
        if last_add_confirmed > self.acknowledged and (self.end is None or last_add_confirmed > self.end[0]):
            raise BrokenClause("D6", f"a reader got LAC {last_add_confirmed}, {self.acknowledged} is confirmed")

    def reads(self, entry_id: int, payload: bytes | None) -> None:
        """A reader gets an entry at or below its LAC; ``payload`` is None if the definite answer is that it does not exist."""
        if payload is None:
            raise BrokenClause("A9", f"entry {entry_id} is confirmed and absent")
        if payload != self.entries[entry_id]:
            raise BrokenClause("A8", f"entry {entry_id} has another payload than was appended")

    def is_held(self, entry_id: int, copies: list[bytes], needed: int) -> None:
        """Bookies of the entry's write set hold ``copies``; at least ``needed`` of them must be intact."""
        good = sum(copy == self.entries[entry_id] for copy in copies)
        if good < needed:
            raise BrokenClause("B4" if self.end else "A5", f"entry {entry_id} is held by {good} instead of {needed}")
