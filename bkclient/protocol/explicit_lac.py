"""Telling bookies the LAC of a writer that is idle, so that tailing readers see its last entries (LAC-5..LAC-9).

Readers learn the LAC from entries, and an entry tells the LAC of the moment it was sent. So the last entry of a writer
that pauses stays invisible until it writes another one. Such a writer sends its LAC by itself, from a timer: not while
entries carry it anyway, but at the second tick after the last of them at the latest (LAC-6). Once it is told there is nothing
left to tick for.

It is best effort, helps readers only, and recovery never asks for it (LAC-9).
"""

from __future__ import annotations

from typing import Protocol

from bkclient.errors import BookKeeperError, Code, error_for
from bkclient.ledger import BookieId
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.value import Value

__all__ = ["ExplicitLac", "ExplicitLacPorts", "LacWrite"]


class ExplicitLacPorts(Protocol):
    """What the machine asks of its shell. None of these may call back into the machine."""

    def send_write_lac(self, bookie_id: BookieId, last_add_confirmed: int) -> None:
        """Tell the bookie; report the answer through :meth:`ExplicitLac.on_write_lac_reply`."""
        ...

    def write_lac_finished(self, last_add_confirmed: int, error: BookKeeperError | None) -> None:
        """An ack quorum knows the LAC, or will not; of interest for logs and numbers only."""
        ...


class LacWrite(Value):
    """One LAC on its way to the bookies of its write set (LAC-7).

    Positions are those of the ensemble, so that the failures of a striped ledger are counted as they are (H-12).
    """

    __slots__ = ("_acknowledged", "_failed", "_places", "_sizes", "code", "last_add_confirmed")

    def __init__(self, sizes: QuorumSizes, ensemble: tuple[BookieId, ...], last_add_confirmed: int) -> None:
        self.last_add_confirmed = last_add_confirmed
        #: None while it is open; then OK, or the code of the failure that decided.
        self.code: int | None = None
        self._sizes = sizes
        self._places = {position: ensemble[position] for position in sizes.write_set(last_add_confirmed)}
        self._acknowledged = 0
        self._failed = 0

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """The bookies to tell, each once."""
        return tuple(self._places.values())

    def on_reply(self, bookie_id: BookieId, code: int) -> bool:
        """Count an answer; tells whether it decided. Answers after that, and of strangers, change nothing."""
        if self.code is not None:
            return False
        answered = self._acknowledged | self._failed
        position = next((p for p, b in self._places.items() if b == bookie_id and not answered >> p & 1), None)
        if position is None:
            return False
        if code == Code.OK:
            self._acknowledged |= 1 << position
            if self._sizes.is_ack_quorum(self._acknowledged):
                self.code = int(Code.OK)
        else:
            self._failed |= 1 << position
            if self._failed.bit_count() > self._sizes.write_quorum_size - self._sizes.ack_quorum_size:
                self.code = code
        assert not self._acknowledged & self._failed, "every place answers once"
        return self.code is not None


class ExplicitLac(Value):
    """Decides at every tick of a timer whether to send the LAC of ``writer``.

    One LAC is under way at a time: its requests have timeouts, so it ends. A LAC that failed is sent again by the next tick,
    where the Java client waits for a newer one.
    """

    OUTSIDE = frozenset({"ports", "writer"})
    __slots__ = ("_told", "_under_way", "ports", "writer")

    def __init__(self, writer: AppendMachine, ports: ExplicitLacPorts) -> None:
        self.writer = writer
        self.ports = ports
        #: The highest LAC that readers can know.
        self._told = -1
        self._under_way: LacWrite | None = None

    @property
    def is_done(self) -> bool:
        """Whether no tick is needed before the writer appends or forces again: readers can know everything there is."""
        writer = self.writer
        if not writer.is_writable:
            return True
        return self._under_way is None and not writer.pending_count and writer.last_add_confirmed <= self._told

    def on_tick(self) -> None:
        """One interval is over (LAC-5)."""
        writer = self.writer
        if self._under_way is not None or not writer.is_writable:
            return
        if self._told < writer.told_lac:
            self._told = writer.told_lac  # it travels with the entries
        elif writer.last_add_confirmed > self._told:
            write = self._under_way = LacWrite(writer.sizes, writer.ensemble, writer.last_add_confirmed)
            for bookie_id in write.bookies:
                self.ports.send_write_lac(bookie_id, write.last_add_confirmed)

    def give_up(self) -> None:
        """Nothing will be learned any more of what is under way; the next tick begins anew."""
        self._under_way = None

    def on_write_lac_reply(self, bookie_id: BookieId, last_add_confirmed: int, code: int) -> None:
        """A bookie answered a LAC, or it is known that it will not (``code`` says why)."""
        write = self._under_way
        if write is None or write.last_add_confirmed != last_add_confirmed or not write.on_reply(bookie_id, code):
            return
        self._under_way = None
        assert write.code is not None, "a decided write has a code"
        if write.code == Code.OK:
            self._told = max(self._told, last_add_confirmed)
            self.ports.write_lac_finished(last_add_confirmed, None)
        else:
            error = error_for(
                write.code,
                f"too few bookies took the explicit LAC {last_add_confirmed}",
                ledger_id=self.writer.metadata.ledger_id,
                bookie_id=bookie_id,
            )
            self.ports.write_lac_finished(last_add_confirmed, error)
