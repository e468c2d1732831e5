"""Reading several consecutive entries with one request, and knowing which bookies can.

A batch read is an entry read whose answer may bring what follows: replicas, order, late answers and errors are those of its
first entry (R-31). What comes back is verified in order and counts up to the first entry that does not verify; if that is
the first, the replica has failed (R-30).

A bookie that does not know batch reads closes the connection, which looks like a bookie that died (R-32). What tells the
two apart is that the one still serves single reads. So a bookie whose connection was lost over a batch is *suspected*, and
left out of batches for a few seconds; if it serves a single read meanwhile, it is left out for ten minutes. Never for good:
bookies are upgraded (H-23).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from bkclient.entry import Entry
from bkclient.errors import Code
from bkclient.ledger import BookieId
from bkclient.protocol.read import EntryRead, ReadOutcome
from bkclient.protocol.remembered import Remembered
from bkclient.protocol.value import Value

__all__ = ["BATCH_ENTRY_OVERHEAD", "BATCH_OVERHEAD", "BatchRead", "BatchSupport"]

#: Bytes of a batch answer before its first entry, and before each entry: lengths of the frame and of the bodies.
BATCH_OVERHEAD: Final = 36
BATCH_ENTRY_OVERHEAD: Final = 4

_SUSPECTED_S: Final = 10.0
_UNSUPPORTED_S: Final = 600.0

DecodeSeveral = Callable[[Sequence[int], Sequence[bytes]], list[Entry]]
"""The entries with these ids in as many bodies, up to the first that does not verify."""


class BatchRead(EntryRead):
    """One batch from ``first_entry_id`` on, of at most ``max_count`` entries whatever a bookie sends (None for no limit).

    ``entries`` holds them, at least the first, once ``outcome`` is FOUND (R-28).
    """

    __slots__ = ("_max_count", "entries")

    def __init__(
        self,
        first_entry_id: int,
        max_count: int | None,
        replicas: Iterable[BookieId],
        *,
        negatives_to_deny: int | None = None,
        parallel: bool = False,
    ) -> None:
        super().__init__(first_entry_id, replicas, negatives_to_deny=negatives_to_deny, parallel=parallel)
        self.entries: tuple[Entry, ...] = ()
        self._max_count = max_count

    def verified(self, bodies: Sequence[bytes], decode: DecodeSeveral) -> tuple[Entry, ...]:
        """The entries in an answer up to the first that does not verify; none if that is the first (R-30)."""
        wanted = bodies[: self._max_count]
        return tuple(decode(range(self.entry_id, self.entry_id + len(wanted)), wanted))

    def on_entries(self, bookie_id: BookieId, entries: tuple[Entry, ...]) -> ReadOutcome:
        """Note an answer with verified ``entries``, at least one; everything else goes to :meth:`on_reply`."""
        was_waiting = self.outcome is ReadOutcome.WAITING
        outcome = self.on_reply(bookie_id, Code.OK)
        if was_waiting and outcome is ReadOutcome.FOUND:
            self.entries = entries
        return outcome


class BatchSupport(Value):
    """Which bookies are left out of batches for now. ``now`` is any clock in seconds."""

    __slots__ = ("_suspected", "_unsupported")

    def __init__(self) -> None:
        self._suspected: Remembered[None] = Remembered(_SUSPECTED_S)
        self._unsupported: Remembered[None] = Remembered(_UNSUPPORTED_S)

    @property
    def has_suspects(self) -> bool:
        """Whether single reads tell anything at present."""
        return len(self._suspected) > 0

    def usable(self, bookies: Iterable[BookieId], now: float) -> tuple[BookieId, ...]:
        """Those of ``bookies`` that may be asked for a batch."""
        return tuple(b for b in bookies if not self._suspected.knows(b, now) and not self._unsupported.knows(b, now))

    def on_batch_failed(self, bookie_id: BookieId, code: int, now: float) -> None:
        """A batch read ended with an error; only a lost connection tells something."""
        if code == Code.BOOKIE_NOT_AVAILABLE:
            self._suspected.put(bookie_id, None, now)

    def on_single_read(self, bookie_id: BookieId, now: float) -> None:
        """The bookie served a single read."""
        if self._suspected.knows(bookie_id, now):
            self._suspected.forget(bookie_id)
            self._unsupported.put(bookie_id, None, now)
