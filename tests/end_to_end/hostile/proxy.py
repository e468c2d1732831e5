"""A proxy between a client and one bookie that turns against both of them at a chosen byte.

It counts the bytes of each direction over all connections. Up to the chosen one it forwards faithfully; then the fault
happens, once, in that direction:

* ``CUT``: both connections are reset.
* ``STALL``: nothing of this direction is forwarded any more, on any connection; everything stays open.
* ``HALF_CLOSE``: the receiver sees the end of the stream; the sender is read from and its bytes are thrown away.
* ``REPEAT``: the last bytes forwarded are sent once more.
* ``FLIP``: one bit of the byte is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bkclient.metadata.base import BookieAddress
from tests.proxy import Cut, Direction, Flow, Proxy

__all__ = ["Fault", "HostileProxy", "PlannedFault"]


class Fault(Enum):
    """What the proxy does."""

    CUT = "cut"
    STALL = "stall"
    HALF_CLOSE = "half-close"
    REPEAT = "repeat"
    FLIP = "flip"


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault, before byte ``position`` of a direction is forwarded (FLIP: in it). ``amount``: bits or bytes."""

    fault: Fault
    direction: Direction
    position: int
    amount: int = 0


class HostileProxy(Proxy):
    """``planned`` may be None, then it is a faithful proxy that counts bytes."""

    def __init__(self, target: BookieAddress, planned: PlannedFault | None = None) -> None:
        super().__init__(target)
        self._planned = planned
        #: Whether the fault has happened.
        self.has_struck = False
        self._is_stalled = False
        #: Bytes forwarded so far.
        self.forwarded = dict.fromkeys(Direction, 0)

    async def passes(self, flow: Flow, data: bytes) -> None:
        planned = self._planned
        if planned is None or planned.direction is not flow.direction:
            await self._forward(flow, data)
        elif self._is_stalled:
            pass  # what is stalled never arrives
        elif self.has_struck or planned.position - self.forwarded[flow.direction] >= len(data):
            await self._forward(flow, data)
        else:
            self.has_struck = True
            before = planned.position - self.forwarded[flow.direction]
            await self._strike(planned, flow, data[:before], data[before:])

    async def _strike(self, planned: PlannedFault, flow: Flow, before: bytes, after: bytes) -> None:
        match planned.fault:
            case Fault.FLIP:
                after = bytes((after[0] ^ 1 << planned.amount % 8,)) + after[1:]
                await self._forward(flow, before + after)
            case Fault.REPEAT:
                await self._forward(flow, before + before[-planned.amount :] + after)
            case Fault.CUT:
                await self._forward(flow, before)
                raise Cut
            case Fault.STALL:
                self._is_stalled = True
                await self._forward(flow, before)
            case Fault.HALF_CLOSE:
                self._is_stalled = True
                await self._forward(flow, before)
                flow.end()

    async def _forward(self, flow: Flow, data: bytes) -> None:
        self.forwarded[flow.direction] += len(data)
        await flow.forward(data)
