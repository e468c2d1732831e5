"""Closing a listening socket without leaving a connection in the air."""

from __future__ import annotations

import asyncio

__all__ = ["stop_listening"]


def stop_listening(listener: asyncio.Server) -> asyncio.Future[None]:
    """Close a listener soon; returns a future of that.

    asyncio accepts a connection in one turn of the loop and ties it to its listener in the next. If the listener is closed in
    between, the connection is neither served nor broken, and its client waits for its timeouts. A turn runs timers last, so
    what a timer asks for comes right after the connections accepted in its turn were tied, and before any others are accepted.
    """
    loop = listener.get_loop()
    closed: asyncio.Future[None] = loop.create_future()

    def close() -> None:
        listener.close()
        if not closed.done():
            closed.set_result(None)

    loop.call_later(0, loop.call_soon, close)
    return closed
