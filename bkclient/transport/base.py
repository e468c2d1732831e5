"""The one seam between the client and its bookies.

Everything above it speaks in bookie ids and typed requests; everything below it knows connections, frames and clocks, or
simulates them. TCP and the simulated network both implement :class:`BookieTransport`, and recorders and mutants wrap it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from bkclient.wire.messages import Request, Response

__all__ = ["BookieTransport", "ReplyHandler"]

ReplyHandler = Callable[[str, Request, int, Response | None], None]
"""``(bookie_id, request, code, response)``.

``code`` is a :class:`bkclient.errors.Code`; ``response`` is what the bookie sent, ``None`` where the outcome arose on this
side (timeout, lost connection, closed client) and for adds, whose answer is the code alone.
"""


class BookieTransport(Protocol):
    """Carries requests to bookies and their answers back.

    Guarantees that the protocol machines rely on:

    * for every submitted request the handler is called **exactly once**, with ``TIMEOUT`` when the bookie does not answer
      in time, ``BOOKIE_NOT_AVAILABLE`` when it cannot be reached or the connection is lost, a
      :class:`~bkclient.errors.Refusal` when it could be but must not be used, ``CLIENT_CLOSED`` after :meth:`aclose`;
    * the handler is **never called from within** :meth:`submit`, so a machine is never re-entered;
    * a request that timed out may still reach the bookie later; its late answer is dropped here;
    * while the answer of a bookie is handed over, :attr:`connections` has the number of the connection that it came over; and
      when a process at the other end has ended, no answer of the next one comes over a connection that was established before.

    There is no order between answers, nor between requests to different bookies.
    """

    @property
    def connections(self) -> Mapping[str, int]:
        """By bookie, the number of the connection to it that last was established or brought an answer.

        The same live mapping at every call. Connections to all bookies are numbered together, from 1 up, when they are
        established; a number once seen here belongs to a connection that the bookie's process had accepted by then. There may be
        several connections to a bookie at a time.
        """
        ...

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Send ``request`` to ``bookie_id``; the outcome goes to ``reply_to``. Never raises for network reasons."""
        ...

    def pending_requests(self, bookie_id: str) -> int:
        """How many requests to the bookie have no outcome yet."""
        ...

    def is_writable(self, bookie_id: str) -> bool:
        """Whether the bookie takes what is sent to it; true as well while there is no connection to it yet."""
        ...

    async def aclose(self) -> None:
        """Close every connection; outstanding requests end with ``CLIENT_CLOSED``. Idempotent."""
        ...
