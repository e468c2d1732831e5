"""The reference model: what a ledger is to its applications, an append-only list with a fence.

It knows nothing of bookies, quorums and metadata. It is told what applications see and do, and raises
:class:`~scenarios.machines.broken.BrokenClause` at the first thing that a list with a fence could not have shown:

* A3, A6: acknowledgements are 0, 1, 2, ... and none comes after a failure.
* A1: no end is below an acknowledged entry, and once the ledger has an end, nothing above it is acknowledged. (An acknowledgement
  from before the takeover may reach its application late; it is true, since the entry is in the ledger.)
* B3: everybody who closes, recovers or opens the ledger sees the same last entry and length.
* B6: and the length is that of the entries.
* A8: entry n is what the application appended as entry n, by every reader.
* D6: no reader hears of a last add confirmed that is not confirmed; so none is beyond the end.
* A5, A9, B4: what is confirmed is never absent: no reader is told so, and enough bookies hold it.
"""

from __future__ import annotations

from typing import ClassVar

from scenarios.machines.broken import BrokenClause

__all__ = ["LedgerModel"]


class LedgerModel:
    """The list. ``acknowledged`` is the highest entry its writer was told of; ``end`` last entry and length, once known."""

    #: The numbers of the clauses that are judged.
    clauses: ClassVar[tuple[str, ...]] = ("A1", "A3", "A5", "A6", "A8", "A9", "B3", "B4", "B6", "D6")

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.acknowledged = -1
        self.end: tuple[int, int] | None = None
        self._failed: int | None = None

    # The writer

    def append(self, payload: bytes) -> int:
        """The application hands in the next entry."""
        self.entries.append(payload)
        return len(self.entries) - 1

    def acknowledge(self, entry_id: int) -> None:
        """The application is told that the entry is safe."""
        if entry_id != self.acknowledged + 1:
            raise BrokenClause("A3", f"entry {entry_id} was acknowledged after {self.acknowledged}")
        if self._failed is not None:
            raise BrokenClause("A6", f"entry {entry_id} was acknowledged after {self._failed} had failed")
        if self.end is not None and entry_id > self.end[0]:
            raise BrokenClause("A1", f"entry {entry_id} was acknowledged, the ledger ends at {self.end[0]}")
        self.acknowledged = entry_id

    def fail(self, entry_id: int) -> None:
        """The application is told that the entry was not acknowledged; it may be in the ledger all the same."""
        if entry_id <= self.acknowledged:
            raise BrokenClause("A6", f"entry {entry_id} failed after it was acknowledged")
        self._failed = entry_id if self._failed is None else min(entry_id, self._failed)

    # Everybody

    def ends(self, last_entry_id: int, length: int | None) -> None:
        """Somebody is told where the ledger ends; ``length`` None if the client that closed it could not measure it."""
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
        """A reader hears of a last add confirmed."""
        if last_add_confirmed > self.acknowledged and (self.end is None or last_add_confirmed > self.end[0]):
            raise BrokenClause("D6", f"{last_add_confirmed} is told, {self.acknowledged} is confirmed")

    def reads(self, entry_id: int, payload: bytes | None) -> None:
        """A reader gets an entry at or below a LAC it heard of, or the definite answer that there is none."""
        if payload is None:
            raise BrokenClause("A9", f"entry {entry_id} is confirmed and absent")
        if payload != self.entries[entry_id]:
            raise BrokenClause("A8", f"entry {entry_id} was not written like that")

    def is_held(self, entry_id: int, copies: list[bytes], needed: int) -> None:
        """So many intact disks of those that the ledger's metadata name have the entry; ``needed`` of them have to."""
        good = sum(copy == self.entries[entry_id] for copy in copies)
        if good < needed:
            raise BrokenClause("B4" if self.end else "A5", f"entry {entry_id} is held by {good} instead of {needed}")
