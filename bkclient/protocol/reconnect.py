"""Whether a ledger is still its writer's, asked once after every new connection to a bookie (W-60).

A writer that was idle while another client took its ledger over learns of it from the fences on its bookies. Apache
BookKeeper's bookies lose a fence in some cases when they are killed (``docs/reference/interop.md`` lists them), and then take the
writer's entries again, beyond the end of the ledger that the recovery closed. But a bookie that was killed has lost its
connections. So a stored entry counts only if this writer has read the metadata since the connection was established that
told of it, and found the ledger OPEN.

Why that is enough: a recovery stores IN_RECOVERY before it fences. A read that finds OPEN therefore comes before every fence of
every recovery, and each of these fences is set on a bookie that has been running since the connection was established; a
process that runs forgets nothing. An answer that arrived before the read began was given before any fence there is.

What needs no check: an entry that the recovering client writes back, because fenced bookies take it anyway and the close is
a compare-and-set; an explicit LAC, because it repeats what was confirmed before; a failure, because it promises nothing. What
does: entries of writers of either kind, and forces, which move the LAC of a ledger with deferred sync.

Connections are numbered by the transport, so one number says which of them are verified: all that were established before
the last successful read began. The creation of the ledger is the first such read. An answer over a later connection is held,
and asks for a read, which serves all connections that are established by the time it begins.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol

from bkclient._backoff import Backoff
from bkclient.errors import BookKeeperError, Code, error_for
from bkclient.ledger import BookieId, LedgerState, Versioned
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.force import ForceMachine
from bkclient.protocol.value import NOTHING, Value, moved, own

__all__ = ["CheckState", "ReconnectCheck", "ReconnectPorts"]

#: After a read that failed: how long to wait before the next one.
_DELAYS: Final = Backoff(0.1, 5.0)
#: How many answers are held at least before those that are not needed any more are looked for.
_FEW: Final = 64
#: Failures that repeating does not help against.
_FINAL_CODES: Final = frozenset({Code.NO_SUCH_LEDGER, Code.CLIENT_CLOSED})


class ReconnectPorts(Protocol):
    """What the check asks of its shell. None of these may call back into it."""

    def read_metadata(self) -> None:
        """Read the ledger's metadata, linearizably; the read begins after this call.

        Report through :meth:`ReconnectCheck.on_metadata` or :meth:`ReconnectCheck.on_read_failed`. One is under way at a time.
        """
        ...

    def read_metadata_later(self, delay_s: float) -> None:
        """Call :meth:`ReconnectCheck.on_retry` in ``delay_s`` seconds; at most one such call is outstanding."""
        ...


class CheckState(Enum):
    """What a check is doing about the answers it holds."""

    #: It holds none.
    IDLE = "idle"
    #: The metadata is being read.
    READING = "reading"
    #: The metadata could not be read, and will be again.
    PAUSING = "pausing"


_NEXT: Final = {
    CheckState.IDLE: (CheckState.READING,),
    CheckState.READING: (CheckState.IDLE, CheckState.PAUSING),
    CheckState.PAUSING: (CheckState.IDLE, CheckState.READING),
}


class ReconnectCheck(Value):
    """Holds what bookies say to have stored until it is certain that they could not have forgotten a fence.

    A shell compares, for every success of a bookie, ``connections[bookie_id]`` with :attr:`verified`, and hands over to
    :meth:`on_stored` or :meth:`on_forced` what came over a connection with a greater number; all else goes to the machine that
    it is for. ``connections`` is that of :class:`~bkclient.transport.base.BookieTransport`. ``verified`` is the number of the
    newest connection that was established when the creation of the ledger began; None switches the check off.

    Ends the writer with :class:`~bkclient.errors.LedgerFenced` if the ledger is not OPEN any more, with
    :class:`~bkclient.errors.NoSuchLedger` if it was deleted, and with :class:`~bkclient.errors.MetadataStoreError` if the
    metadata could not be read for ``give_up_after_s`` seconds; None waits for ever.
    """

    OUTSIDE = frozenset({"connections", "forces", "ports", "writer"})
    __slots__ = (
        "_delay_s",
        "_failing_since",
        "_give_up_after_s",
        "_held",
        "_prune_at",
        "_reading_at",
        "_reading_from_version",
        "connections",
        "forces",
        "ports",
        "state",
        "verified",
        "writer",
    )

    def __init__(
        self,
        writer: AppendMachine,
        connections: Mapping[BookieId, int],
        ports: ReconnectPorts,
        *,
        verified: int | None,
        give_up_after_s: float | None = None,
    ) -> None:
        self.connections: Final = connections
        #: The greatest number of a connection whose answers count.
        self.verified = sys.maxsize if verified is None else verified
        self.writer = writer
        self.ports = ports
        #: Those whose answers are held, by number.
        self.forces: dict[int, ForceMachine] = NOTHING
        self.state = CheckState.IDLE
        self._give_up_after_s = give_up_after_s
        #: Number of the connection, bookie, and what the answer is about: an entry, or minus a force's number; as they came.
        self._held: list[tuple[int, BookieId, int]] = []
        self._prune_at = _FEW
        self._reading_at = 0
        self._reading_from_version = 0
        self._delay_s = _DELAYS.first_s
        self._failing_since: float | None = None

    @property
    def held_count(self) -> int:
        """How many answers are held."""
        return len(self._held)

    # Answers -----------------------------------------------------------------------------------------------------

    def on_stored(self, bookie_id: BookieId, entry_id: int) -> None:
        """A bookie stored an entry, and said so over a connection that is not verified."""
        if self.writer.is_pending(entry_id):
            self._hold(bookie_id, entry_id)
        else:
            self.writer.on_add_reply(bookie_id, entry_id, Code.OK)  # no entry waits for it, so it acknowledges nothing

    def on_forced(self, bookie_id: BookieId, force: ForceMachine) -> None:
        """A bookie forced the ledger, and said so over a connection that is not verified."""
        if force.is_finished:
            return
        number = next((n for n, known in self.forces.items() if known is force), 0)
        if number == 0:
            number = max(self.forces, default=0) + 1
            self.forces = own(self.forces)
            self.forces[number] = force
        self._hold(bookie_id, -number)

    def _hold(self, bookie_id: BookieId, what: int) -> None:
        self._held.append((self.connections[bookie_id], bookie_id, what))
        if not self.writer.is_writable:
            self.stop()
        elif self.state is CheckState.IDLE:
            self._read()
        elif len(self._held) >= self._prune_at:
            # Other bookies may have been enough. Then no entry waits for this answer, and a long outage must not collect them.
            self._keep([held for held in self._held if self._is_awaited(held[2])])

    def _keep(self, held: list[tuple[int, BookieId, int]]) -> None:
        """Hold these on, and drop what no entry waits for."""
        self._held = held
        self._prune_at = max(_FEW, 2 * len(held))
        forces = {-what for _, _, what in held}
        self.forces = {number: force for number, force in self.forces.items() if number in forces}

    def _is_awaited(self, what: int) -> bool:
        return self.writer.is_pending(what) if what >= 0 else not self.forces[-what].is_finished

    # Reading -----------------------------------------------------------------------------------------------------

    def _enter(self, state: CheckState) -> None:
        """Change the state. Nothing else does."""
        self.state = moved(_NEXT, self.state, state)

    def _read(self) -> None:
        self._enter(CheckState.READING)
        # Those of held answers, too: their bookies may have answered over older connections since.
        numbers = [*self.connections.values(), *(connection for connection, _, _ in self._held)]
        self._reading_at = max(numbers)
        self._reading_from_version = self.writer.local.value.version
        self.ports.read_metadata()

    def on_metadata(self, stored: Versioned, now: float) -> None:
        """What is stored, as read since :meth:`ReconnectPorts.read_metadata`; ``now`` is a monotonic clock in seconds."""
        writer = self.writer
        if not writer.is_writable:
            self.stop()
        elif stored.version < self._reading_from_version:
            self.on_read_failed(
                self._error("the metadata store answered with an older version than it had before"), now
            )
        elif stored.metadata.state is not LedgerState.OPEN:
            writer.on_taken_over(stored)
            self.stop()
        else:
            self._enter(CheckState.IDLE)
            self._failing_since, self._delay_s = None, _DELAYS.first_s
            writer.held_up_by = None
            self.verified = self._reading_at
            forces = self.forces  # what is counted may end the writer, and with it the check
            held, self._held = self._held, []
            for connection, bookie_id, what in held:
                if connection > self.verified:
                    self._held.append((connection, bookie_id, what))
                elif what >= 0:
                    writer.on_add_reply(bookie_id, what, Code.OK)
                else:
                    forces[-what].on_force_reply(bookie_id, Code.OK)
            self.forces = forces
            self._keep(self._held)
            if self._held and self.state is CheckState.IDLE:
                self._read()

    def on_read_failed(self, error: BookKeeperError, now: float) -> None:
        """The metadata could not be read; ``now`` is a monotonic clock in seconds."""
        writer = self.writer
        if not writer.is_writable:
            self.stop()
            return
        if self._failing_since is None:
            self._failing_since = now
        limit_s = self._give_up_after_s
        if error.code in _FINAL_CODES:
            writer.abandon(error)
            self.stop()
        elif limit_s is not None and now - self._failing_since >= limit_s:
            failure = self._error(
                f"bookies were connected to anew, and for {limit_s:g} s the metadata could not be read that says whether the "
                f"ledger is still this writer's: {error.message}"
            )
            failure.__cause__ = error
            writer.abandon(failure)
            self.stop()
        else:
            writer.held_up_by = error
            self._enter(CheckState.PAUSING)
            self.ports.read_metadata_later(self._delay_s)
            self._delay_s = _DELAYS.after(self._delay_s)

    def on_retry(self) -> None:
        """The time that :meth:`ReconnectPorts.read_metadata_later` was given is over."""
        if self.writer.is_writable:
            self._read()
        else:
            self.stop()

    def _error(self, why: str) -> BookKeeperError:
        return error_for(Code.METADATA_STORE, why, ledger_id=self.writer.metadata.ledger_id)

    # The end -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The writer has ended, so no entry waits any more; forces are told what became of it. Idempotent."""
        if self.state is not CheckState.IDLE:
            self._enter(CheckState.IDLE)
        error = self.writer.fatal_error
        held, forces = self._held, self.forces
        self._keep([])
        for _, bookie_id, what in held:
            if what >= 0:
                continue
            if error is None:
                forces[-what].on_force_reply(
                    bookie_id, Code.OK
                )  # a closed ledger has its end, which no force moves any more
            else:
                forces[-what].abandon(error)
