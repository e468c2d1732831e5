"""Recovery reads of consecutive entries: several under way at once, their results taken strictly in entry id order.

Recovery cannot know where the ledger ends before it has read there, so what it reads ahead may lie beyond the end. Three
things keep that cheap and harmless:

* The window begins with one entry and grows by one with every entry found, up to its limit, so a ledger whose tail is
  settled costs one read, and no more entries are asked for beyond the end than were found before it.
* A result is looked at only when all entries below it were found. Whatever a later entry brought, an error above all, is
  forgotten with the rest once an earlier entry ends the ledger (REC-30, REC-31, H-29).
* Nothing above an entry that was not found is asked for any more.

Reading ahead does not weaken any proof: every read of recovery fences the bookies it asks (REC-17), so a denial stays true
however long it waits for its turn.
"""

from __future__ import annotations

from typing import Final

from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.read import EntryRead, ReadOutcome
from bkclient.protocol.value import Value

__all__ = ["FoundEntry", "ReadAhead"]


class FoundEntry(Value):
    """One entry that is being read, or was and waits for its turn; ``payload`` and ``length`` mean something once found."""

    __slots__ = ("length", "payload", "read")

    def __init__(self, read: EntryRead) -> None:
        self.read: Final = read
        self.payload = b""
        self.length = 0


class ReadAhead(Value):
    """Reads of the entries from ``first_entry_id`` on, all of them from one ``ensemble`` (REC-15).

    At most ``limit`` entries (at least 1) are being read or wait for their turn.
    """

    __slots__ = (
        "_ensemble",
        "_entries",
        "_is_bounded",
        "_largest_bytes",
        "_limit",
        "_next_to_ask",
        "_next_to_take",
        "_sizes",
        "_under_way",
        "_waiting_bytes",
        "_window",
    )

    def __init__(self, sizes: QuorumSizes, ensemble: Ensemble, first_entry_id: int, *, limit: int) -> None:
        assert limit >= 1, "something has to be read"
        self._sizes = sizes
        self._ensemble = ensemble
        self._limit = limit
        self._window = 1
        self._next_to_ask = self._next_to_take = first_entry_id
        self._entries: dict[int, FoundEntry] = {}
        self._is_bounded = False
        self._under_way = 0
        self._waiting_bytes = 0
        self._largest_bytes = 0

    def __len__(self) -> int:
        """How many entries are being read or wait for their turn."""
        return len(self._entries)

    @property
    def has_room(self) -> bool:
        """Whether another entry is worth reading now."""
        return len(self._entries) < self._window and not self._is_bounded

    @property
    def expected_bytes(self) -> int:
        """Payload that waits for its turn, and what the reads under way bring if no entry is larger than those found."""
        return self._waiting_bytes + self._under_way * self._largest_bytes

    def begin(self) -> EntryRead:
        """Begin to read the next entry; the caller asks the bookies that the read names."""
        assert self.has_room, "the window is full"
        entry_id = self._next_to_ask
        self._next_to_ask = entry_id + 1
        read = EntryRead(
            entry_id,
            (self._ensemble[position] for position in self._sizes.write_set(entry_id)),
            negatives_to_deny=self._sizes.negatives_to_deny,
            parallel=True,
        )
        self._entries[entry_id] = FoundEntry(read)
        self._under_way += 1
        return read

    def on_reply(self, bookie_id: BookieId, entry_id: int, code: int, payload: bytes, length: int) -> None:
        """A bookie answered. Answers to entries that are decided, whether taken or not, change nothing."""
        entry = self._entries.get(entry_id)
        if entry is None or entry.read.outcome is not ReadOutcome.WAITING:
            return
        outcome = entry.read.on_reply(bookie_id, code)
        if outcome is ReadOutcome.WAITING:
            return
        self._under_way -= 1
        if outcome is ReadOutcome.FOUND:
            entry.payload, entry.length = payload, length
            self._waiting_bytes += len(payload)
            self._largest_bytes = max(self._largest_bytes, len(payload))
        else:
            self._is_bounded = True

    def take(self) -> FoundEntry | None:
        """The result of the next entry in order, if it is there; every entry is taken once."""
        entry = self._entries.get(self._next_to_take)
        if entry is None or entry.read.outcome is ReadOutcome.WAITING:
            return None
        assert entry.read.entry_id == self._next_to_take, "entries are taken one after the other"
        del self._entries[self._next_to_take]
        self._next_to_take += 1
        self._waiting_bytes -= len(entry.payload)
        assert self._waiting_bytes >= 0 <= self._under_way, "what is taken away had been counted"
        self._window = min(self._window + 1, self._limit)
        return entry
