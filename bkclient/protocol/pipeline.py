"""The add pipeline: entries on their way to their bookies, and the order in which they are done.

One pipeline serves the writer of a ledger and, with other hooks, the client that recovers it. It sends every entry to its
write set, counts answers, and completes entries strictly in order: an entry is done when an ack quorum stored it and
every entry before it is done (W-21). The id of the last one done is the sequence head. It also is the last add confirmed
(LAC), unless bookies answer before entries are durable; then only a force moves the LAC (LAC-11).

For each entry every position of its write set is in one of three states: it acknowledged, it failed, or its answer is still
to come. An entry is *stuck* when the answers to come cannot make it durable any more. Whoever uses the pipeline must end
that state, by another bookie or by an error, and then no entry waits for ever.

Completion can be *suspended* while the ensemble is being changed. That freeze is what makes an ensemble change safe: the new
fragment starts at LAC + 1, so the LAC must not move between that decision and its taking effect (W-22, W-34).

What happens when a bookie fails, or when going on is impossible, is left to the two subclasses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from bkclient.errors import Code, Refusal
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.quorum import QuorumSizes

__all__ = ["AddPipeline", "PendingAdd"]

#: Answers that end the handle instead of the bookie's membership (W-17).
_FATAL_CODES: Final = frozenset(
    {int(Code.CLIENT_CLOSED), int(Code.ILLEGAL_OPERATION), int(Code.LEDGER_FENCED), int(Code.UNAUTHORIZED)}
)


_OK: Final = int(Code.OK)


class PendingAdd:
    """One entry under way. ``token`` and ``request`` belong to the shell; the machines never look at them.

    ``last_add_confirmed`` and ``length`` are the values the entry's header carries. They are fixed when the entry is first
    sent, so every replica of it is the same, resent ones too (W-11).

    ``acknowledged`` and ``failed`` are sets of ensemble positions, as bit masks. A position in both stores the entry: it
    failed one sending and acknowledged another (DS-6).
    """

    __slots__ = (
        "acknowledged",
        "ensemble",
        "entry_id",
        "failed",
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
        self.failed = 0
        self.has_quorum = False


class AddPipeline(ABC):
    """Pending adds of one ledger, in entry id order. Inputs must not be nested (see the package's docstring).

    What is looked at for every entry is in slots. An object with 30 attributes or more in its dictionary, and subclasses have
    many, is one whose attributes CPython 3.11 looks up the slow way.
    """

    __slots__ = (
        "_defers_lac",
        "_failure_codes",
        "_is_suspended",
        "_max_failures",
        "_pending",
        "_spans_fault_domains",
        "_unproven",
        "ensemble",
        "last_add_acknowledged",
        "last_add_confirmed",
        "last_add_pushed",
        "length",
        "sizes",
    )

    def __init__(self, sizes: QuorumSizes, ensemble: Ensemble, last_add_confirmed: int, length: int) -> None:
        self.sizes: Final = sizes
        self.ensemble = ensemble
        #: Highest entry id done, in order: the sequence head.
        self.last_add_acknowledged = last_add_confirmed
        #: Highest entry id known to be durable with everything before it (LAC).
        self.last_add_confirmed = last_add_confirmed
        #: Highest entry id handed in (LAP).
        self.last_add_pushed = last_add_confirmed
        #: Payload bytes of all entries handed in (and not taken back), from the start of the ledger.
        self.length = length
        self._pending: dict[int, PendingAdd] = {}
        self._is_suspended = False
        #: Whether the LAC waits for a force instead of following the sequence head.
        self._defers_lac = False
        #: Bookies whose next acknowledgement is of interest; each is taken out by it.
        self._unproven: dict[BookieId, None] = {}
        #: Says whether these bookies span enough fault domains for an ack quorum (W-19); None if that is not asked.
        self._spans_fault_domains: Callable[[tuple[BookieId, ...]], bool] | None = None
        #: By which code each bookie failed last; for error messages.
        self._failure_codes: dict[BookieId, int] = {}
        self._max_failures = sizes.write_quorum_size - sizes.ack_quorum_size

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

    def _on_add_failed(self, add: PendingAdd, position: int, bookie_id: BookieId, code: int) -> None:  # noqa: ARG002
        """The bookie failed an add that still needs it; by default it is replaced at once (W-24)."""
        self._on_bookies_failed({position: bookie_id})

    def _on_add_stuck(self, add: PendingAdd) -> None:
        """The last answer that could have made ``add`` durable has come, and its bookies share too few fault domains."""
        self._on_refused(add, "", Code.NOT_ENOUGH_BOOKIES)

    @abstractmethod
    def _on_late_failure(self, position: int, bookie_id: BookieId) -> None:
        """The bookie failed an add that has its ack quorum without it (W-16)."""

    @abstractmethod
    def _on_refused(self, add: PendingAdd, bookie_id: BookieId, code: int) -> None:
        """The bookie's answer to ``add`` is one that makes going on impossible (W-17); no bookie if it is nobody's answer."""

    # Inputs ------------------------------------------------------------------------------------------------------

    @property
    def pending_count(self) -> int:
        """Number of adds not done yet."""
        return len(self._pending)

    def is_pending(self, entry_id: int) -> bool:
        """Whether the entry was handed in and is not done yet."""
        return entry_id in self._pending

    def _push(self, payload: bytes, header_lac: int, token: Any) -> PendingAdd:
        """Take the next entry and send it to its write set (W-4, W-10)."""
        entry_id = self.last_add_pushed + 1
        self.last_add_pushed = entry_id
        self.length += len(payload)
        return self._launch(PendingAdd(entry_id, payload, header_lac, self.length, self.ensemble, token))

    def _launch(self, add: PendingAdd) -> PendingAdd:
        entry_id, ensemble, send = add.entry_id, add.ensemble, self._send
        self._pending[entry_id] = add
        for position in self.sizes.write_set(entry_id):
            send(add, ensemble[position])
        return add

    def on_add_reply(self, bookie_id: BookieId, entry_id: int, code: int) -> None:
        """A bookie answered an add, or it is known that it will not (``code`` says why)."""
        if code != _OK:
            self._failure_codes[bookie_id] = code
        elif self._unproven:
            self._unproven.pop(bookie_id, None)
        add = self._pending.get(entry_id)
        if add is None:
            if code != _OK:
                self._on_failure_after_completion(bookie_id, entry_id)
            return
        position = self._position_of(bookie_id, entry_id, add.ensemble, add.acknowledged)
        if position is None:
            return  # W-14: it was replaced meanwhile, so its answer counts for nothing.
        if code == _OK:
            add.acknowledged |= 1 << position
            if not add.has_quorum and self.sizes.is_ack_quorum(add.acknowledged):
                self._on_ack_quorum(add)
        elif add.has_quorum:
            add.failed |= 1 << position
            self._on_late_failure(position, bookie_id)
        elif code in _FATAL_CODES and not isinstance(code, Refusal):
            self._on_refused(add, bookie_id, code)
        else:
            add.failed |= 1 << position
            add.acknowledged &= ~(1 << position)  # DS-7: who says both is not relied upon
            self._on_add_failed(add, position, bookie_id, code)

    def _on_ack_quorum(self, add: PendingAdd) -> None:
        if self._spans_fault_domains is None or self._is_durable(add):
            add.has_quorum = True
            self._complete_in_order()
        elif self._is_stuck(add):
            self._on_add_stuck(add)

    def _on_failure_after_completion(self, bookie_id: BookieId, entry_id: int) -> None:
        if entry_id > self.last_add_acknowledged:
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

    # What the answers prove --------------------------------------------------------------------------------------

    def _is_durable(self, add: PendingAdd) -> bool:
        """Whether an ack quorum, of enough fault domains if that is asked, stored ``add`` (W-18, W-19)."""
        if not self.sizes.is_ack_quorum(add.acknowledged):
            return False
        if self._spans_fault_domains is None:
            return True
        write_set = self.sizes.write_set(add.entry_id)
        return self._spans_fault_domains(tuple(add.ensemble[p] for p in write_set if add.acknowledged >> p & 1))

    def _is_stuck(self, add: PendingAdd) -> bool:
        """Whether no answer that is still to come can make ``add`` durable (DS-7)."""
        if add.has_quorum:
            return False
        failed = (add.failed & ~add.acknowledged).bit_count()
        return failed > self._max_failures or failed + add.acknowledged.bit_count() == self.sizes.write_quorum_size

    def _failures_of(self, add: PendingAdd) -> dict[int, BookieId]:
        """The positions that failed ``add`` and have not been asked again since."""
        failed = add.failed & ~add.acknowledged
        return {p: add.ensemble[p] for p in self.sizes.write_set(add.entry_id) if failed >> p & 1}

    # Completion --------------------------------------------------------------------------------------------------

    def _complete_in_order(self) -> None:
        pending = self._pending
        while not self._is_suspended:
            add = pending.get(self.last_add_acknowledged + 1)
            if add is None or not add.has_quorum:
                return
            del pending[add.entry_id]
            self.last_add_acknowledged = add.entry_id
            if not self._defers_lac:
                self.last_add_confirmed = add.entry_id
            self._confirm(add)

    def _in_id_order(self) -> list[PendingAdd]:
        """The pending adds by id; where callers choose ids, adds need not have come in that order."""
        return [self._pending[entry_id] for entry_id in sorted(self._pending)]

    def _drain(self) -> list[PendingAdd]:
        """Take back everything that is not done, its bytes included (W-51.1)."""
        drained = self._in_id_order()
        self._pending.clear()
        self.length -= sum(len(add.payload) for add in drained)
        self.last_add_pushed = self.last_add_acknowledged
        return drained

    # Ensemble change ---------------------------------------------------------------------------------------------

    def _switch_ensemble(self, ensemble: Ensemble, positions: Iterable[int]) -> None:
        """Go on with ``ensemble``: ``positions`` start from nothing, so pending adds are sent there again (W-36..W-39).

        What replaced bookies acknowledged is void. Positions may also name bookies that stayed: then the entry is
        simply sent once more, which is harmless (W-13).
        """
        changed = tuple(sorted(positions))
        still_valid = ~sum(1 << position for position in changed)
        self.ensemble = ensemble
        adds = self._in_id_order()
        for add in adds:
            add.ensemble = ensemble
            add.acknowledged &= still_valid
            add.failed &= still_valid
            add.has_quorum = self._is_durable(add)
        for add in adds:
            for position in changed:
                if self.sizes.stores(position, add.entry_id):
                    self._send(add, ensemble[position])
        self._is_suspended = False
        # W-39: entries that only waited for the change to end are done now.
        self._complete_in_order()
