"""Single frames of the streams between processes: where they begin, and what is done to those that a plan picks.

A frame that is dropped, held back, late or doubled leaves a stream of whole frames: to the one side it looks as if the other had
never sent it, or sent it later. The rules are those of the simulated world (:mod:`simbookie.world.frames`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bkclient.wire.framing import PREFIX_SIZE
from simbookie.development.forwarding import CHUNK_SIZE
from simbookie.world.faults import Action, Fate, Interceptions
from simbookie.world.frames import FrameFilter

__all__ = ["FrameBounds", "FrameFaults", "PickedStream"]


class FrameBounds:
    """Where frames begin in a stream of bytes."""

    def __init__(self) -> None:
        self._head = b""
        self._rest = 0

    def feed(self, data: bytes) -> int:
        """Take in bytes; returns how many frames they complete."""
        count, at = 0, 0
        while at < len(data):
            if self._rest:
                step = min(self._rest, len(data) - at)
                self._rest -= step
                at += step
                count += not self._rest
                continue
            step = min(PREFIX_SIZE - len(self._head), len(data) - at)
            self._head += data[at : at + step]
            at += step
            if len(self._head) == PREFIX_SIZE:
                self._rest, self._head = int.from_bytes(self._head, "big"), b""
                count += not self._rest
        return count


@dataclass(frozen=True, slots=True)
class FrameFaults:
    """What picks frames between a client and a bookie."""

    interceptions: Interceptions[Action]
    client: str
    bookie: str

    @property
    def to(self) -> DirectedFaults:
        """Those on the way to the bookie."""
        return DirectedFaults(self.interceptions, self.client, self.bookie)

    @property
    def back(self) -> DirectedFaults:
        """Those on the way back."""
        return DirectedFaults(self.interceptions, self.bookie, self.client)


@dataclass(frozen=True, slots=True)
class DirectedFaults:
    """What picks frames from one host to another."""

    interceptions: Interceptions[Action]
    source: str
    destination: str


class PickedStream:
    """One direction of a connection: what its filter lets pass is read from it; a :class:`simbookie.world.frames.FrameWay`.

    No more is read from the connection until that was taken; only frames that are held back or late are kept beside it.
    """

    def __init__(self, source: asyncio.StreamReader, faults: DirectedFaults) -> None:
        self._source = source
        self._faults = faults
        self._passed: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._is_taken = True
        #: To be set before anything is taken.
        self.filter: FrameFilter | None = None

    async def take(self) -> None:
        """Read the connection to its end."""
        assert self.filter is not None
        try:
            while data := await self._source.read(CHUNK_SIZE):
                self.filter.forward(data)
                await self._passed.join()
        except OSError as error:
            self._passed.put_nowait(error)
        else:
            self.filter.end(lambda: self.launch(b""))

    async def read(self, _: int) -> bytes:
        """What passes, none at the end; raises what the connection raised."""
        if not self._is_taken:
            self._passed.task_done()
        self._is_taken = False
        found = await self._passed.get()
        if isinstance(found, OSError):
            raise found
        return found

    @property
    def is_intercepting(self) -> bool:
        """See :class:`~simbookie.world.frames.FrameWay`, as for the methods that follow."""
        return self._faults.interceptions.are_in_force

    def intercepted(self, message: object, send_on: Callable[[], None]) -> Action | None:
        """See there."""
        faults = self._faults
        interception = faults.interceptions.meant_for(faults.source, faults.destination, message)
        if interception is None:
            return None
        if interception.action is Fate.HOLD:
            interception.hold(send_on)
        return interception.action

    def launch(self, data: bytes) -> None:
        """See there."""
        self._passed.put_nowait(data)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """See there."""
        asyncio.get_running_loop().call_later(delay_s, action)
