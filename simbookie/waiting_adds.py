"""Adds that the storage has no room for at present, and that wait for some.

In BookKeeper the one thread that carries out adds stands still with the first of them: it tries again every millisecond, for
so long and no longer, and what comes after it waits in its queue. Here they wait in a line, in which the first is tried
again; all that is checked of an add is checked again then, because its ledger may have been fenced or deleted. Adds of high
priority have threads of their own, so none of them waits behind another add, but for room.

Those that wait count as pending (:class:`~simbookie.add_room.AddRoom`), which is what limits them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from bkclient.wire.messages import AddRequest, AddResponse, Status
from simbookie.add_room import AddRoom
from simbookie.reads import Respond

__all__ = ["WaitingAdds"]

_POLL_S: Final = 0.001

TryAdd = Callable[[AddRequest, Respond, str], Status | None]
"""``(request, respond, source)``: OK if it is stored, and answered later; another status if it is answered; none if it waits."""


class WaitingAdds:
    """The line in front of ``try_add``. ``wait_max_s`` is how long the first one is tried; 0: none waits."""

    def __init__(self, room: AddRoom, wait_max_s: float, try_add: TryAdd) -> None:
        self.wait_max_s = wait_max_s
        self._room = room
        self._try = try_add
        #: Those that wait, first come first.
        self.line: deque[tuple[AddRequest, Respond, str]] = deque()
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: How many waited in vain.
        self.refusals = 0

    def wait(self, request: AddRequest, respond: Respond, source: str) -> None:
        """Get in line."""
        self._take(request)
        self.line.append((request, respond, source))
        if len(self.line) == 1:
            self._begin_to_wait()

    def _begin_to_wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self.wait_max_s
        self._timer = loop.call_later(_POLL_S, self._try_first)

    def _try_first(self) -> None:
        """Carry out those at the head of the line for which there is room."""
        loop, line = asyncio.get_running_loop(), self.line
        while line:
            request, respond, source = line[0]
            if not request.high_priority:
                self._room.pending -= 1  # it is counted when it is stored
            status = self._try(request, respond, source)
            if line is not self.line:
                return  # the bookie died of its answer
            if status is None and loop.time() < self._deadline:
                self._take(request)
                self._timer = loop.call_later(_POLL_S, self._try_first)
                return
            line.popleft()
            self._deadline = loop.time() + self.wait_max_s
            if status is not Status.OK:
                self._take(request)
                self._give_back(request)
            if status is None:
                self.refusals += 1
                respond(_refusal(request))

    def _take(self, request: AddRequest) -> None:
        if not request.high_priority:
            self._room.pending += 1

    def _give_back(self, request: AddRequest) -> None:
        if not request.high_priority:
            self._room.answered()

    def refuse_all(self) -> None:
        """The bookie stops: nobody waits any more."""
        line = self.line
        self.forget()
        nobody = self.line
        for request, respond, _ in line:
            if self.line is not nobody:
                return  # the bookie died of its answer
            self._give_back(request)
            respond(_refusal(request))

    def forget(self) -> None:
        """The bookie is dead: nobody is answered."""
        self.line = deque()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _refusal(request: AddRequest) -> AddResponse:
    return AddResponse(Status.TOO_MANY_REQUESTS, request.ledger_id, request.entry_id)
