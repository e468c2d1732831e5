"""How the LAC of a ledger with deferred sync moves: by forces, while entries tell readers what it was when they were sent."""

from __future__ import annotations

from bkclient.protocol.adds import PendingAdds
from bkclient.protocol.value import Value

__all__ = ["DeferredLac"]


class DeferredLac(Value):
    """What a writer has to remember of the last force that moved the LAC."""

    __slots__ = ("_head_then", "_told_before", "length")

    def __init__(self) -> None:
        #: Payload bytes up to the LAC.
        self.length = 0
        self._told_before = -1
        self._head_then = -1

    def told(self, adds: PendingAdds) -> int:
        """The LAC that readers can know from entries: that before the last acknowledged entry (LAC-5)."""
        head = adds.last_add_acknowledged
        if not adds.defers_lac:
            return max(-1, head - 1)
        return self._told_before if head == self._head_then else adds.last_add_confirmed

    def move(self, adds: PendingAdds, entry_id: int, length: int) -> None:
        """Everything up to ``entry_id`` is durable, ``length`` bytes; that is more than was known before."""
        assert adds.last_add_confirmed < entry_id <= adds.last_add_acknowledged, "a force covers what was acknowledged"
        self._told_before, self._head_then = self.told(adds), adds.last_add_acknowledged
        adds.last_add_confirmed = entry_id
        self.length = length
