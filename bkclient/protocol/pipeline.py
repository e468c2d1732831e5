"""The add pipeline: entries on their way to their bookies, and the order in which they are done.

One pipeline serves the writer of a ledger and, with other hooks, the client that recovers it. It sends every entry to its
write set, counts answers, and completes entries strictly in order: an entry is done when an ack quorum stored it and
every entry before it is done (W-21). The id of the last one done is the last add confirmed (LAC).

Completion can be *suspended* while the ensemble is being changed. That freeze is what makes an ensemble change safe: the new
fragment starts at LAC + 1, so the LAC must not move between that decision and its taking effect (W-22, W-34).

What happens when a bookie fails, or when going on is impossible, is left to the two subclasses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bkclient.errors import Code
from bkclient.metadata.model import BookieId, Ensemble
from bkclient.protocol.quorum import QuorumSizes

__all__ = ["AddPipeline", "PendingAdd"]

#: Answers that end the handle instead of the bookie's membership (W-17).
_FATAL_CODES: Final = frozenset(
    {int(Code.CLIENT_CLOSED), int(Code.ILLEGAL_OPERATION), int(Code.LEDGER_FENCED), int(Code.UNAUTHORIZED)}
)


class PendingAdd:
    """One entry under way. ``token`` and ``request`` belong to the shell; the machines never look at them.

    ``last_add_confirmed`` and ``length`` are the values the entry's header carries. They are fixed when the entry is first
    sent, so every replica of it is the same, resent ones too (W-11).
    """

    __slots__ = (
        "acknowledged",
        "ensemble",
        "entry_id",
        "has_quorum",
        "last_add_confirmed",
        "length",
        "payload",
        "request",
        "token",
    )

    def __init__(
        self, entry_id: int, payload: bytes, last_add_confirmed: int, length: int, ensemble: Ensemble, token: Any
    ) -> None:
        self.entry_id = entry_id
        self.payload = payload
        self.last_add_confirmed = last_add_confirmed
        self.length = length
        self.ensemble = ensemble
        self.token = token
        self.request: Any = None
        self.acknowledged = 0
        self.has_quorum = False


class AddPipeline(ABC):
    """Pending adds of one ledger, in entry id order. Inputs must not be nested (see the package's docstring)."""

    def __init__(self, sizes: QuorumSizes, ensemble: Ensemble, last_add_confirmed: int, length: int) -> None:
        self.sizes: Final = sizes
        self.ensemble = ensemble
        #: Highest entry id done, in order (LAC).
        self.last_add_confirmed = last_add_confirmed
        #: Highest entry id handed in (LAP).
        self.last_add_pushed = last_add_confirmed
        #: Payload bytes of all entries handed in (and not taken back), from the start of the ledger.
        self.length = length
        self._pending: dict[int, PendingAdd] = {}
        self._is_suspended = False

    # Hooks and ports ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _send(self, add: PendingAdd, bookie_id: BookieId) -> None:
        """Send ``add`` to a bookie; its answer comes back through :meth:`on_add_reply`."""

    @abstractmethod
    def _confirm(self, add: PendingAdd) -> None:
        """``add`` is done."""

    @abstractmethod
    def _on_bookies_failed(self, failures: Mapping[int, BookieId]) -> None:
        """These positions failed adds that still need them."""

    @abstractmethod
    def _on_late_failure(self, position: int, bookie_id: BookieId) -> None:
        """The bookie failed an add that has its ack quorum without it (W-16)."""

    @abstractmethod
    def _on_fatal(self, code: int) -> None:
        """A bookie's answer makes going on impossible (W-17)."""

    # Inputs ------------------------------------------------------------------------------------------------------

    @property
    def pending_count(self) -> int:
        """Number of adds not done yet."""
        return len(self._pending)

    def _push(self, payload: bytes, header_lac: int, token: Any) -> PendingAdd:
        """Take the next entry and send it to its write set (W-4, W-10)."""
        entry_id = self.last_add_pushed + 1
        self.last_add_pushed = entry_id
        self.length += len(payload)
        ensemble = self.ensemble
        add = PendingAdd(entry_id, payload, header_lac, self.length, ensemble, token)
        self._pending[entry_id] = add
        for position in self.sizes.write_set(entry_id):
            self._send(add, ensemble[position])
        return add

    def on_add_reply(self, bookie_id: BookieId, entry_id: int, code: int) -> None:
        """A bookie answered an add, or it is known that it will not (``code`` says why)."""
        add = self._pending.get(entry_id)
        if add is None:
            if code != Code.OK:
                self._on_failure_after_completion(bookie_id, entry_id)
            return
        position = self._position_of(bookie_id, entry_id, add.ensemble, add.acknowledged)
        if position is None:
            return  # W-14: it was replaced meanwhile, so its answer counts for nothing.
        if code == Code.OK:
            add.acknowledged |= 1 << position
            if not add.has_quorum and self.sizes.is_ack_quorum(add.acknowledged):
                add.has_quorum = True
                self._complete_in_order()
        elif add.has_quorum:
            self._on_late_failure(position, bookie_id)
        elif code in _FATAL_CODES:
            self._on_fatal(code)
        else:
            self._on_bookies_failed({position: bookie_id})

    def _on_failure_after_completion(self, bookie_id: BookieId, entry_id: int) -> None:
        if entry_id > self.last_add_confirmed:
            return  # The add was drained: nobody needs the bookie for it any more.
        position = self._position_of(bookie_id, entry_id, self.ensemble, 0)
        if position is not None:
            self._on_late_failure(position, bookie_id)

    def _position_of(self, bookie_id: BookieId, entry_id: int, ensemble: Ensemble, acknowledged: int) -> int | None:
        found = None
        for position in self.sizes.write_set(entry_id):
            if ensemble[position] == bookie_id:
                found = position
                if not acknowledged >> position & 1:
                    break  # else look on: old metadata may name a bookie twice, and it answers once for each place
        return found

    # Completion --------------------------------------------------------------------------------------------------

    def _complete_in_order(self) -> None:
        pending = self._pending
        while pending and not self._is_suspended:
            add = next(iter(pending.values()))
            if not add.has_quorum:
                return
            assert add.entry_id == self.last_add_confirmed + 1, "adds complete without a gap"
            del pending[add.entry_id]
            self.last_add_confirmed = add.entry_id
            self._confirm(add)

    def _drain(self) -> list[PendingAdd]:
        """Take back everything that is not done, its bytes included (W-51.1)."""
        drained = list(self._pending.values())
        self._pending.clear()
        self.length -= sum(len(add.payload) for add in drained)
        self.last_add_pushed = self.last_add_confirmed
        return drained

    # Ensemble change ---------------------------------------------------------------------------------------------

    def _switch_ensemble(self, ensemble: Ensemble, positions: Iterable[int]) -> None:
        """Go on with ``ensemble``: ``positions`` start from nothing, so pending adds are sent there again (W-36..W-39).

        What replaced bookies acknowledged is void. Positions may also name bookies that stayed: then the entry is
        simply sent once more, which is harmless (W-13).
        """
        changed = tuple(sorted(positions))
        self.ensemble = ensemble
        for add in self._pending.values():
            add.ensemble = ensemble
            for position in changed:
                if self.sizes.stores(position, add.entry_id):
                    add.acknowledged &= ~(1 << position)
            add.has_quorum = self.sizes.is_ack_quorum(add.acknowledged)
        for add in tuple(self._pending.values()):
            for position in changed:
                if self.sizes.stores(position, add.entry_id):
                    self._send(add, ensemble[position])
        self._is_suspended = False
        # W-39: entries that only waited for the change to end are done now.
        self._complete_in_order()
