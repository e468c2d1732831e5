"""Reading many entries at a time, as long as nothing is to be decided about any of them.

Nearly every entry is found at the first replica that is asked for it, and then an :class:`~bkclient.protocol.read.EntryRead` has
decided nothing. So a :class:`ReadRun` only notes which replica each entry was asked of. That a verified entry came is the end of
its read. Anything else that happens to an entry, a failure, a late answer, a defect, happens to a read of its own: the one which
that entry would have had from the beginning, in the state it would be in. So the rules of reading exist once (R-7..R-16).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bkclient.ledger import BookieId
from bkclient.protocol.read import EntryRead
from bkclient.protocol.value import Value

__all__ = ["ReadRun"]


class ReadRun(Value):
    """Reads of the entries from ``first_entry_id`` on, with the replicas of each in the order of preference."""

    __slots__ = ("waiting",)

    def __init__(self, first_entry_id: int, replicas: Sequence[tuple[BookieId, ...]]) -> None:
        #: The replicas of the entries that wait for the first of them, the only one that was asked.
        self.waiting = dict(enumerate(replicas, first_entry_id))

    def to_ask(self) -> dict[BookieId, list[int]]:
        """What to ask of each bookie; to be called once."""
        asked: dict[BookieId, list[int]] = {}
        for entry_id, replicas in self.waiting.items():
            asked.setdefault(replicas[0], []).append(entry_id)
        return asked

    def found(self, entry_ids: Iterable[int]) -> None:
        """The replica that was asked sent these entries, which waited for it and were verified."""
        for entry_id in entry_ids:
            del self.waiting[entry_id]

    def single(self, entry_id: int) -> EntryRead:
        """The entry, which waits, gets a read of its own, whose first replica has been asked."""
        read = EntryRead(entry_id, self.waiting.pop(entry_id))
        read.to_ask()
        return read
