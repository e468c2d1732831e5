"""Whether a ledger is still its writer's, asked once after every new connection to a bookie (W-60).

A writer that was idle while another client took its ledger over learns of it from the fences on its bookies. Apache
BookKeeper's bookies lose a fence in some cases when they are killed (``docs/interop.md`` lists them), and then take the
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
from typing import Final, Protocol

from bkclient._backoff import Backoff
from bkclient.errors import BookKeeperError, Code, error_for
from bkclient.ledger import BookieId, LedgerState, Versioned
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.force import ForceMachine

__all__ = ["ReconnectCheck", "ReconnectPorts"]

#: After a read that failed: how long to wait before the next one.
_DELAYS: Final = Backoff(0.1, 5.0)
#: How many answers are held at least before those are looked for that nobody waits for any more.
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


class ReconnectCheck:
    """Holds what bookies say to have stored until it is certain that they could not have forgotten a fence.

    A shell compares, for every success of a bookie, ``connections[bookie_id]`` with :attr:`verified`, and hands over to
    :meth:`on_stored` or :meth:`on_forced` what came over a connection with a greater number; all else goes to the machine that
    it is for. ``connections`` is that of :class:`~bkclient.transport.base.BookieTransport`. ``verified`` is the number of the
    newest connection that was established when the creation of the ledger began; None switches the check off.

    Ends the writer with :class:`~bkclient.errors.LedgerFenced` if the ledger is not OPEN any more, with
    :class:`~bkclient.errors.NoSuchLedger` if it was deleted, and with :class:`~bkclient.errors.MetadataStoreError` if the
    metadata could not be read for ``give_up_after_s`` seconds; None waits for ever.
    """

    __slots__ = (
        "_delay_s",
        "_failing_since",
        "_give_up_after_s",
        "_held",
        "_is_reading",
        "_ports",
        "_prune_at",
        "_reading_at",
        "_reading_from_version",
        "_writer",
        "connections",
        "verified",
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
        self._writer = writer
        self._ports = ports
        self._give_up_after_s = give_up_after_s
        #: Number of the connection, bookie, and the entry or the force that the answer is about; in order of arrival.
        self._held: list[tuple[int, BookieId, int | ForceMachine]] = []
        self._prune_at = _FEW
        self._is_reading = False
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
        if self._writer.is_pending(entry_id):
            self._hold(bookie_id, entry_id)
        else:
            self._writer.on_add_reply(bookie_id, entry_id, Code.OK)  # nobody waits for it, so it acknowledges nothing

    def on_forced(self, bookie_id: BookieId, force: ForceMachine) -> None:
        """A bookie forced the ledger, and said so over a connection that is not verified."""
        if not force.is_finished:
            self._hold(bookie_id, force)

    def _hold(self, bookie_id: BookieId, what: int | ForceMachine) -> None:
        self._held.append((self.connections[bookie_id], bookie_id, what))
        if not self._writer.is_writable:
            self.stop()
        elif not self._is_reading:
            self._read()
        elif len(self._held) >= self._prune_at:
            # Other bookies may have been enough. Then nobody waits for this answer, and a long outage must not collect them.
            self._held = [held for held in self._held if self._is_awaited(held[2])]
            self._prune_at = max(_FEW, 2 * len(self._held))

    def _is_awaited(self, what: int | ForceMachine) -> bool:
        return not what.is_finished if isinstance(what, ForceMachine) else self._writer.is_pending(what)

    def _count(self, bookie_id: BookieId, what: int | ForceMachine) -> None:
        if isinstance(what, ForceMachine):
            what.on_force_reply(bookie_id, Code.OK)
        else:
            self._writer.on_add_reply(bookie_id, what, Code.OK)

    # Reading -----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        self._is_reading = True
        self._reading_at = max(self.connections.values())
        self._reading_from_version = self._writer.local.value.version
        self._ports.read_metadata()

    def on_metadata(self, stored: Versioned, now: float) -> None:
        """What is stored, as read since :meth:`ReconnectPorts.read_metadata`; ``now`` is a monotonic clock in seconds."""
        writer = self._writer
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
            self._is_reading = False
            self._failing_since, self._delay_s = None, _DELAYS.first_s
            writer.held_up_by = None
            self.verified = self._reading_at
            held, self._held = self._held, []
            for connection, bookie_id, what in held:
                if connection <= self.verified:
                    self._count(bookie_id, what)
                else:
                    self._held.append((connection, bookie_id, what))
            self._prune_at = max(_FEW, 2 * len(self._held))
            if self._held:
                self._read()

    def on_read_failed(self, error: BookKeeperError, now: float) -> None:
        """The metadata could not be read; ``now`` is a monotonic clock in seconds."""
        writer = self._writer
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
            self._ports.read_metadata_later(self._delay_s)
            self._delay_s = _DELAYS.after(self._delay_s)

    def on_retry(self) -> None:
        """The time that :meth:`ReconnectPorts.read_metadata_later` was given is over."""
        if self._writer.is_writable:
            self._read()
        else:
            self.stop()

    def _error(self, why: str) -> BookKeeperError:
        return error_for(Code.METADATA_STORE, why, ledger_id=self._writer.metadata.ledger_id)

    # The end -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The writer has ended, so no entry waits any more; forces are told what became of it. Idempotent."""
        self._is_reading = False
        error = self._writer.fatal_error
        held, self._held = self._held, []
        for _, bookie_id, what in held:
            if not isinstance(what, ForceMachine):
                continue
            if error is None:
                what.on_force_reply(bookie_id, Code.OK)  # a closed ledger has its end, which no force moves any more
            else:
                what.abandon(error)
