"""The line of those who wait until a message of theirs fits into what may be unacknowledged.

It moves in the order of arrival. Who is first and does not fit holds up the others, so that a large message is not overtaken
by small ones for ever; and nobody comes in between, because the line hands messages in itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bkclient.log.format.message import Row
from bkclient.log.format.message_id import MessageId

__all__ = ["PublishLine", "WaitingMessage"]


@dataclass(frozen=True, slots=True, eq=False)
class WaitingMessage:
    """A message that waits for room."""

    row: bytes | Row = field(repr=False)
    size: int
    key: str | None = field(repr=False)


Handed = asyncio.Future[MessageId]


class PublishLine:
    """Messages in the order of their arrival.

    ``fits`` tells whether there is room for one, ``hand_in`` takes it, and ``on_empty`` hears that nobody waits any more.
    """

    def __init__(
        self,
        fits: Callable[[int], bool],
        hand_in: Callable[[WaitingMessage], Handed],
        on_empty: Callable[[], None],
    ) -> None:
        self._fits: Final = fits
        self._hand_in: Final = hand_in
        self._on_empty: Final = on_empty
        self._loop: Final = asyncio.get_running_loop()
        #: By what its publisher waits for: the future of its id once it was handed in, None if nothing is taken any more.
        self._waiting: OrderedDict[asyncio.Future[Handed | None], WaitingMessage] = OrderedDict()
        self._turn: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, message: WaitingMessage) -> Handed | None:
        """Wait until the message was handed in; the future of its id, or None if the line was given up.

        A message of a caller who is cancelled is handed in if it was its turn already, and is not otherwise.
        """
        waiter: asyncio.Future[Handed | None] = self._loop.create_future()
        self._waiting[waiter] = message
        try:
            return await waiter
        finally:
            if self._waiting.pop(waiter, None) is not None:  # gave up
                if self._waiting:
                    self.on_room()  # those behind may have waited for a large one
                else:
                    self._on_empty()

    def on_room(self) -> None:
        """There may be room: the line moves at the next turn of the loop, once however many entries are told until then."""
        if self._turn is None and self._waiting:
            self._turn = self._loop.call_soon(self.move)

    def move(self) -> None:
        """Hand in what fits, from the front."""
        self._turn = None
        while self._waiting:
            waiter, message = next(iter(self._waiting.items()))
            if not waiter.done() and not self._fits(message.size):
                return
            del self._waiting[waiter]
            if not waiter.done():
                waiter.set_result(self._hand_in(message))
        self._on_empty()

    def give_up(self) -> None:
        """Nothing is taken any more: all who wait go on, to be told why."""
        waiting, self._waiting = [*self._waiting], OrderedDict()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
