"""Making acknowledged entries durable: one force of one ledger (LAC-12..LAC-14).

With deferred sync a bookie acknowledges an entry before it is durable there. A force asks every bookie of the ensemble to make
durable what it has, and when all of them did, everything that was acknowledged in order when the force began is durable
on an ack quorum, whichever bookies that quorum was. That is why it takes all E and not a quorum: no one remembers which
bookies acknowledged which entry.

Entries acknowledged after the force began are not covered by it, although they may be durable by accident. Without deferred
sync a force is legal and moves nothing.

A limit that the protocol has: a bookie that lost acknowledged entries with its power and came back answers a force like any
other, for it does not know. Deferred sync relies on bookies not doing that between two forces.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from bkclient.errors import BookKeeperError, Code, error_for
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.value import Value, moved

__all__ = ["ForceMachine", "ForcePorts", "ForceState"]


class ForcePorts(Protocol):
    """What a force asks of its shell. None of these may call back into the machine."""

    def send_force(self, bookie_id: BookieId) -> None:
        """Send a force of the ledger; report the answer through :meth:`ForceMachine.on_force_reply`."""
        ...

    def force_finished(self, error: BookKeeperError | None) -> None:
        """The force ended; called once. Without an error, the LAC is at least what was acknowledged when it began."""
        ...


class ForceState(Enum):
    """Where a force is."""

    NEW = "new"
    #: Bookies have been asked.
    WAITING = "waiting"
    FINISHED = "finished"


_NEXT: Final = {
    ForceState.NEW: (ForceState.WAITING, ForceState.FINISHED),
    ForceState.WAITING: (ForceState.FINISHED,),
    ForceState.FINISHED: (),
}


class ForceMachine(Value):
    """One force of the ledger that ``writer`` writes. Call :meth:`start`, feed it answers.

    It fails with the first error of a bookie, and may then be repeated by another machine; with the writer's refusal if
    that takes no entries any more; and with :class:`~bkclient.errors.LedgerClosed` if the ledger was closed below what was to
    be forced, before all bookies had answered.
    """

    OUTSIDE = frozenset({"ports", "writer"})
    __slots__ = ("_ensemble", "_length", "_outstanding", "entry_id", "ports", "state", "writer")

    def __init__(self, writer: AppendMachine, ports: ForcePorts) -> None:
        #: The last entry that the force covers; -1 before :meth:`start`.
        self.entry_id = -1
        self.state = ForceState.NEW
        self.writer = writer
        self.ports = ports
        self._length = 0
        self._ensemble: Ensemble = ()
        self._outstanding = 0

    @property
    def is_finished(self) -> bool:
        """Whether ``force_finished`` was called."""
        return self.state is ForceState.FINISHED

    def start(self) -> None:
        """Note what is acknowledged now, and ask all E bookies; nothing is asked if nothing is (LAC-12)."""
        writer = self.writer
        if not writer.is_writable:
            self._finish(writer.refusal())
            return
        self.entry_id, self._length = writer.last_add_acknowledged, writer.adds.acknowledged_length
        if self.entry_id < 0:
            self._finish(None)
            return
        self.state = moved(_NEXT, self.state, ForceState.WAITING)
        self._ensemble = writer.ensemble
        self._outstanding = (1 << len(self._ensemble)) - 1
        for bookie_id in self._ensemble:
            self.ports.send_force(bookie_id)

    def on_force_reply(self, bookie_id: BookieId, code: int) -> None:
        """A bookie answered, or it is known that it will not (``code`` says why)."""
        if self.is_finished:
            return
        if code != Code.OK:
            self._finish(
                error_for(
                    code,
                    "a bookie did not force what it stores",
                    ledger_id=self.writer.metadata.ledger_id,
                    bookie_id=bookie_id,
                )
            )
            return
        # Old metadata may name a bookie twice; it is asked and answers once for each place.
        position = next(
            (p for p, member in enumerate(self._ensemble) if member == bookie_id and self._outstanding >> p & 1), None
        )
        if position is None:
            return
        self._outstanding &= ~(1 << position)
        assert self._outstanding >= 0, "every place answers once"
        if self._outstanding == 0:
            is_covered = self.writer.on_forced(self.entry_id, self._length)
            self._finish(None if is_covered else self._cut_off())

    def abandon(self, error: BookKeeperError) -> None:
        """The writer has ended with ``error``, so no further answer counts. Does nothing after the force ended."""
        if not self.is_finished:
            self._finish(error)

    def _cut_off(self) -> BookKeeperError:
        return self.writer.truncation or error_for(
            Code.LEDGER_CLOSED,
            f"the ledger was closed at entry {self.writer.known_end} while entries up to {self.entry_id} were "
            f"being forced",
            ledger_id=self.writer.metadata.ledger_id,
        )

    def _finish(self, error: BookKeeperError | None) -> None:
        self.state = moved(_NEXT, self.state, ForceState.FINISHED)
        self.ports.force_finished(error)
