"""The reference model: what a ledger is to its applications, an append-only list with a fence.

It knows nothing of bookies, quorums and metadata. It is told what applications see and do, and raises :class:`Broken` at the
first thing that a list with a fence could not have shown:

* ``order`` - acknowledgements are 0, 1, 2, ... and none comes after a failure.
* ``fence`` - once the ledger has an end, nothing above it is acknowledged. (An acknowledgement from before the takeover may
  reach its application late; it is true, since the entry is in the ledger.)
* ``kept`` - no end is below an acknowledged entry.
* ``one end`` - everybody who closes, recovers or opens the ledger sees the same last entry and length.
* ``length`` - and the length is that of the entries.
* ``content`` - entry n is what the application appended as entry n, whoever reads it.
* ``LAC`` - no reader hears of a last add confirmed that is not confirmed; so none is beyond the end.
* ``stable`` - what is confirmed is never absent: no reader is told so, and enough bookies hold it.
"""

from __future__ import annotations

__all__ = ["PROMISES", "Broken", "Ledger"]

PROMISES = ("order", "fence", "kept", "one end", "length", "content", "LAC", "stable")


class Broken(AssertionError):
    """A promise is broken; ``promise`` is its name in the list above."""

    def __init__(self, promise: str, what: str) -> None:
        assert promise in PROMISES
        super().__init__(f"{promise}: {what}")
        self.promise = promise


class Ledger:
    """The list. ``acknowledged`` is the highest entry its writer was told of; ``end`` last entry and length, once known."""

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
            raise Broken("order", f"entry {entry_id} was acknowledged after {self.acknowledged}")
        if self._failed is not None:
            raise Broken("order", f"entry {entry_id} was acknowledged after {self._failed} had failed")
        if self.end is not None and entry_id > self.end[0]:
            raise Broken("fence", f"entry {entry_id} was acknowledged, the ledger ends at {self.end[0]}")
        self.acknowledged = entry_id

    def fail(self, entry_id: int) -> None:
        """The application is told that the entry was not acknowledged; it may be in the ledger all the same."""
        if entry_id <= self.acknowledged:
            raise Broken("order", f"entry {entry_id} failed after it was acknowledged")
        self._failed = entry_id if self._failed is None else min(entry_id, self._failed)

    # Everybody

    def ends(self, last_entry_id: int, length: int | None) -> None:
        """Somebody is told where the ledger ends; ``length`` None if that could not be measured by whoever closed it."""
        if last_entry_id < self.acknowledged:
            raise Broken("kept", f"the ledger ends at {last_entry_id}, {self.acknowledged} was acknowledged")
        if last_entry_id >= len(self.entries):
            raise Broken("content", f"the ledger ends at {last_entry_id}, only {len(self.entries)} were appended")
        exact = sum(map(len, self.entries[: last_entry_id + 1]))
        if length is not None and length != exact:
            raise Broken("length", f"{length} bytes up to entry {last_entry_id} instead of {exact}")
        if self.end is None:
            self.end = (last_entry_id, exact)
        if self.end[0] != last_entry_id:
            raise Broken("one end", f"{last_entry_id} and {self.end[0]}")

    def sees_lac(self, last_add_confirmed: int) -> None:
        """A reader hears of a last add confirmed."""
        if last_add_confirmed > self.acknowledged and (self.end is None or last_add_confirmed > self.end[0]):
            raise Broken("LAC", f"{last_add_confirmed} is told, {self.acknowledged} is confirmed")

    def reads(self, entry_id: int, payload: bytes | None) -> None:
        """A reader gets an entry at or below a LAC it heard of, or the definite answer that there is none."""
        if payload is None:
            raise Broken("stable", f"entry {entry_id} is confirmed and absent")
        if payload != self.entries[entry_id]:
            raise Broken("content", f"entry {entry_id} was not written like that")

    def is_held(self, entry_id: int, copies: list[bytes], needed: int) -> None:
        """So many intact disks of those that the ledger's metadata name have the entry; ``needed`` of them have to."""
        good = sum(copy == self.entries[entry_id] for copy in copies)
        if good < needed:
            raise Broken("stable", f"entry {entry_id} is held by {good} instead of {needed}")
